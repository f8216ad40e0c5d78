"""Tables of speed, for the demo and for perf/ops.py.

Comes in: rows of `atentriton.speed`. Goes out: a table with milliseconds and ratios,
and the geometric mean of each mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import geometric_mean, median

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


def summary_table(rows: Sequence[Row]) -> Table:
    """A row a mode: how many operators, their mean and median ratio, and the slow ones.

    Those whose gradient is the cotangent have rows of their own.
    """
    numbers = "operators", "geometric mean", "median", "below 0.8x"
    made = table("", *numbers, "least", right=numbers)
    for mode, text in MODES.items():
        for apart in (False, True):
            some = [r for r in rows if r.mode == mode and r.passed_on == apart]
            if not some:
                continue
            ratios = [row.ratio for row in some]
            least = min(some, key=lambda row: row.ratio)
            made.add_row(
                f"{text}, no gradient to compute" if apart else text,
                str(len(some)),
                _ratio(geometric_mean(ratios)),
                _ratio(median(ratios)),
                str(sum(ratio < 0.8 for ratio in ratios)),
                f"{_ratio(least.ratio)} {least.name}",
            )
    return made


def losses(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each row in which eager is faster, the worst first."""
    for row in sorted(rows, key=lambda row: row.ratio):
        if row.ratio < 1:
            yield f"we lose: {row.name}, {MODES[row.mode]}: {row.ratio:.2f}x eager"


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
