"""Functions of two arguments: how far a computed value is from the exact one.

As in tests.fuser.accuracy, the unit is ulp(f) + (|x df/dx| + |y df/dy|) eps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath
import torch
from mpmath import mpf

from atentriton.specs import TO_TORCH
from fuser import ir
from fuser.dtypes import DType
from fuser.interpret import interpret
from fuser.ir import Node
from fuser.program import Output, Program
from fuser.rounding import rounded
from fuser.simplify import simplify
from fuser.verify import verify
from tests.fuser.accuracy import MOST, eps, ulp
from tests.native import run

Pairs = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Special2:
    """A function of two arguments: its builder, and in mpmath its value together with
    the sum of |x df/dx| and |y df/dy|."""

    builder: Callable[[Node, Node], Node]
    exact: Callable[[mpf, mpf], tuple[mpf, mpf]]

    def root(self, dtype: DType) -> Node:
        """The simplified graph of the function of the inputs x and y."""
        made = self.builder(ir.input_("x", dtype), ir.input_("y", dtype))
        (found,) = simplify([made])
        verify([found])
        return found

    def native(self, pairs: Pairs, dtype: DType) -> list[float]:
        """The values that the C kernel computes."""
        inputs = (ir.input_("x", dtype), ir.input_("y", dtype))
        output = Output("result", self.root(dtype), dtype)
        program = Program("special", inputs, (), (output,))
        columns = zip(*pairs, strict=True)
        given = [torch.tensor(c, dtype=TO_TORCH[dtype]) for c in columns]
        return run(program, given)[0].tolist()

    def interpreted(self, pairs: Pairs, dtype: DType) -> list[float]:
        """The values that the interpreter computes."""
        root = self.root(dtype)
        return [float(interpret([root], {"x": x, "y": y})[0]) for x, y in pairs]  # type: ignore[arg-type]

    def check(self, found: list[float], pairs: Pairs, dtype: DType, k: float) -> None:
        """Each found value is within k units of the exact one, and infinite where that
        is out of range."""
        for value, pair in zip(found, pairs, strict=True):
            exact, slopes = self.exact(*map(mpf, pair))
            if abs(exact) >= mpf(2) ** MOST[dtype.bits]:
                assert math.isinf(value) and value * exact > 0, pair
                continue
            assert math.isfinite(value), pair
            unit = ulp(exact, dtype) + slopes * eps(dtype)
            assert abs(value - exact) <= k * unit, (pair, value, float(exact))


def held_pairs(pairs: Pairs, dtype: DType) -> list[tuple[float, float]]:
    """The pairs, rounded to the dtype."""
    return [
        (float(rounded(x, dtype)), float(rounded(y, dtype)))  # type: ignore[arg-type]
        for x, y in pairs
    ]


def derivative(function: Callable[[mpf], mpf], x: mpf) -> mpf:
    """x f'(x) by a difference, to as many digits as a bound takes."""
    step = mpf(10) ** -(mpmath.mp.dps // 3)
    return (function(x * (1 + step)) - function(x)) / step
