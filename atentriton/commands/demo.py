"""The tour: coverage, formulas turned into kernels, accuracy, speed.

Everything is made and measured in this run, on this machine; kernels that are not in
the cache yet are compiled. Exit status 1 if a check fails.
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

from rich.columns import Columns
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from atentriton import __version__
from atentriton.commands._console import (
    add_json,
    code,
    console,
    emit,
    escape,
    heading,
    progress,
    table,
)
from atentriton.commands._formulas import Item, compiler_of, items, place
from atentriton.commands._stages import Stages, stages
from atentriton.commands.check import errors_table, print_failures, print_notes, reports
from atentriton.commands.coverage import print_summary, summarise
from atentriton.reports import Report
from fuser import dtypes

NAME = "demo"
EXAMPLE = """
atentriton demo
NO_COLOR=1 atentriton demo > demo.txt
"""

# Operators whose way is shown, and GPUs that their kernels are compiled for.
SHOWN = ("acosh", "hypot", "logaddexp")
GPUS = ("sm_80", "sm_90", "gfx942")

# Lines of a kernel that are shown before the rest is left out.
LINES = 16

CHECKED = """acosh exp abs add.Tensor mul.Tensor div.Tensor_mode addcmul clamp logaddexp
    atan2 maximum xlogy.Tensor polygamma masked_fill_.Scalar copysign.Tensor alias mm
    addmm"""
TIMED = """exp acosh atan2 logaddexp xlogy.Tensor addcmul clamp hardswish hypot
    polygamma"""
ELEMENTS = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    begin = perf_counter()
    out = Console(quiet=True) if args.json else console()
    out.print(f"[bold]atentriton {__version__}[/bold]  {escape(machine())}")
    found = items()
    print_coverage(out, found)
    ways = print_ways(out)
    checked = print_checks(out)
    rows = print_speed(out)
    seconds = perf_counter() - begin
    out.print(f"\nall of this took {seconds:.0f} s, compiling included")
    if args.json:
        emit(
            {
                "machine": machine(),
                "coverage": summarise(found, None),
                "kernels": ways,
                "checks": [report.as_json() for report in checked],
                "speed": rows,
                "seconds": seconds,
            }
        )
    return 0 if all(report.ok for report in checked) else 1


def machine() -> str:
    """What the numbers are for: the processor, its threads, torch and Triton."""
    from atentriton.commands.doctor import devices, versions

    found, known = devices(), versions()
    gpus = ", ".join(found["gpus"]) or "no GPU"
    software = f"torch {known['torch']}, triton {known['triton'] or 'missing'}"
    return f"{software}, {found['cpu']} with {found['threads']} threads, {gpus}"


def print_coverage(out: Console, found: list[Item]) -> None:
    """How much of derivatives.yaml there is so far."""
    heading(out, "1. Coverage", "atentriton coverage")
    print_summary(out, found, summarise(found, None))


def print_ways(out: Console) -> list[dict[str, Any]]:
    """The ways of some operators, and what their kernels compile to."""
    heading(out, "2. From a formula to kernels", "atentriton show acosh")
    ways = [print_way(out, name) for name in SHOWN]
    rows = table("the backward compiled", "C for this CPU", *GPUS)
    for way in ways:
        cells = [_compiled(way["compiled"][target]) for target in ("native", *GPUS)]
        rows.add_row(way["name"], *cells)
    out.print()
    out.print(rows)
    return ways


def _compiled(found: dict[str, Any]) -> str:
    """A cell: seconds, and for a GPU registers and bytes spilled by a thread."""
    if "error" in found:
        return escape(found["error"])
    seconds = f"{found['seconds']:.2f} s"
    if "registers" not in found:
        return seconds
    spilled = f", {found['spilled']} B spilled" if found["spilled"] else ""
    return f"{found['registers']} registers{spilled}, {seconds}"


def print_way(out: Console, name: str) -> dict[str, Any]:
    """From the formula of an operator to the kernels of its backward."""
    way = stages(compiler_of(None), name, dtypes.float32)
    entry = way.operator.entry
    assert entry is not None
    out.print(f"\n[bold]{escape(str(entry.signature))}[/bold]", end="  ")
    out.print(f"[dim]{escape(place(entry.span))}[/dim]")
    lines = [
        f"{', '.join(f.names)}: {f.text}" for f in entry.gradients + entry.forwards
    ]
    code(out, "\n".join(f"  {line}" for line in lines), "yaml")
    out.print("[dim]the backward, for an element: C for CPUs, Triton for GPUs[/dim]")
    side_by_side(out, way.body("backward", "native"), way.body("backward", "sm_90"))
    return {"name": name, **compile_way(way)}


def side_by_side(out: Console, left: list[str], right: list[str]) -> None:
    """Two texts beside each other, the rest of long ones left out."""
    if len(left) > LINES:
        rest = len(left) - LINES
        left = [*left[:LINES], f"// ... and {rest} more lines"]
        right = [*right[:LINES], f"# ... and {len(right) - LINES} more lines"]
    if out.is_terminal and not out.no_color:
        texts = [
            Syntax(
                "\n".join(lines),
                language,
                theme="ansi_dark",
                background_color="default",
            )
            for lines, language in ((left, "c"), (right, "python"))
        ]
    else:
        texts = [Text("\n".join(lines)) for lines in (left, right)]
    width = max(map(len, [*left, *right])) + 4
    out.print(Columns([*texts], width=min(width, out.width // 2 - 2)))


def compile_way(way: Stages) -> dict[str, Any]:
    """What the kernels of the backward compile to for each target, and how fast.

    What is in the cache already takes no time.
    """
    compiled = {target: _compile(way, target) for target in ("native", *GPUS)}
    return {"compiled": compiled}


def _compile(way: Stages, target: str) -> dict[str, Any]:
    """Compile for this CPU, or for a GPU that need not be there."""
    kernels = way.kernels("backward")
    begin = perf_counter()
    try:
        if target == "native":
            from atentriton.native import load

            for kernel in kernels:
                load(kernel)
            return {"seconds": perf_counter() - begin}
        from atentriton.tritonkernels import compile_only

        compiled = [compile_only(kernel, target) for kernel in kernels]
        seconds = perf_counter() - begin
        used = [c.resources() for c in compiled]
    except (ImportError, RuntimeError) as error:
        return {"error": str(error).splitlines()[0]}
    return {
        "seconds": seconds,
        "registers": max(u.registers for u in used),
        "spilled": max(u.stack for u in used),
    }


def print_checks(out: Console) -> list[Report]:
    """Operators of every kind against PyTorch's own."""
    heading(out, "3. Against PyTorch", "atentriton check")
    found = list(reports(out, CHECKED.split(), quick=True))
    out.print(errors_table(found))
    print_notes(out, found)
    print_failures(out, found)
    return found


def print_speed(out: Console) -> list[dict[str, Any]]:
    """A first table of speed, against PyTorch's eager operators."""
    from atentriton.commands._speed import speed_table
    from atentriton.speed import Row, measure
    from atentriton.timing import keep_memory

    title = f"4. Speed: {ELEMENTS:,} float32 elements, milliseconds a call"
    heading(out, title, "python perf/ops.py")
    keep_memory()
    rows: list[Row] = []
    for name in progress(out, TIMED.split()):
        rows += measure(name, elements=ELEMENTS, seconds=0.3)
    out.print(speed_table(rows))
    out.print(
        "[dim]medians of calls in turns; outputs are made anew, in memory that the "
        "allocator keeps[/dim]"
    )
    return [row.as_json() for row in rows]
