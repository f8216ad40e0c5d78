"""What becomes of each entry of a file of derivatives.

Each has a class, the reason for it, and how its value, backward, second derivative and
forward derivative are had. `--file` takes any file of the format, and `--file torch` is
the one that the installed PyTorch brings along. Exit status 1 if the file has mistakes;
all of them are shown.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from atentriton.commands import UsageError
from atentriton.commands._console import add_json, console, emit, escape, one_of, table
from atentriton.commands._formulas import (
    CLASSES,
    MEANING,
    OPERATORS,
    PARTS,
    Item,
    counts,
    diagnostic_json,
    file_of,
    items,
)
from fuser.errors import FormulaFileError

NAME = "coverage"
EXAMPLE = """
atentriton coverage --class fused --grep log
atentriton coverage --file torch --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file", help="a file of derivatives, or `torch`; default: ours"
    )
    parser.add_argument(
        "--class",
        dest="kind",
        metavar="CLASS",
        type=one_of("class", CLASSES),
        help=f"only the entries of this class: {', '.join(CLASSES)}",
    )
    parser.add_argument(
        "--grep", help="only names or reasons that the pattern is found in"
    )
    parser.add_argument("--summary", action="store_true", help="only the counts")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    path = file_of(args.file)
    try:
        found = items(path)
    except FormulaFileError as error:
        if not args.json:
            raise
        emit({"errors": [diagnostic_json(d) for d in error.diagnostics]})
        return 1
    chosen = select(found, args.kind, args.grep)
    summary = summarise(found, path)
    if args.json:
        emit({"entries": [item.as_json() for item in chosen], "summary": summary})
        return 0
    out = console()
    if not args.summary:
        print_entries(out, chosen)
        out.print()
    print_summary(out, found, summary)
    return 0


def select(found: Sequence[Item], kind: str | None, pattern: str | None) -> list[Item]:
    """The items of that class whose name or reason matches; None leaves all."""
    try:
        expression = re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f'--grep "{pattern}" is not a pattern: {error}') from None
    return [
        item
        for item in found
        if (kind is None or item.verdict.kind == kind)
        and (
            expression.search(item.verdict.name)
            or expression.search(item.verdict.reason)
        )
    ]


def summarise(found: Sequence[Item], path: Path | None) -> dict[str, Any]:
    """Counts over the file, and over its parts where it has any."""
    summary: dict[str, Any] = {
        "file": str(path or (found[0].entry.span.file if found else "")),
        "entries": len(found),
        "unparsed": 0,  # a file with a mistake is not summarised at all
        "classes": counts(found),
        "parts": {},
    }
    parts = [p for p in (OPERATORS, *PARTS.values()) if any(i.part == p for i in found)]
    for part in parts if len(parts) > 1 else ():
        members = [item for item in found if item.part == part]
        summary["parts"][part] = {
            "entries": len(members),
            "classes": counts(members),
        }
    return summary


def print_entries(out: Console, found: Sequence[Item]) -> None:
    """A row an entry."""
    ways = ("value", "backward", "second", "jvp")
    rows = table("entry", "class", *ways, "reason", whole=("entry", "class", *ways))
    for item in found:
        v = item.verdict
        # What is the same for every fused entry is said in the summary.
        reason = v.reason.partition("; ")[2] if v.kind == "fused" else v.reason
        found_by = (v.forward, v.backward, v.second, v.jvp)
        cells = (v.name, v.kind, *(way.partition(":")[0] for way in found_by), reason)
        rows.add_row(*map(escape, cells))
    out.print(rows)


def print_summary(out: Console, found: Sequence[Item], summary: dict[str, Any]) -> None:
    """A row a class: how many entries, and what the class means."""
    parts = summary["parts"]
    numbers = [*parts, "entries"]
    rows = table("class", *numbers, "meaning", right=numbers, whole=("class",))
    for kind, count in summary["classes"].items():
        split = [str(part["classes"].get(kind, 0)) for part in parts.values()]
        rows.add_row(kind, *split, str(count), MEANING[kind])
    totals = [str(part["entries"]) for part in parts.values()]
    note = f"of {summary['file']}; {summary['unparsed']} unparsed"
    rows.add_row("all", *totals, str(len(found)), escape(note), style="bold")
    out.print(rows)
