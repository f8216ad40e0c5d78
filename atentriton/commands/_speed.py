"""Tables of speed, for the demo and for perf/ops.py.

Comes in: rows of `atentriton.speed`. Goes out: a table with milliseconds and ratios,
and the geometric mean of each mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from rich.table import Table

from atentriton.commands._console import table
from atentriton.speed import MODES, Mode, Row
from atentriton.timing import Timing


def speed_table(rows: Sequence[Row]) -> Table:
    """A row an operator, a column a mode: milliseconds of eager and ours, the ratio."""
    compiled = any(row.compiled for row in rows)
    modes: list[Mode] = [m for m in MODES if any(row.mode == m for row in rows)]
    made = table("operator")
    sides = "eager → compile → ours" if compiled else "eager → ours"
    for mode in modes:
        made.add_column(f"{MODES[mode]}\n{sides}", justify="right")
    found = {(row.name, row.mode): row for row in rows}
    for name in dict.fromkeys(row.name for row in rows):
        made.add_row(name, *(_cell(found.get((name, m)), compiled) for m in modes))
    means = [[row.ratio for row in rows if row.mode == m] for m in modes]
    cells = [_ratio(geometric_mean(ratios)) for ratios in means]
    made.add_row("geometric mean", *cells, style="bold")
    return made


def _cell(row: Row | None, compiled: bool) -> str:
    if row is None:
        return "-"
    times = [row.eager, *([row.compiled] if compiled else []), row.ours]
    return f"{' → '.join(map(_milliseconds, times))} {_ratio(row.ratio)}"


def _milliseconds(timing: Timing | None) -> str:
    return f"{'-':>6}" if timing is None else f"{timing.median * 1e3:6.2f}"


def _ratio(ratio: float) -> str:
    return f"[{'green' if ratio >= 1 else 'red'}]{ratio:5.2f}x[/]"


def bandwidth_table(rows: Sequence[Row]) -> Table:
    """What the forward into a buffer reads and writes a second, in 10^9 bytes, and as a
    part of what copying a buffer reaches."""
    made = table("into a buffer", "eager", "ours", "of a copy", right=["eager", "ours"])
    for row in rows:
        if row.of_copy is not None:
            eager, ours = (row.moved / t.median for t in (row.eager, row.ours))
            numbers = f"{eager / 1e9:.1f}", f"{ours / 1e9:.1f}", f"{row.of_copy:.0%}"
            made.add_row(row.name, *numbers)
    return made
