"""Reductions: their derivatives, at ties, zeros and infinities, too."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton.helpers import reductions
from tests.helpers.applied import leaves
from tests.helpers.rules import BOTH, composes, holds, same_gradient

ATEN = torch.ops.aten
INF, NAN = math.inf, math.nan
KEEPDIM = pytest.mark.parametrize("keepdim", [False, True], ids=["", "keepdim"])
DIMS: list[tuple[tuple[int, ...], list[int] | None]] = [
    ((2, 3, 2), [1]),
    ((2, 3, 2), [-1, 0]),
    ((2, 3), []),
    ((2, 3), None),
    ((2, 0), [1]),
    ((0, 2), [1]),
    ((), [0]),
    ((), [-1]),
    ((), []),
]
REDUCED = pytest.mark.parametrize(("shape", "dim"), DIMS, ids=str)


@BOTH
@KEEPDIM
@REDUCED
def test_sums(shape: Any, dim: Any, keepdim: bool, dtype: torch.dtype) -> None:
    holds(
        lambda x: x.sum(dim, keepdim),
        lambda g, x, _: reductions.sum_backward(g, list(x.shape), dim, keepdim),
        torch.randn(shape, dtype=dtype),
    )


@BOTH
@REDUCED
def test_means(shape: Any, dim: Any, dtype: torch.dtype) -> None:
    def backward(grad: Tensor, x: Tensor, _: Tensor) -> Tensor:
        spread = reductions.sum_backward(grad, list(x.shape), dim, False)
        return spread / reductions._safe_size(list(x.shape), dim)

    value = torch.randn(shape, dtype=dtype)
    if value.numel():
        holds(lambda x: x.mean(dim), backward, value)


POWERS = [0, 1, 2, INF, -INF, 0.5, 1.5, 2.5, 3, 4, -1]


@BOTH
@pytest.mark.parametrize("p", POWERS)
def test_distance(p: float, dtype: torch.dtype) -> None:
    def backward(grad: Tensor, a: Tensor, b: Tensor, norm: Tensor) -> Any:
        found = reductions.norm_backward(grad, a - b, p, norm)
        return found, -found

    a, b = torch.randn(2, 2, 3, dtype=dtype)
    if p == 0:  # torch's own backward fails
        assert not torch.stack(
            backward(torch.ones(()), a, b, torch.dist(a, b, 0))
        ).any()
        return
    holds(lambda a, b: torch.dist(a, b, p), backward, a, b)
    composes(lambda a, b: torch.dist(a, b, p), backward, a[0, 0], b[0, 0])


@BOTH
@KEEPDIM
@pytest.mark.parametrize("p", [None, *POWERS])
def test_norm(p: float | None, keepdim: bool, dtype: torch.dtype) -> None:
    for shape, dim in (((2, 3), [-1]), ((2, 3), [0, 1]), ((), [0]), ((), [])):
        same_gradient(
            lambda x, d=dim: ATEN.norm.ScalarOpt_dim(x, p, d, keepdim),
            lambda g, x, r, d=dim: reductions.norm_backward(g, x, p, r, d, keepdim),
            torch.randn(shape, dtype=dtype),
        )


@BOTH
@pytest.mark.parametrize("p", POWERS)
def test_norm_at_zeros(p: float, dtype: torch.dtype) -> None:
    """Torch's gradient; and no NaN in what is made of it."""
    x = torch.tensor([0, 3, -4], dtype=dtype)
    for value in (x, torch.zeros(3, dtype=dtype)):
        same_gradient(
            lambda x: ATEN.norm.Scalar(x, p),
            lambda g, x, r: reductions.norm_backward(g, x, p, r),
            value,
        )
        (given,) = leaves(value)
        norm = value.abs().norm(p)
        first = reductions.norm_backward(torch.ones(()).double(), given, p, norm)
        if first.requires_grad:
            (second,) = torch.autograd.grad(first.abs().square().sum(), given)
            assert second.isfinite().all()


@BOTH
@pytest.mark.parametrize("p", [2, 3, 3.5, 4])
def test_second_derivative_of_norm_beside_zeros(p: float, dtype: torch.dtype) -> None:
    composes(
        lambda x: torch.linalg.vector_norm(x, p),
        lambda g, x, r: reductions.norm_backward(g, x, p, r),
        torch.tensor([0, 3, -4], dtype=dtype),
    )


