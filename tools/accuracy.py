"""How accurate are the functions? Measures them, and writes docs/accuracy.md.

    python tools/accuracy.py [--quick] [FUNCTION ...]

Every function is asked at a few hundred points over its whole domain, in float32 and in
float64, as a C kernel and by PyTorch; the exact values come from mpmath. The page and
its pictures are written where all functions are measured, and not with --quick; the
pictures need matplotlib. It takes some minutes.
"""

from __future__ import annotations

import argparse
import math
import platform
import random
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

# The script runs from a checkout, installed or not.
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import mpmath  # noqa: E402
import torch  # noqa: E402
from mpmath import mpf  # noqa: E402

from atentriton import ops  # noqa: E402
from atentriton.toolchain import toolchain  # noqa: E402
from fuser.dtypes import DType, float32, float64  # noqa: E402
from fuser.rounding import rounded  # noqa: E402
from tests.fuser.accuracy import MOST, eps, ulp  # noqa: E402
from tools import accuracy_plots  # noqa: E402
from tools.accuracy_exact import DIGITS  # noqa: E402
from tools.accuracy_functions import FAMILIES, FUNCTIONS, Function  # noqa: E402

PAGE = ROOT / "docs" / "accuracy.md"
DTYPES = {float32: torch.float32, float64: torch.float64}
COUNT, QUICK = 500, 60

# Kernels work through so many elements at a time at most; the rest goes another way.
BLOCK = 64


@dataclass(frozen=True, slots=True)
class Worst:
    """The largest error in units, and where; infinite for a wrong kind of number."""

    error: float
    point: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A function in a dtype: at each point the error of ours and of PyTorch's."""

    function: Function
    dtype: DType
    points: list[tuple[float, ...]]
    ours: list[float]
    theirs: list[float]

    @property
    def worst(self) -> Worst:
        return self._worst(self.ours)

    @property
    def worst_of_torch(self) -> Worst:
        return self._worst(self.theirs)

    def _worst(self, errors: list[float]) -> Worst:
        at = max(range(len(errors)), key=errors.__getitem__)
        return Worst(errors[at], self.points[at])

    @property
    def exceeds(self) -> bool:
        return self.worst.error > self.function.bound


def measure(function: Function, dtype: DType, count: int) -> Row:
    """The errors at about `count` points, the same ones every time."""
    draw = random.Random(f"{function.title} {dtype}")
    points: list[tuple[float, ...]] = []
    answers: list[tuple[mpf, mpf]] = []
    with mpmath.workdps(DIGITS):
        for point in _held(function.points(dtype.bits, draw, count), dtype):
            answer = _exact(function, point, dtype)
            if answer is not None:
                points.append(point)
                answers.append(answer)
        errors = [
            [
                _error(value, *answer, dtype)
                for value, answer in zip(values, answers, strict=True)
            ]
            for values in _computed(function, points, dtype)
        ]
    return Row(function, dtype, points, *errors)


def _held(points: Iterable[tuple[float, ...]], dtype: DType) -> list[tuple[float, ...]]:
    """The points as the dtype has them, each once, in order."""
    found = {
        tuple(float(rounded(v, dtype)) for v in point)  # type: ignore[arg-type]
        for point in points
    }
    return sorted(p for p in found if all(map(math.isfinite, p)))


def _exact(
    function: Function, point: tuple[float, ...], dtype: DType
) -> tuple[mpf, mpf] | None:
    """The value, and the unit that errors are counted in; None at a pole."""
    values = tuple(map(mpf, point))
    try:
        exact, wiggle = function.exact(*values), function.wiggle(values)
    except (ValueError, ZeroDivisionError):
        return None
    if not mpmath.isfinite(exact):
        return None
    return exact, ulp(exact, dtype) + wiggle * eps(dtype)


def _error(value: float, exact: mpf, unit: mpf, dtype: DType) -> float:
    """Beyond the range all numbers are one, which infinity stands for."""
    if math.isnan(value):
        return math.inf
    limit = mpf(2) ** MOST[dtype.bits]
    found, exact = (max(-limit, min(limit, v)) for v in (mpf(value), exact))
    return float(abs(found - exact) / unit)


def _computed(
    function: Function, points: Sequence[tuple[float, ...]], dtype: DType
) -> Iterable[list[float]]:
    """The values by a C kernel, and by PyTorch."""
    filled = [*points, *(points[0] for _ in range(-len(points) % BLOCK))]
    tensors = [
        torch.tensor(column, dtype=DTYPES[dtype])
        for column in zip(*filled, strict=True)
    ]
    for namespace in (ops, torch.ops.aten):
        call: Any = getattr(namespace, function.name)
        found = call(*function.before, *tensors, *function.after)
        yield found.tolist()[: len(points)]


# -- the page
# -------------------------------------------------------------------------------------


def number(error: float) -> str:
    if error > 9999:
        return "∞" if math.isinf(error) else f"{error:.0e}"
    return f"{error:.2f}" if error < 10 else f"{error:.0f}"


def place(point: tuple[float, ...]) -> str:
    return ", ".join(f"{v:.6g}" for v in point)


