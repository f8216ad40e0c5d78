"""Means, variances, standard deviations and norms: derivatives beside torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton.helpers import moments, norms
from tests.helpers.rules import BOTH, holds, same_gradient

KEEPDIM = pytest.mark.parametrize("keepdim", [False, True], ids=["", "keepdim"])
REDUCED = pytest.mark.parametrize(
    ("shape", "dim"), [((2, 3), [1]), ((2, 3), None), ((2, 3, 2), [-1, 0])], ids=str
)


@BOTH
@REDUCED
def test_means(shape: Any, dim: Any, dtype: torch.dtype) -> None:
    holds(
        lambda x: x.mean(dim),
        lambda g, x, _: moments.mean_backward(g, x.shape, dim, x.numel(), False),
        torch.randn(shape, dtype=dtype),
    )


@BOTH
@KEEPDIM
@REDUCED
@pytest.mark.parametrize("correction", [None, 0, 1.5])
def test_variances(
    shape: Any, dim: Any, keepdim: bool, correction: Any, dtype: torch.dtype
) -> None:
    ways = {"correction": 1 if correction is None else correction, "keepdim": keepdim}
    x = torch.randn(shape, dtype=dtype)
    holds(
        lambda x: x.var(dim, **ways),
        lambda g, x, _: moments.var_backward(g, x, dim, correction, keepdim),
        x,
    )
    holds(
        lambda x: x.std(dim, **ways),
        lambda g, x, r: moments.std_backward(r, g, x, dim, correction, keepdim),
        x,
    )


@pytest.mark.parametrize("which", [(True, True), (True, False), (False, True)], ids=str)
def test_both_at_once(which: tuple[bool, bool]) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    grads = [torch.randn(3).double() if w else None for w in which]
    for function, backward, extra in (
        (torch.var_mean, moments.var_mean_backward, 0),
        (torch.std_mean, moments.std_mean_backward, 1),
    ):
        results = function(x, dim=1)
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
        outputs, weights = zip(*pairs, strict=True)
        (expected,) = torch.autograd.grad(outputs, x, weights)
        given = (x.detach(), *(r.detach() for r in results[:extra]))
        found = backward(*grads, *given, [1], None, False)
        torch.testing.assert_close(found, expected)
    assert moments.var_mean_backward(None, None, x, [1], None, False) is None


def test_the_deviation_of_what_is_constant_has_no_gradient() -> None:
    same_gradient(
        lambda x: x.std(),
        lambda g, x, r: moments.std_backward(r, g, x, None, None, False),
        torch.ones(3, dtype=torch.float64),
    )


@BOTH
@KEEPDIM
@pytest.mark.parametrize("p", [1, 2, 3, torch.inf, None])
def test_norms(p: Any, keepdim: bool, dtype: torch.dtype) -> None:
    order = 2 if p is None else p
    holds(
        lambda x: torch.linalg.vector_norm(x, order, [1], keepdim),
        lambda g, x, r: norms.norm_backward(g, x, p, r, [1], keepdim),
        torch.randn(2, 3, dtype=dtype),
        pushforward=lambda t, x, r: norms.norm_jvp(x, t, p, r, [1], keepdim),
    )


@BOTH
@pytest.mark.parametrize(("p", "dim"), [(2, 0), (1, -1), (3, 1)])
def test_renorm(p: float, dim: int, dtype: torch.dtype) -> None:
    x = torch.randn(3, 4, dtype=dtype) * torch.tensor([0.01, 1, 5, 20])
    holds(
        lambda x: torch.renorm(x, p, dim, 1.5),
        lambda g, x, _: norms.renorm_backward(g, x, p, dim, 1.5),
        x,
        pushforward=lambda t, x, _: norms.renorm_jvp(x, t, p, dim, 1.5),
    )


def test_distances() -> None:
    def backward(grad: Tensor, a: Tensor, b: Tensor, result: Tensor) -> Any:
        return norms._euclidean_dist_backward(grad, a, b, result)

    a, b = torch.randn(3, 2).double(), torch.randn(4, 2).double()
    same_gradient(torch.ops.aten._euclidean_dist, backward, a, b)
    same_gradient(torch.ops.aten._euclidean_dist, backward, a, a)
