"""How far a computed value is from the exact one, in units of what is to be expected.

The unit is ulp(f) + |x f'| eps: a function whose value hangs on the last bit of its
argument cannot be had better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import mpmath
import torch
from mpmath import mpf

from atentriton.specs import TO_TORCH
from fuser import ir
from fuser.dtypes import DType
from fuser.interpret import interpret
from fuser.ir import Node
from fuser.pipeline import default_compiler
from fuser.program import Output, Program
from fuser.rounding import rounded
from fuser.simplify import simplify
from fuser.specs import TensorSpec
from fuser.verify import verify
from tests.fuser.oracles import deriver, expanded
from tests.native import run

DIGITS = 40
BITS = {32: 24, 64: 53}
LEAST = {32: -149, 64: -1074}
MOST = {32: 128, 64: 1024}


@dataclass(frozen=True, slots=True)
class Special:
    """A function of one argument: its builder, and its value and slope in mpmath."""

    builder: Callable[[Node], Node]
    value: Callable[[mpf], mpf]
    slope: Callable[[mpf], mpf]

    def root(self, dtype: DType) -> Node:
        """The simplified graph of the function of the input x."""
        (found,) = simplify([self.builder(ir.input_("x", dtype))])
        verify([found])
        return found

    def native(self, values: Iterable[float], dtype: DType) -> list[float]:
        """The values that the C kernel computes."""
        root = self.root(dtype)
        x = ir.input_("x", dtype)
        program = Program("special", (x,), (), (Output("result", root, dtype),))
        given = torch.tensor(list(values), dtype=TO_TORCH[dtype])
        return run(program, [given])[0].tolist()

    def interpreted(self, values: Iterable[float], dtype: DType) -> list[float]:
        """The values that the interpreter computes."""
        root = self.root(dtype)
        return [float(interpret([root], {"x": v})[0]) for v in values]  # type: ignore[arg-type]

    def check(
        self, found: Iterable[float], values: Iterable[float], dtype: DType, k: float
    ) -> None:
        """Each found value is within k units of the exact one, and infinite where that
        is out of range."""
        with mpmath.workdps(DIGITS):
            for value, x in zip(found, values, strict=True):
                error = self.error(value, mpf(x), dtype)
                assert error <= k, (x, value, error)

    def error(self, found: float, x: mpf, dtype: DType) -> float:
        """The error in units; 0 for an infinity that stands for too large a value."""
        exact = self.value(x)
        if abs(exact) >= mpf(2) ** MOST[dtype.bits]:
            return 0.0 if math.isinf(found) and found * exact > 0 else math.inf
        if not math.isfinite(found):
            return math.inf
        unit = ulp(exact, dtype) + abs(x * self.slope(x)) * eps(dtype)
        return float(abs(found - exact) / unit)


def eps(dtype: DType) -> mpf:
    """The largest relative error of rounding to nearest."""
    return mpf(2) ** -BITS[dtype.bits]


def ulp(value: mpf, dtype: DType) -> mpf:
    """The distance of the dtype's numbers at that value."""
    exponent = mpmath.frexp(value)[1] if value else LEAST[dtype.bits]
    return mpf(2) ** max(exponent - BITS[dtype.bits], LEAST[dtype.bits])


def held(values: Iterable[float], dtype: DType) -> list[float]:
    """The finite numbers nearest to the values in the dtype, each once, in order."""
    found = {float(rounded(v, dtype)) for v in values}  # type: ignore[arg-type]
    return sorted(v for v in found if math.isfinite(v))


def derivatives(name: str, values: Iterable[float], dtype: DType) -> list[list[float]]:
    """The first and the second derivative of an operator of one argument, by its entry
    in derivatives.yaml and by the interpreter."""
    program = default_compiler().program(name, [TensorSpec(dtype)])
    (x,), (root,) = program.inputs, program.roots
    found: list[Node] = []
    for _ in range(2):
        (slope,) = deriver().vjp([root], [ir.const(1, dtype)], [x])
        assert slope is not None
        root = slope
        found.append(root)
    graph = expanded(found)
    lines = [interpret(graph, {str(x.attrs): v}) for v in values]
    return [[float(v) for v in column] for column in zip(*lines, strict=True)]  # type: ignore[arg-type]
