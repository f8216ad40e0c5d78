"""Cholesky decompositions and what is made of their factors: derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton.helpers import cholesky
from tests.helpers.applied import agree, leaves, operator, proved
from tests.helpers.rules import composes

DTYPES = (torch.float64, torch.complex128)
SIDES = pytest.mark.parametrize("upper", [False, True], ids=["lower", "upper"])
BOTH = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def positive(matrix: Tensor) -> Tensor:
    return matrix @ matrix.mH + torch.eye(matrix.shape[-1], dtype=matrix.dtype)


def factor(matrix: Tensor, upper: bool) -> Tensor:
    """A triangle with a diagonal away from zero."""
    off = matrix.triu(1) if upper else matrix.tril(-1)
    return off + torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1).abs() + 1)


@BOTH
@SIDES
def test_decomposition(upper: bool, dtype: torch.dtype) -> None:
    ours = operator(
        lambda a: torch.linalg.cholesky(a, upper=upper),
        lambda g, _, r: cholesky.cholesky_backward(g[0], upper, r[0]),
        lambda t, _, r: cholesky.cholesky_jvp(t[0], r[0], upper),
    )
    given = leaves(torch.randn(2, 3, 3, dtype=dtype))
    agree(
        lambda a: ours(positive(a)),
        lambda a: torch.linalg.cholesky(positive(a), upper=upper),
        given,
    )
    proved(lambda a: ours(positive(a)), leaves(given[0][0]), forward=True)


def solving(upper: bool) -> Callable[..., Any]:
    return operator(
        lambda b, factors: torch.cholesky_solve(b, factors, upper=upper),
        lambda g, i, r: cholesky.cholesky_solve_backward(g[0], *i, r[0], upper),
    )


@BOTH
@SIDES
@pytest.mark.parametrize("batch", [(2,), (1,)], ids=["batch", "broadcast"])
def test_solution(batch: tuple[int, ...], upper: bool, dtype: torch.dtype) -> None:
    ours = solving(upper)
    matrix, right = (
        torch.randn(2, 3, 3, dtype=dtype),
        torch.randn(*batch, 3, 2).to(dtype),
    )
    given = leaves(right, matrix)
    agree(
        lambda b, a: ours(b, factor(a, upper)),
        lambda b, a: torch.cholesky_solve(b, factor(a, upper), upper=upper),
        given,
    )
    proved(lambda b, a: ours(b, factor(a, upper)), leaves(given[0][0], given[1][0]))


def inverting(upper: bool) -> Callable[..., Any]:
    return operator(
        lambda factors: torch.cholesky_inverse(factors, upper=upper),
        lambda g, i, r: cholesky.cholesky_inverse_backward(g[0], i[0], upper, r[0]),
    )


@BOTH
@SIDES
def test_inverse(upper: bool, dtype: torch.dtype) -> None:
    ours = inverting(upper)
    given = leaves(torch.randn(2, 3, 3, dtype=dtype))
    agree(
        lambda a: ours(factor(a, upper)),
        lambda a: torch.cholesky_inverse(factor(a, upper), upper=upper),
        given,
    )
    proved(lambda a: ours(factor(a, upper)), leaves(given[0][0]))


@SIDES
def test_the_triangle_that_is_not_read_has_no_gradient(upper: bool) -> None:
    """Differences see that the operators never read it."""
    full = torch.randn(3, 3, dtype=torch.float64) + 3 * torch.eye(3)
    proved(solving(upper), leaves(torch.randn(3, 2, dtype=torch.float64), full))
    proved(inverting(upper), leaves(full))


@BOTH
@SIDES
def test_gradients_under_transforms(upper: bool, dtype: torch.dtype) -> None:
    matrix, right = torch.randn(2, 2, dtype=dtype), torch.randn(2, 1, dtype=dtype)

    def decomposed(a: Tensor) -> Tensor:
        return torch.linalg.cholesky(positive(a), upper=upper)

    def solved(b: Tensor, a: Tensor) -> Tensor:
        return torch.cholesky_solve(b, factor(a, upper), upper=upper)

    def inverted(a: Tensor) -> Tensor:  # torch's tangent of its operator is wrong
        factors = factor(a, upper)
        product = factors.mH @ factors if upper else factors @ factors.mH
        return torch.linalg.inv(product)

    composes(
        decomposed, lambda g, _, r: cholesky.cholesky_backward(g, upper, r), matrix
    )
    composes(
        decomposed, lambda t, _, r: cholesky.cholesky_jvp(positive(t), r, upper), matrix
    )
    composes(
        solved,
        lambda g, b, a, r: cholesky.cholesky_solve_backward(
            g, b, factor(a, upper), r, upper
        ),
        right,
        matrix,
    )
    composes(
        inverted,
        lambda g, a, r: cholesky.cholesky_inverse_backward(
            g, factor(a, upper), upper, r
        ),
        matrix,
    )


def test_factors_of_nothing() -> None:
    empty = torch.zeros(2, 0, 0, dtype=torch.float64)
    assert_close(cholesky.cholesky_backward(empty, False, empty), empty)
    assert_close(cholesky.cholesky_jvp(empty, empty, False), empty)
