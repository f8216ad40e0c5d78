"""Every row of the op table as a C kernel, against PyTorch's own function.

Each runs for every dtype it takes, on values of its domain and on all combinations of
edges: NaN, infinities, zeros of both signs, the smallest and the largest numbers.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from atentriton.specs import TO_TORCH
from fuser import dtypes
from fuser.dtypes import DType
from fuser.optable import Primitive
from tests import rows
from tests.native import run

ROWS = pytest.mark.parametrize(
    ("row", "dtype"), rows.CASES, ids=map(rows.name, rows.CASES)
)


def edges(dtype: DType) -> list[float | int | bool]:
    if dtype.kind == "bool":
        return [False, True]
    if dtype.kind == "int":
        info = torch.iinfo(TO_TORCH[dtype])
        negative = [info.min, info.min + 1, -7, -2, -1] if dtype.signed else []
        return [*negative, 0, 1, 2, 3, 10, info.max - 1, info.max]
    info = torch.finfo(TO_TORCH[dtype])
    tiny = info.smallest_normal
    positive = [0.0, tiny, tiny / 4, 7e-3, 0.5, 1 - info.eps, 1.0, 1.5, 2.5, 3.0, 20.0]
    positive += [100.0, 1000.0, info.max, math.inf]
    return [math.nan, *positive, *(-x for x in positive)]


def combinations(row: Primitive, dtype: DType) -> list[Tensor]:
    """Every edge with every other, less what PyTorch itself cannot take."""
    types = [dtype] * row.arity
    if row.rule == "select":
        types[0] = dtypes.bool_
    table = zip(*itertools.product(*map(edges, types)), strict=True)
    tensors = [
        torch.tensor(column, dtype=TO_TORCH[t])
        for column, t in zip(table, types, strict=True)
    ]
    if row.name in ("idiv", "imod"):  # 0 is an error, and the least by -1 a signal
        keep = tensors[1] != 0
        if dtype.signed:
            least = torch.iinfo(tensors[0].dtype).min
            keep &= (tensors[0] != least) | (tensors[1] != -1)
        return [t[keep] for t in tensors]
    if row.name == "fmod":  # of a quotient that overflows, PyTorch makes a NaN
        a, b = tensors
        keep = ~(a / b).isinf() | a.isinf() | (b == 0)
        return [t[keep] for t in tensors]
    return tensors


def reference(row: Primitive, dtype: DType, tensors: list[Tensor]) -> Tensor:
    """PyTorch's function, of floats in the next wider type."""
    if row.name == "idiv":
        return torch.div(*tensors, rounding_mode="trunc")
    if dtype.is_floating and dtype.bits < 64:
        wide = torch.float64 if dtype.bits == 32 else torch.float32
        tensors = [t.to(wide) if t.is_floating_point() else t for t in tensors]
    return getattr(torch, row.torch)(*tensors)


def check(row: Primitive, dtype: DType, tensors: list[Tensor]) -> None:
    (got,) = run(rows.program(row, dtype), tensors)
    want = reference(row, dtype, tensors).to(got.dtype)
    if not got.is_floating_point():
        assert torch.equal(got, want)
        return
    info = torch.finfo(got.dtype)
    ulps = 1 if dtype.is_half else 5
    torch.testing.assert_close(
        got,
        want,
        rtol=ulps * info.eps,
        # Below the smallest normal number errors do not shrink any further.
        atol=4 * info.smallest_normal * info.eps,
        equal_nan=True,
    )
    if row.name in ("maximum", "minimum"):
        # PyTorch takes either of two equal zeros, by dtype and length; we the first.
        want = torch.where(tensors[0] == tensors[1], tensors[0], want)
    zero = want == 0
    assert torch.equal(got[zero].signbit(), want[zero].signbit())


@ROWS
def test_in_its_domain(row: Primitive, dtype: DType) -> None:
    for count in (1, 7, 1023, 5000):
        tensors = rows.domain(row, dtype, count)
        if row.rule == "select":
            tensors[0] = tensors[0] > 0
        check(row, dtype, tensors)


@ROWS
def test_on_the_edges(row: Primitive, dtype: DType) -> None:
    check(row, dtype, combinations(row, dtype))
