"""Scans: their derivatives, at zeros, ties and infinities, too."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton.helpers import cumulative
from tests.helpers.rules import BOTH, composes, holds, same_gradient

ATEN = torch.ops.aten
INF = math.inf
SCANNED = pytest.mark.parametrize(
    ("shape", "dim"),
    [((2, 5), 1), ((4, 2), -2), ((1, 2), 0), ((2, 0), 1), ((0, 2), -1), ((), 0)],
    ids=str,
)


@BOTH
@SCANNED
def test_cumsum(shape: Any, dim: int, dtype: torch.dtype) -> None:
    holds(
        lambda x: x.cumsum(dim),
        lambda g, *_: cumulative.cumsum_backward(g, dim),
        torch.randn(shape, dtype=dtype),
    )


def product(dim: int) -> tuple[Any, Any, Any]:
    return (
        lambda x: x.cumprod(dim),
        lambda g, x, r: ATEN.cumprod_backward(g, x, dim, r),
        lambda t, x, r: cumulative.cumprod_jvp(t, x, r, dim),
    )


@BOTH
@SCANNED
def test_cumprod(shape: Any, dim: int, dtype: torch.dtype) -> None:
    value, backward, tangent = product(dim)
    holds(value, backward, torch.randn(shape, dtype=dtype), pushforward=tangent)


@BOTH
@pytest.mark.parametrize("zeros", [[0], [3], [1, 2], [0, 1, 2, 3]], ids=str)
def test_cumprod_of_zeros(zeros: list[int], dtype: torch.dtype) -> None:
    x = torch.randn(4, dtype=dtype).index_fill(0, torch.tensor(zeros), 0)
    value, backward, tangent = product(0)
    holds(value, backward, x, pushforward=tangent)
    # The tangent is differentiable again, in both modes.
    composes(value, lambda t, x, r: tangent(t, x, value(x)), x)


def test_tangent_of_a_product_that_underflows() -> None:
    x = torch.tensor([1e-200, 1e-200, 1e200, 1e200], dtype=torch.float64)
    tangent = torch.tensor([0, 0, 1.0, 0], dtype=torch.float64)
    found = cumulative.cumprod_jvp(tangent, x, x.cumprod(0), 0)
    assert_close(found, torch.zeros_like(x))
    x[1] = 1
    found = cumulative.cumprod_jvp(tangent, x, x.cumprod(0), 0)
    expected = torch.tensor([0, 0, 1e-200, 1], dtype=torch.float64)
    assert_close(found, expected, rtol=1e-12, atol=0)


def log_sum(dim: int) -> tuple[Any, Any]:
    return (
        lambda x: x.logcumsumexp(dim),
        lambda g, x, r: cumulative.logcumsumexp_backward(g, x, r, dim),
    )


@BOTH
@SCANNED
def test_logcumsumexp(shape: Any, dim: int, dtype: torch.dtype) -> None:
    value, backward = log_sum(dim)
    holds(value, backward, torch.randn(shape, dtype=dtype))


@BOTH
def test_logcumsumexp_of_a_gradient_of_zeros(dtype: torch.dtype) -> None:
    """It is linear in the gradient there, where a logarithm of it would be infinite."""
    value, backward = log_sum(0)
    x = torch.randn(3, dtype=dtype)
    grad = torch.zeros_like(x, requires_grad=True)
    tangent = torch.randn_like(x)
    (found,) = torch.autograd.grad(backward(grad, x, value(x)), grad, tangent)
    assert_close(found, torch.func.jvp(value, (x,), (tangent,))[1])


@pytest.mark.parametrize("scale", [1, 30, 800])
def test_logcumsumexp_of_large_numbers(scale: float) -> None:
    x, grad = torch.randn(2, 20, dtype=torch.float64)
    x = x * scale
    found = log_sum(0)[1](grad, x, x.logcumsumexp(0))
    exps = [mpmath.exp(mpmath.mpf(v)) for v in x.tolist()]
    expected = [
        float(sum(g * exps[k] / sum(exps[: j + 1]) for j, g in listed(grad, k)))
        for k in range(20)
    ]
    assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-13
    )


def listed(grad: Tensor, start: int) -> list[tuple[int, float]]:
    return list(enumerate(grad.tolist()))[start:]


@BOTH
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-INF, -INF, 0, 0], [1 + 1 / 2, 1 / 2, 3 / 2, 1 / 2]),
        ([-INF, -INF, -INF], [1 + 1 / 2 + 1 / 3, 1 / 2 + 1 / 3, 1 / 3]),
        ([0, INF, 1, INF, -INF], [1, 2 + 1 / 2 + 1 / 2, 0, 1 / 2 + 1 / 2, 0]),
        ([-INF, INF, INF], [1, 1 + 1 / 2, 1 / 2]),
    ],
)
def test_logcumsumexp_at_infinities(
    values: list[float], expected: list[float], dtype: torch.dtype
) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    result = x.logcumsumexp(0).to(dtype)
    x = x.to(dtype).requires_grad_()
    grad = torch.ones_like(x, requires_grad=True)
    found = log_sum(0)[1](grad, x, result)
    assert_close(found, torch.tensor(expected, dtype=dtype))
    again = torch.autograd.grad(found.real.sum(), (grad, x))
    assert all(a.isfinite().all() for a in again)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@SCANNED
def test_extrema(name: str, shape: Any, dim: int) -> None:
    def value(x: Tensor) -> Any:
        return getattr(torch, name)(x, dim)

    def backward(grad: Tensor, x: Tensor, _: Tensor, indices: Tensor) -> Tensor:
        return cumulative.cummaxmin_backward(grad, x, indices, dim)

    holds(
        value,
        backward,
        torch.randn(shape).double(),
        pushforward=lambda t, x, _, indices: t.gather(dim, indices),
    )
    same_gradient(value, backward, torch.ones(shape, dtype=torch.float64))
