"""The interpreter rounds each step as its dtype does."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser import dtypes, ir
from fuser.build import primitive
from fuser.dtypes import DTYPES, DType
from fuser.interpret import interpret
from fuser.ir import CallTarget, Loop, Node, Number
from fuser.optable import PRIMITIVES
from tests.fuser.graphs import graphs, values_of
from tests.fuser.oracles import in_torch

F32, F64, I64 = dtypes.float32, dtypes.float64, dtypes.int64
X, I = ir.input_("x", F32), ir.input_("i", dtypes.int32)  # noqa: E741
C, U = ir.input_("c", dtypes.bool_), ir.input_("u", dtypes.uint8)
# The sign of a NaN, which the last two look at, is nobody's concern.
INEXACT = {"pow", "idiv", "imod", "complex", "signbit", "copysign"}
EXACT = [
    row
    for row in PRIMITIVES.values()
    if row.promotes != "int_to_float" or row.name in ("div", "sqrt")
    if row.name not in INEXACT
]


@given(st.data())
@settings(max_examples=100)
def test_exact_rows_are_torchs_bit_for_bit(data: st.DataObject) -> None:
    """Floats are computed in double and rounded, which for these rows is the same."""
    root = data.draw(graphs([X, I, C, U], EXACT, casts=[F32, dtypes.float16]))
    names = {str(n.attrs): data.draw(values_of(n.dtype)) for n in (X, I, C, U)}
    tensors = {
        str(n.attrs): torch.tensor(names[str(n.attrs)], dtype=known(n.dtype))
        for n in (X, I, C, U)
    }
    (found,) = interpret([root], names)
    expected = in_torch([root], tensors)[0].item()
    assert repr(found) == repr(expected) or found == expected == 0


def known(dtype: DType) -> torch.dtype:
    return getattr(torch, dtype.name)


@pytest.mark.parametrize(
    "source", [d for d in DTYPES.values() if not d.is_half], ids=str
)
def test_casts_are_torchs(source: DType) -> None:
    values: dict[str, list[Number]] = {
        "bool": [True, False],
        "int": [0, 1, 100, 77],
        "float": [0.1, -0.0, -2.75, 100.5, 1e-9, math.inf, math.nan],
        "complex": [0.1 + 2j, -3.5 - 1j],
    }
    node = ir.input_("v", source)
    for target in DTYPES.values():
        for value in values[source.kind]:
            number = value.real if isinstance(value, complex) else value
            if target.kind == "int" and not (0 <= number < 127):
                continue  # what PyTorch gives depends on the processor
            (found,) = interpret([ir.cast(node, target)], {"v": value})
            tensor = torch.tensor(value, dtype=known(source))
            if source.is_complex and not target.is_complex:
                tensor = tensor.real
            expected = tensor.to(known(target)).item()
            if target.kind == "bool":
                expected = bool(value)
            assert repr(found) == repr(expected), (target, value)


def test_loops_stop_for_the_element() -> None:
    t, bound = ir.param(0, I64), ir.param(1, I64)
    step = (primitive("add", t, ir.const(3, I64)),)
    n = ir.input_("n", I64)
    (last,) = ir.iterate(
        [ir.const(0, I64)], [n], Loop(step, primitive("lt", t, bound), 5)
    )
    assert [interpret([last], {"n": v})[0] for v in (-1, 1, 7, 100)] == [0, 3, 9, 15]


def test_integers_wrap_and_floats_overflow() -> None:
    assert interpret([primitive("add", I, I)], {"i": 2**31 - 1}) == (-2,)
    assert interpret([primitive("mul", X, X)], {"x": 1e30}) == (math.inf,)
    assert interpret([primitive("sinh", X)], {"x": -1e30}) == (-math.inf,)


def test_what_it_refuses() -> None:
    call = ir.call(CallTarget("erfinv", (None,)), F32, (X,))
    with pytest.raises(ValueError, match="erfinv must be expanded first"):
        interpret([call], {"x": 0.5})
    with pytest.raises(KeyError, match="x"):
        interpret([X], {})
    with pytest.raises(ZeroDivisionError):
        interpret([primitive("idiv", I, I)], {"i": 0})


def test_a_long_chain() -> None:
    node: Node = X
    for _ in range(20_000):
        node = primitive("neg", node)
    assert interpret([node], {"x": 0.1}) == interpret([X], {"x": 0.1})
