"""Determinants and their logarithms, at singular matrices as well: gradients."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from math import prod

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton.helpers import determinants
from atentriton.helpers.retired import VALUES
from tests.helpers.applied import agree, leaves, operator, proved
from tests.helpers.rules import composes

DTYPES = (torch.float64, torch.complex128)
BOTH = pytest.mark.parametrize("dtype", DTYPES, ids=str)

helper = operator(
    VALUES["_det_lu_based_helper"],
    lambda g, i, r: determinants._det_lu_based_helper_backward(
        g[0], r[0], i[0], *r[1:]
    ),
)
logdet = operator(
    torch.logdet,
    lambda g, i, r: determinants.logdet_backward(g[0], i[0], r[0]),
)


def det(matrix: Tensor) -> Tensor:
    return helper(matrix)[0]


def by_permutations(matrix: Tensor) -> Tensor:
    """The determinant as a sum of products: its derivatives are those anywhere."""
    order = matrix.shape[-1]
    total = torch.zeros((), dtype=matrix.dtype)
    for columns in permutations(range(order)):
        pairs = [(i, j) for j in range(order) for i in range(j)]
        odd = sum(columns[i] > columns[j] for i, j in pairs) % 2
        term = prod(matrix[..., i, columns[i]] for i in range(order))
        total = total - term if odd else total + term
    return total


def of_rank(rank: int, dtype: torch.dtype, order: int = 4) -> Tensor:
    tall = torch.randn(order, rank, dtype=dtype)
    return tall @ torch.randn(rank, order, dtype=dtype)


@BOTH
def test_determinant(dtype: torch.dtype) -> None:
    given = leaves(torch.randn(2, 3, 3, dtype=dtype))
    agree(det, torch.det, given)
    proved(det, given)


@BOTH
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_determinant_of_a_singular_matrix(rank: int, dtype: torch.dtype) -> None:
    """One among others, whose rank is any."""
    regular = torch.randn(1, 4, 4, dtype=dtype)
    given = leaves(torch.cat((regular, of_rank(rank, dtype)[None])))
    agree(det, by_permutations, given)


def third(function: Callable[[Tensor], Tensor], matrix: Tensor) -> Tensor:
    """The third derivative along a line."""
    direction = torch.ones(3, 3, dtype=torch.float64).triu() + matrix
    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    result = function(matrix + step * direction)
    for _ in range(3):
        (result,) = torch.autograd.grad(result, step, create_graph=True)
    return result


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_third_derivative(rank: int) -> None:
    matrix = of_rank(rank, torch.float64, 3)
    assert_close(third(det, matrix), third(by_permutations, matrix))


def test_determinant_that_underflows() -> None:
    """The cofactors are there although the determinant is not."""
    (given,) = leaves(torch.eye(2).double() * 1e-170)
    value = det(given)
    assert value == 0
    (found,) = torch.autograd.grad(value, given)
    assert_close(found, given.detach(), atol=0, rtol=1e-12)


@BOTH
def test_large_singular_matrices(dtype: torch.dtype) -> None:
    """From rank n - 1 all cofactors are a product of two vectors."""
    order = 60
    u, s, vh = torch.linalg.svd(torch.randn(2, order, order, dtype=dtype))
    s[0, -1] = 0
    (given,) = leaves(u * s[:, None].to(dtype) @ vh)
    (found,) = torch.autograd.grad(det(given).real.sum(), given, create_graph=True)
    scale = (torch.linalg.det(u[0]) * torch.linalg.det(vh[0])).conj() * s[0, :-1].prod()
    expected = scale * u[0, :, -1:] @ vh[0, -1:]
    size = expected.detach().abs().max()
    assert_close(found[0] / size, expected / size)
    (second,) = torch.autograd.grad((found[0] / size).square().real.sum(), given)
    assert second.isfinite().all()


def test_nearly_singular() -> None:
    """Second derivatives do not lose what the inverse has too much."""
    matrix = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9 + 2.0**-40]]).double()
    given = leaves(matrix)
    agree(det, by_permutations, given)
    exact = [[Fraction(float(x)) for x in row] for row in matrix]
    corner = exact[0][0] * exact[1][1] - exact[0][1] * exact[1][0]
    (found,) = torch.autograd.grad(det(given[0]), given)
    assert_close(found[2, 2].item(), float(corner))


@BOTH
def test_logarithm(dtype: torch.dtype) -> None:
    matrix = torch.randn(2, 3, 3, dtype=dtype)
    given = leaves(matrix)
    positive = torch.eye(3, dtype=dtype)
    agree(
        lambda a: logdet(a @ a.mH + positive),
        lambda a: torch.logdet(a @ a.mH + positive),
        given,
    )
    proved(lambda a: logdet(a @ a.mH + positive), leaves(matrix))


def test_logarithm_at_singular_matrices() -> None:
    """Infinite where any step leaves zero, and nothing else of the batch is spoilt."""
    regular = torch.tensor([[2.0, 1.0], [1.0, 3.0]]).double()
    flat = torch.tensor([[1.0, 2.0], [2.0, 4.0]]).double()
    line = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double()
    (given,) = leaves(torch.stack((regular, flat, line)))
    (found,) = torch.autograd.grad(logdet(given).sum(), given, create_graph=True)
    assert_close(found[0], regular.inverse().mT)
    inf, nan = torch.inf, torch.nan
    assert_close(found[1], torch.tensor([[inf, -inf], [-inf, inf]]).double())
    expected = torch.tensor([[nan, nan], [nan, inf]]).double()
    assert_close(found[2], expected, equal_nan=True)
    (second,) = torch.autograd.grad(found[0].sum(), given)
    assert second[0].isfinite().all()
    (number,) = leaves(torch.zeros(1, 1).double())
    assert torch.autograd.grad(logdet(number), number)[0].item() == inf


@BOTH
def test_batches_of_transforms(dtype: torch.dtype) -> None:
    """Within vmap nobody can ask which matrices are singular."""
    given = torch.stack([of_rank(rank, dtype, 3) for rank in (1, 2, 3)])
    expected = torch.func.grad(lambda a: by_permutations(a).sum().real)(given)
    mapped = torch.vmap(torch.func.grad(lambda a: det(a).real))(given)
    assert_close(mapped, expected)


@BOTH
def test_gradients_under_transforms(dtype: torch.dtype) -> None:
    matrix = torch.randn(2, 2, dtype=dtype)

    def pullback(grad: Tensor, a: Tensor, *results: Tensor) -> Tensor:
        value, *factors = results
        return determinants._det_lu_based_helper_backward(grad, value, a, *factors)

    composes(VALUES["_det_lu_based_helper"], pullback, matrix)
    singular = torch.stack((matrix, of_rank(1, dtype, 2)))
    composes(VALUES["_det_lu_based_helper"], pullback, singular)
    positive = matrix @ matrix.mH + torch.eye(2, dtype=dtype)
    composes(torch.logdet, determinants.logdet_backward, positive)


def test_nothing() -> None:
    (given,) = leaves(torch.zeros(2, 0, 0).double())
    assert_close(det(given), torch.ones(2).double())
    (found,) = torch.autograd.grad((det(given) + logdet(given)).sum(), given)
    assert found.shape == (2, 0, 0)
