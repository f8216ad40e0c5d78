"""Pictures of errors: a PNG for each function, float32 beside float64.

Comes in: the errors at points, as tools/accuracy.py measures them. Goes out: small PNG
files with the error in units of the bound over the last argument, ours and PyTorch's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# What is better is drawn at the lower edge, and what is worse at the upper one.
LOW, HIGH = 1e-3, 1e3


def file_name(function: Any) -> str:
    """A function's picture: polygamma(2) is in polygamma_2.png."""
    return re.sub(r"\W+", "_", function.title).strip("_") + ".png"


def draw(folder: Path, rows: Iterable[Any]) -> bool:
    """Write the pictures of all functions. False where matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    grouped: dict[str, list[Any]] = {}
    for row in rows:
        grouped.setdefault(file_name(row.function), []).append(row)
    for name, group in grouped.items():
        figure, panels = pyplot.subplots(
            1, len(group), figsize=(7.5, 2.4), sharey=True, squeeze=False
        )
        for axes, row in zip(panels[0], group, strict=True):
            _panel(axes, row)
        panels[0][0].set_ylabel("error / bound", fontsize=8)
        panels[0][0].legend(frameon=False, fontsize=7, loc="upper left", ncols=2)
        figure.tight_layout()
        figure.savefig(folder / name, dpi=80, metadata={"Software": None})
        pyplot.close(figure)
    return True


def _panel(axes: Any, row: Any) -> None:
    x = [point[-1] for point in row.points]
    scale = _Scale(x)
    places = [scale.place(v) for v in x]
    for label, errors, marker, colour in (
        ("PyTorch", row.theirs, "x", "tab:orange"),
        ("atentriton", row.ours, ".", "tab:blue"),
    ):
        y = [max(LOW, min(HIGH, e / row.function.bound)) for e in errors]
        style = {"color": colour, "markersize": 3, "markeredgewidth": 0.6}
        axes.plot(places, y, marker, label=label, **style)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_ylim(LOW / 2, HIGH * 2)
    axes.locator_params(axis="x", nbins=7)
    axes.xaxis.set_major_formatter(lambda place, _: scale.label(place))
    axes.set_title(f"{row.function.title}, {row.dtype}", fontsize=8)
    axes.tick_params(labelsize=7)


class _Scale:
    """Where numbers go on the axis: by themselves, by their logarithms, or, where they
    are of both signs, by those of 1 + |x|. (matplotlib's own scales overflow.)"""

    def __init__(self, values: list[float]) -> None:
        wide = max(map(abs, values)) > 1e3
        self.logarithmic = wide and min(values) > 0
        self.symmetric = wide and not self.logarithmic

    def place(self, value: float) -> float:
        if self.logarithmic:
            return math.log10(value)
        if self.symmetric:
            return math.copysign(math.log10(1 + abs(value)), value)
        return value

    def label(self, place: float) -> str:
        if self.logarithmic:
            return f"1e{place:g}"
        if self.symmetric and place:
            return f"{'-' if place < 0 else ''}1e{abs(place):g}"
        return f"{place:g}"
