"""Hold operators against PyTorch's own: values and derivatives.

Each is called with the same arguments as torch's operator: values, dtypes, strides,
gradients, second derivatives, forward derivatives, vmap, and tensors that lie in memory
in all manner of ways; the samples of PyTorch's OpInfo database; gradcheck; and edge
values. Errors are relative to the size of what is compared. Operators that are named
are checked in full, and so are all of them with `--all`; with neither, all are checked
in float64 and complex128 alone. Exit status 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table

from atentriton.commands import UsageError
from atentriton.commands._console import (
    add_jobs,
    add_json,
    console,
    counting,
    emit,
    escape,
    table,
)
from atentriton.commands._formulas import compiler_of, items, operator_names
from atentriton.reports import KINDS, Kind, Report

NAME = "check"
EXAMPLE = """
atentriton check acosh add.Tensor
atentriton check --all --json
"""

# Failures of an operator that are printed.
SHOWN = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("operators", metavar="OP", nargs="*", help="default: all")
    parser.add_argument(
        "--quick", action="store_true", help="float64 and complex128 alone"
    )
    parser.add_argument("--all", action="store_true", help="every operator, in full")
    add_jobs(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.all and args.operators:
        raise UsageError("--all takes no names of operators: it checks every one")
    names = chosen(args.operators)
    quick = args.quick or not (args.operators or args.all)
    out = console()
    found = list(reports(out, names, quick, args.jobs))
    if args.json:
        emit({"ops": [report.as_json() for report in found]})
    else:
        show(out, found)
    return 0 if all(report.ok for report in found) else 1


def chosen(given: list[str]) -> list[str]:
    """The full names of the operators asked for; all that can run, where none are:
    those that the file has entries of, and those with a value alone."""
    if not given:
        from atentriton import catalogue

        kinds = {item.verdict.name: item.verdict.kind for item in items()}
        known = (name for names in catalogue.names().values() for name in names)
        return [n for n in dict.fromkeys((*kinds, *known)) if kinds.get(n) != "not_yet"]
    made = compiler_of(None)
    return [name for text in given for name in operator_names(text, made)]


def reports(
    out: Console, names: Iterable[str], quick: bool, jobs: int = 1
) -> Iterator[Report]:
    """Check the operators, in order; progress is shown in a terminal."""
    from atentriton.workers import checked

    wanted = list(names)
    with counting(out, len(wanted)) as finished:
        yield from checked(wanted, quick, jobs, finished)


def show(out: Console, found: list[Report]) -> None:
    """The table, what has to be said of it, and the failures."""
    out.print(errors_table(found))
    print_notes(out, found)
    print_exceptions(out, found)
    bad = print_failures(out, found)
    compared = sum(report.compared for report in found)
    passed = sum(report.passed for report in found)
    out.print(
        f"{compared} compared, {len(found) - compared} not; {bad} failed "
        f"({passed} comparisons held)"
    )


def print_failures(out: Console, found: list[Report]) -> int:
    """What went wrong, and with which arguments; how many operators failed."""
    for report in found:
        for failure in report.failures[:SHOWN]:
            line = f"{report.name} {failure.kind}, {failure.case}"
            out.print(f"[red]{escape(line)}[/red]\n    {escape(failure.message)}")
        if len(report.failures) > SHOWN:
            out.print(
                f"    ... and {len(report.failures) - SHOWN} more; --json has all"
            )
    return sum(not report.ok for report in found)


def print_exceptions(out: Console, found: list[Report]) -> None:
    """Differences from PyTorch that are no failures, with the reason."""
    by_reason: dict[str, list[str]] = {}
    for report in found:
        for reason, count in report.excepted.items():
            by_reason.setdefault(reason, []).append(f"{report.name} ({count})")
    for reason, names in by_reason.items():
        out.print(f"[dim]no failure: {escape(reason)}: {', '.join(names)}[/dim]")


def errors_table(found: list[Report]) -> Table:
    """A row an operator: its largest errors."""
    kinds: list[Kind] = [k for k in KINDS if any(k in r.measures for r in found)]
    rows = table("", "operator", *kinds, "", right=KINDS, whole=("operator",))
    for report in found:
        mark = "[red]✗[/red]" if not report.ok else "[green]✓[/green]"
        if not report.compared:
            rows.add_row("·", report.name, *("" for _ in kinds), escape(_why(report)))
            continue
        cells = [_cell(report, kind) for kind in kinds]
        note = f"[dim]{escape(report.note)}[/dim]" if report.note else ""
        rows.add_row(mark, report.name, *cells, note)
    return rows


def _why(report: Report) -> str:
    runs = "torch's own" if report.runs == "torch" else "does not run"
    return f"{runs}: {report.reason}" if report.reason else runs


def _cell(report: Report, kind: Kind) -> str:
    """The error relative to the size of the result; in eps for the other dtypes."""
    measure = report.measures.get(kind)
    if measure is None:
        return "-"
    if any(f.kind == kind for f in report.failures):
        return "[red]wrong[/red]"
    if not measure.exact:
        return "right"
    if kind in ("vmap", "layouts"):
        return f"{measure.eps:.1f} eps"
    return f"{measure.relative:.1e}"


def print_notes(out: Console, found: list[Report]) -> None:
    """What the numbers mean."""
    out.print(
        "[dim]largest error in float64 and complex128, relative to the size of the "
        "result; - where PyTorch has no such derivative[/dim]"
    )