def cells(row: Row) -> list[str]:
    """Of a table's line: dtype, ours, where, PyTorch's."""
    ours = number(row.worst.error)
    if row.exceeds:
        ours = f"**{ours}** exceeds"
    theirs = number(row.worst_of_torch.error)
    return [str(row.dtype), ours, place(row.worst.point), theirs]


def sections(rows: Sequence[Row]) -> str:
    """A table for each family."""
    lines: list[str] = []
    for family in FAMILIES:
        lines += ["", f"## {family}", ""]
        lines.append("| function | bound | dtype | worst k | at | PyTorch's worst k |")
        lines.append("| --- | --: | --- | --: | --- | --: |")
        for row in rows:
            f = row.function
            if f.family == family:
                title = f"[`{f.title}`](accuracy/{accuracy_plots.file_name(f)})"
                line = " | ".join((title, str(f.bound), *cells(row)))
                lines.append(f"| {line} |")
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """How many rows keep their bounds, and which do not, and why."""
    over = [row for row in rows if row.exceeds]
    lines = [f"{len(rows) - len(over)} of {len(rows)} rows keep their bounds."]
    if over:
        lines[0] += " The others are marked:"
        lines.append("")
        for row in over:
            note = f": {row.function.note}" if row.function.note else ""
            lines.append(f"- `{row.function.title}` in {row.dtype}{note}")
    return "\n".join(lines)


def machine() -> str:
    """What the figures hold for, in general words."""
    library, version = platform.libc_ver()
    kind = platform.machine().replace("_", "-")
    vectors = torch.backends.cpu.get_cpu_capability()
    said = toolchain().identity
    release = re.search(r"\d+\.\d+\.\d+", said)
    compiler = "Clang" if "clang" in said.lower() else "GCC"
    compiler += f" {release[0]}" if release else ""
    parts = (
        *(kind, vectors, f"{library or 'libc'} {version}".strip(), compiler),
        *(f"{n} {metadata.version(n).split('+')[0]}" for n in ("torch", "mpmath")),
    )
    return ", ".join(parts)


def page(rows: Sequence[Row]) -> str:
    points = sum(len(r.points) for r in rows)
    return f"""# Accuracy

How far values are from the exact ones, for the real functions of one argument or two.
An error is counted in units of what can be had at all:

    |computed - exact| <= k (ulp(f) + |x f'| eps)

Beside the spacing of floats at the value, `ulp(f)`, stands what half a unit in the last
place of the argument does to it: near a zero, and wherever f is steep, nobody who sees
only the rounded argument can do better. `eps` is 2^-24 or 2^-53; for two arguments the
terms add up. Below the normal numbers an ulp is the least positive number; infinity
stands for all that is too large; a NaN is infinitely wrong.

The bound is k = 4. It is 8 for polygamma, zeta, igamma, igammac and i1, and for
functions put together from several calls of the system's vector math, which promises no
more than 4 ulp a call.

{summary(rows)}

Points lie over the whole domain: magnitudes evenly over all exponents, subnormal ones
included, the middle evenly, and ever closer to zeros, poles, ends and seams between
methods. `at` is the point of the worst error. PyTorch's figure is from the same points.
Each name leads to a picture of the error, in units of the bound, over the last
argument.

Made by `python tools/accuracy.py`: {points:,} points, {date.today()}, C kernels on
{machine()}.
Other systems have other mathematical libraries; run it there to know.
{sections(rows)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog="exits with 1 where a function exceeds its bound for no known reason",
    )
    parser.add_argument("functions", metavar="FUNCTION", nargs="*", help="only these")
    parser.add_argument("--quick", action="store_true", help="few points, no page")
    args = parser.parse_args()

    from atentriton.commands._console import console, progress, table

    chosen = [f for f in FUNCTIONS if f.title in (args.functions or (f.title,))]
    unknown = set(args.functions) - {f.title for f in chosen}
    if unknown:
        known = ", ".join(f.title for f in FUNCTIONS)
        parser.error(f"not measured: {', '.join(sorted(unknown))}; there are {known}")
    toolchain()  # no compiler, no kernels: that is an error here
    out = console()
    count = QUICK if args.quick else COUNT
    by_name = {f.title: f for f in chosen}
    rows = [
        measure(by_name[name], dtype, count)
        for name in progress(out, list(by_name))
        for dtype in DTYPES
    ]
    columns = ("function", "bound", "dtype", "worst k", "at", "torch")
    shown = table(*columns, right=("bound", "worst k", "torch"))
    for row in rows:
        shown.add_row(row.function.title, str(row.function.bound), *cells(row))
    out.print(shown, markup=False)
    if not args.quick and not args.functions:
        PAGE.write_text(page(rows), encoding="utf-8")
        drawn = accuracy_plots.draw(PAGE.with_suffix(""), rows)
        out.print(f"{PAGE}{'' if drawn else ', without pictures: no matplotlib'}")
    sys.exit(any(row.exceeds and not row.function.note for row in rows))


if __name__ == "__main__":
    main()
