"""Random graphs, and odd values for them, for the tests of what works on any graph."""

from __future__ import annotations

import cProfile
import math
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from fuser import dtypes, ir
from fuser.build import primitive
from fuser.dtypes import DType
from fuser.ir import Node, Number
from fuser.optable import Primitive
from fuser.rounding import rounded

TINY = {32: 1e-45, 64: 5e-324}
LEAST_NORMAL = {32: 2.0**-126, 64: 2.0**-1022}
LARGEST = {32: 3.4028234663852886e38, 64: 1.7976931348623157e308}


def calls(function: Callable[[], object]) -> int:
    """How many calls of Python's it makes: work that no load of the machine changes."""
    profile = cProfile.Profile()
    profile.runcall(function)
    return sum(entry.callcount for entry in profile.getstats())


def odd(dtype: DType) -> list[Number]:
    """The values that break rules: NaN, infinities, zeros, the ends of the range."""
    match dtype.kind:
        case "bool":
            return [False, True]
        case "int":
            top = 2 ** (dtype.bits - dtype.signed)
            low = -top if dtype.signed else 0
            return sorted({low, low + 1, 0, 1, 2, 3, 7, top // 2, top - 2, top - 1})
        case "float":
            bits = max(dtype.bits, 32)
            ends = [TINY[bits], LEAST_NORMAL[bits], LARGEST[bits], 0.0, math.inf]
            inside = [1.0, 0.5, 2.0, 1.5, 0.1, 3.7, 1e-20, 1e20]
            return [math.nan, *(s * v for v in ends + inside for s in (1.0, -1.0))]
        case _:
            parts = [math.nan, 0.0, -0.0, 1.0, -2.5, math.inf]
            return [complex(a, b) for a in parts for b in parts]


def same(a: Number, b: Number) -> bool:
    """Equal bit for bit, but that one NaN is as good as another."""
    return repr(a) == repr(b)


def all_same(a: Sequence[Number], b: Sequence[Number]) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


@st.composite
def values_of(draw: Callable[..., Any], dtype: DType) -> Number:
    """A value that the dtype holds, odd or ordinary."""
    ordinary = {
        "bool": st.booleans(),
        "int": st.integers(-300, 300),
        "float": st.floats(-10, 10, width=32),
        "complex": st.complex_numbers(max_magnitude=10, allow_nan=False),
    }
    value = draw(st.one_of(st.sampled_from(odd(dtype)), ordinary[dtype.kind]))
    return rounded(value, dtype)


@st.composite
def graphs(
    draw: Callable[..., Any],
    leaves: Sequence[Node],
    rows: Sequence[Primitive],
    size: int = 12,
    casts: Sequence[DType] = (),
) -> Node:
    """A graph of up to `size` rows over the leaves, constants and conversions to the
    dtypes `casts`; its root is the last node."""
    nodes = list(leaves)
    for _ in range(draw(st.integers(1, size))):
        row = draw(st.sampled_from(rows))
        fitting = [n for n in nodes if n.dtype.kind in row.kinds]
        if not fitting:
            continue
        first = draw(st.sampled_from(fitting))
        alike = [n for n in fitting if n.dtype == first.dtype]
        alike.append(ir.const(draw(values_of(first.dtype)), first.dtype))
        args = [first, *(draw(st.sampled_from(alike)) for _ in range(row.arity - 1))]
        if row.rule == "select":
            bools = [n for n in nodes if n.dtype == dtypes.bool_]
            args[0] = draw(st.sampled_from([*bools, primitive("eq", args[1], args[2])]))
        if row.name in ("idiv", "imod"):  # nothing is divided by zero
            args[1] = primitive("bitwise_or", args[1], ir.const(1, first.dtype))
        nodes.append(primitive(row.name, *args))
        if casts and draw(st.booleans()):
            given = draw(st.sampled_from(nodes))
            target = draw(st.sampled_from(casts))
            if given.op != "const" and not (target.kind == "bool" != given.dtype.kind):
                rounded = ir.cast(given, target)
                nodes.append(ir.cast(rounded, target.opmath))
    return nodes[-1]
