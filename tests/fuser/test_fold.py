"""Constants fold to what the interpreter, and so every target, would compute."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from fuser import dtypes, ir
from fuser.build import check, result_dtype
from fuser.dtypes import DTYPES, DType
from fuser.fold import fold_number
from fuser.interpret import interpret
from fuser.optable import PRIMITIVES, Primitive
from fuser.rounding import Number, rounded

REALS = [0.0, -0.0, 1.0, -1.0, 0.1, -2.5, 3.0, 700.0, -700.0, 1e-320, 1e300, math.nan]
VALUES: dict[str, list[Number]] = {
    "bool": [False, True],
    "int": [0, 1, -1, 2, 7, -8, 127, -128, 255],
    "float": [*REALS, math.inf, -math.inf],
}
COMPUTED = [d for d in DTYPES.values() if not d.is_half and not d.is_complex]


def same(a: Number, b: Number) -> bool:
    """Equal bit for bit, but that one NaN is as good as another."""
    return repr(a) == repr(b)


@pytest.mark.parametrize("row", PRIMITIVES.values(), ids=lambda r: r.name)
def test_folding_is_interpreting(row: Primitive) -> None:
    for dtype in (d for d in COMPUTED if d.kind in row.kinds and row.name != "complex"):
        kinds = [dtype] * row.arity
        if row.rule == "select":
            kinds[0] = dtypes.bool_
        inputs = [ir.input_(n, k) for n, k in zip("abc", kinds, strict=False)]
        check(row, tuple(inputs))
        opened = ir.make(row.name, result_dtype(row, dtype), inputs)
        for values in itertools.product(*(VALUES[k.kind] for k in kinds)):
            if row.name in ("idiv", "imod") and rounded(values[1], dtype) == 0:
                continue
            closed = ir.rebuild(opened, tuple(map(ir.const, values, kinds)))
            folded = fold_number(closed)
            assert folded.op == "const"
            assert folded.dtype == opened.dtype
            found = rounded(ir.value_of(folded), folded.dtype)
            (expected,) = interpret([opened], dict(zip("abc", values, strict=False)))
            assert same(found, expected), (dtype, values)
            assert same(interpret([closed], {})[0], expected), (dtype, values)


def test_complex_constants_are_left_to_be_folded_by_their_parts() -> None:
    z = ir.const(1 + 2j, dtypes.complex64)
    for name in ("mul", "abs", "exp", "real"):
        row = PRIMITIVES[name]
        args = (z,) * row.arity
        node = ir.make(name, result_dtype(row, z.dtype), args)
        assert fold_number(node) is node


def test_the_conjugate_of_a_constant_is_a_constant() -> None:
    z = ir.const(1 + 2j, dtypes.complex64)
    folded = fold_number(ir.make("conj", z.dtype, (z,)))
    assert folded.op == "const" and ir.value_of(folded) == 1 - 2j


def test_constants_are_rounded_before_they_are_used() -> None:
    tenth, fifth = ir.const(0.1, dtypes.float32), ir.const(0.2, dtypes.float32)
    node = ir.make("add", dtypes.float32, (tenth, fifth))
    value = ir.value_of(fold_number(node))
    assert value == (torch.tensor(0.1) + torch.tensor(0.2)).item()


def test_a_division_by_zero_is_left_to_raise() -> None:
    one, zero = ir.const(1, dtypes.int64), ir.const(0, dtypes.int64)
    for name in ("idiv", "imod"):
        node = ir.make(name, dtypes.int64, (one, zero))
        assert fold_number(node) is node


def test_complex_constants_are_left_to_their_parts() -> None:
    one = ir.const(1 + 2j, dtypes.complex128)
    node = ir.make("mul", dtypes.complex128, (one, one))
    assert fold_number(node) is node
    part = ir.const(1.0, dtypes.float64)
    node = ir.make("complex", dtypes.complex128, (part, part))
    assert fold_number(node) is node


def test_what_is_not_constant_stays() -> None:
    x = ir.input_("x", dtypes.float32)
    node = ir.make("add", dtypes.float32, (x, ir.const(1, dtypes.float32)))
    assert fold_number(node) is node
    assert fold_number(x) is x


# The rows whose value at odd places Python's own functions do not give.
@pytest.mark.parametrize("row", PRIMITIVES.values(), ids=lambda r: r.name)
def test_python_column_is_torchs_at_odd_places(row: Primitive) -> None:
    if not row.kinds & {"float"} or row.rule == "select":
        pytest.skip("no float row")
    values = [*VALUES["float"], 5e-324, 0.5, 1.5, 2.0, -2.0, 1e18]
    grid = torch.tensor(list(itertools.product(values, repeat=row.arity))).double()
    # NaN has no sign that counts.
    if row.name in ("copysign", "signbit"):
        grid = grid[~grid.isnan().any(1)]
    expected = getattr(torch, row.torch)(*grid.T)
    made = result_dtype(row, dtypes.float64)
    found = [rounded(row.python(*line), made) for line in grid.tolist()]
    for line, a, b in zip(grid.tolist(), found, expected.tolist(), strict=True):
        if isinstance(b, float) and math.isfinite(b) and b != 0:
            assert a == pytest.approx(b, rel=1e-12, abs=5e-324), line
        elif row.name in ("maximum", "minimum", "fmax", "fmin") and a == 0:
            assert b == 0, line  # of 0 and -0 either may be had
        else:
            assert same(a, b), line


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_rounding_is_torchs(dtype: DType) -> None:
    known = getattr(torch, dtype.name)
    floats = torch.cat([torch.randn(500).double(), torch.randn(500).double() * 1e5])
    floats = torch.cat([floats, torch.logspace(-50, 50, 400, dtype=torch.float64)])
    if dtype.kind == "int":
        floats = floats.clamp(-(2.0**62), 2.0**62).long().double()
        integers = floats.long()
        for value, expected in zip(integers.tolist(), integers.to(known), strict=True):
            assert rounded(value, dtype) == expected.item()
        return
    for value, expected in zip(floats.tolist(), floats.to(known), strict=True):
        assert rounded(value, dtype) == expected.item()
