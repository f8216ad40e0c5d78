"""Diagonals and concatenation: their derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.testing import assert_close

from atentriton.helpers import views
from tests.helpers.applied import leaves
from tests.helpers.rules import BOTH, holds

F32, F64, C128 = torch.float32, torch.float64, torch.complex128
DIAGONALS = [
    ((3,), 0),
    ((2,), -2),
    ((2,), 1),
    ((3, 3), 0),
    ((3, 3), 1),
    ((2, 4), 2),
    ((4, 2), -1),
    ((2, 3), 3),
    ((0,), 0),
]


@BOTH
@pytest.mark.parametrize(("shape", "offset"), DIAGONALS, ids=str)
def test_diagonal(shape: Any, offset: int, dtype: torch.dtype) -> None:
    holds(
        lambda x: x.diag(offset),
        lambda g, x, _: views.diag_backward(g, list(x.shape), offset),
        torch.randn(shape, dtype=dtype),
    )


CONCATENATED = [
    ([(2, 3), (1, 3)], 0),
    ([(2, 1), (2, 0), (2, 3)], -1),
    ([(0,), (2, 2), (0,), (2, 1)], 1),
    ([(2,), (0,), (1,)], -1),
    ([(0,), (0,)], 0),
]


def parts(grad: Tensor, tensors: Any, dim: int) -> list[Tensor | None]:
    sizes, dtypes = [list(t.shape) for t in tensors], [t.dtype for t in tensors]
    return views.cat_tensors_backward(grad, sizes, dtypes, dim)


@BOTH
@pytest.mark.parametrize(("sizes", "dim"), CONCATENATED, ids=str)
def test_concatenation(sizes: Any, dim: int, dtype: torch.dtype) -> None:
    holds(
        lambda *tensors: torch.cat(tensors, dim),
        lambda g, *t: tuple(parts(g, t[:-1], dim)),
        *(torch.randn(s, dtype=dtype) for s in sizes),
    )


@pytest.mark.parametrize(
    "dtypes", [(F64, C128), (C128, F32, F64), (F32, F64), (F64, torch.int64)], ids=str
)
def test_concatenation_of_dtypes(dtypes: tuple[torch.dtype, ...]) -> None:
    tensors = [torch.arange(3).to(d) for d in dtypes]
    able = [t.requires_grad_() for t in tensors if t.dtype is not torch.int64]
    result = torch.cat(tensors)
    grad = torch.randn_like(result)
    found = parts(grad, tensors, 0)
    assert_close(
        [f for f in found if f is not None],
        list(torch.autograd.grad(result, able, grad)),
    )
    assert [f is None for f in found] == [d is torch.int64 for d in dtypes]


@BOTH
def test_tangent_of_concatenation(dtype: torch.dtype) -> None:
    first, second, tangent = torch.randn(3, 2, 2, dtype=dtype)

    def theirs(x: Tensor) -> Tensor:
        return torch.cat((second, x, second), -1)

    found = views.cat_jvp(
        views.Duals((second, first, second), (None, tangent, None)), -1
    )
    assert_close(found, func.jvp(theirs, (first,), (tangent,))[1])
    (given,) = leaves(tangent)
    views.cat_jvp(views.Duals((first, first), (None, given)), 0).sum().abs().backward()
    assert given.grad is not None
