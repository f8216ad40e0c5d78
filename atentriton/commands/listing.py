"""The operators that have an entry, by class.

The class says what runs: `atentriton coverage` has the reason too, and
`atentriton show NAME` the formulas and the kernels.
"""

from __future__ import annotations

import argparse
from itertools import groupby

from rich.columns import Columns

from atentriton.commands._console import (
    add_json,
    console,
    emit,
    escape,
    heading,
    one_of,
)
from atentriton.commands._formulas import CLASSES, MEANING, items
from atentriton.commands.coverage import select

NAME = "list"
EXAMPLE = """
atentriton list --class fused
atentriton list --grep '^special_' --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--class",
        dest="kind",
        metavar="CLASS",
        type=one_of("class", CLASSES),
        help=f"only this class: {', '.join(CLASSES)}",
    )
    parser.add_argument(
        "--grep", help="only names or reasons that the pattern is found in"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    found = select(items(), args.kind, args.grep)
    if args.json:
        emit(
            [
                {
                    "name": item.verdict.name,
                    "class": item.verdict.kind,
                    "signature": str(item.entry.signature),
                }
                for item in found
            ]
        )
        return 0
    out = console()
    order = {kind: place for place, kind in enumerate(CLASSES)}
    found.sort(key=lambda item: (order[item.verdict.kind], item.verdict.name))
    for kind, group in groupby(found, key=lambda item: item.verdict.kind):
        names = [item.verdict.name for item in group]
        heading(out, f"{kind} ({len(names)})", MEANING[kind])
        out.print(
            Columns([escape(n) for n in names], padding=(0, 2), column_first=True)
        )
    return 0