@BOTH
@KEEPDIM
@pytest.mark.parametrize(
    ("shape", "dim"), [d for d in DIMS if d[1] or not d[0]], ids=str
)
def test_logsumexp(shape: Any, dim: Any, keepdim: bool, dtype: torch.dtype) -> None:
    holds(
        lambda x: x.logsumexp(dim, keepdim),
        lambda g, x, r: reductions.logsumexp_backward(g, x, r, dim, keepdim),
        torch.randn(shape, dtype=dtype),
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-INF, -INF], [0.5, 0.5]),
        ([INF, 1, INF, -INF], [0.5, 0, 0.5, 0]),
        ([-INF, 0, 0], [0, 0.5, 0.5]),
        ([1000, 1000], [0.5, 0.5]),
        ([-1000, -1000], [0.5, 0.5]),
    ],
)
def test_logsumexp_at_infinities(values: list[float], expected: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    grad = torch.ones((), dtype=torch.float64, requires_grad=True)
    found = reductions.logsumexp_backward(grad, x, x.logsumexp(0), 0, False)
    assert_close(found, torch.tensor(expected, dtype=torch.float64))
    (again,) = torch.autograd.grad(found.sum(), grad, retain_graph=True)
    assert_close(again, torch.ones_like(grad))
    low = torch.complex(x.detach(), torch.zeros_like(x))
    if values[0] != INF:  # torch's own result is NaN there
        result = low.logsumexp(0)
        found = reductions.logsumexp_backward(grad, low, result, 0, False)
        assert_close(found.real, torch.tensor(expected, dtype=torch.float64))


CHOOSING = ["max", "min", "median", "nanmedian"]


@pytest.mark.parametrize("name", CHOOSING)
def test_choice_of_all(name: str) -> None:
    value = getattr(torch, name)
    tangent = reductions.evenly_read_jvp
    for x in (torch.randn(2, 3).double(), torch.randn(()).double()):
        holds(value, reductions.evenly_distribute_backward, x, pushforward=tangent)
    for values in ([2, 2, 1, 1, 2, 1.0], [1, NAN, 2, NAN], [NAN, NAN], [0, -0.0]):
        x = torch.tensor(values, dtype=torch.float64)
        same_gradient(value, reductions.evenly_distribute_backward, x)


def test_tangent_of_ties() -> None:
    tangent, x = torch.tensor([1, 2, 6.0]), torch.tensor([3, 1, 3.0])
    assert reductions.evenly_read_jvp(tangent, x, x.max()) == 3.5
    assert reductions.evenly_read_jvp(tangent, x * NAN, x.max() * NAN) == 3


@KEEPDIM
@pytest.mark.parametrize("name", [*CHOOSING, "kthvalue", "mode"])
def test_choice_along_a_dimension(name: str, keepdim: bool) -> None:
    leading = (2,) if name == "kthvalue" else ()
    for shape, dim in (((2, 3), 1), ((3, 2), -2), ((), 0), ((), -1)):
        own = () if leading and not shape else leading
        first = (1,) if leading and not own else own

        def value(x: Tensor, d: int = dim, first: Any = first) -> Any:
            return getattr(torch, name)(x, *first, d, keepdim)

        def backward(g: Tensor, x: Tensor, _: Any, i: Tensor, d: int = dim) -> Tensor:
            return ATEN.value_selecting_reduction_backward(g, d, i, x.shape, keepdim)

        def tangent(t: Tensor, x: Any, _: Any, i: Tensor, d: int = dim) -> Tensor:
            return reductions.gather_with_keepdimed_indices(t, d, i, keepdim)

        holds(value, backward, torch.randn(shape).double(), pushforward=tangent)
        ties = torch.ones(shape, dtype=torch.float64)
        same_gradient(value, backward, ties)


def extremum(name: str, dim: Any, keepdim: bool) -> tuple[Any, Any]:
    def backward(grad: Tensor, x: Tensor, result: Tensor) -> Tensor:
        grad, result = (
            reductions.restore_reduced_dims(t, dim, keepdim) for t in (grad, result)
        )
        found = reductions.scale_grad_by_count(grad, result == x, dim)
        return found.sum_to_size(x.shape)

    return lambda x: getattr(torch, name)(x, dim, keepdim), backward


@KEEPDIM
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extrema(name: str, keepdim: bool) -> None:
    for shape, dim in DIMS:
        if dim is None or shape in ((2, 0), (0, 2)):
            continue
        value, backward = extremum(name, dim, keepdim)
        holds(value, backward, torch.randn(shape).double())
    value, backward = extremum(name, -1, keepdim)
    same_gradient(value, backward, torch.tensor([[2, 1, 2, 1.0], [0, 0, 0, 0]]))
    nan = torch.tensor([[NAN, 1], [1, 1]])
    same_gradient(value, backward, nan, equal_nan=True)
    empty = torch.randn(0, 2)
    same_gradient(value, backward, empty)
