"""Operators that PyTorch has retired: values as they were."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton.helpers.retired import VALUES

DTYPES = (torch.float64, torch.complex128)
BOTH = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@BOTH
def test_factors_of_determinants(dtype: torch.dtype) -> None:
    matrix = torch.randn(5, 4, 4, dtype=dtype)
    determinant, factors, pivots = VALUES["_det_lu_based_helper"](matrix)
    assert_close(determinant, torch.linalg.det(matrix))
    permutation, lower, upper = torch.lu_unpack(factors, pivots)
    assert_close(permutation @ lower @ upper, matrix)
    assert VALUES["_det_lu_based_helper"](torch.zeros(2, 2))[0] == 0


def unpacked(values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Both complex, from how a real matrix has them."""
    whole = torch.complex(vectors, torch.zeros_like(vectors))
    for j in range(len(values)):
        if values[j, 1] > 0:
            pair = torch.complex(vectors[:, j], vectors[:, j + 1])
            whole[:, j], whole[:, j + 1] = pair, pair.conj()
    return torch.view_as_complex(values), whole


def test_eigenvalues_of_a_real_matrix() -> None:
    matrix = torch.randn(5, 5, dtype=torch.float64)
    values, vectors = VALUES["eig"](matrix, True)
    assert values.shape == (5, 2) and vectors.dtype == matrix.dtype
    assert (values[:, 1] != 0).any() and (values[:, 1] == 0).any()
    assert_close(VALUES["eig"](matrix)[0], values)
    assert VALUES["eig"](matrix)[1].shape == (0,)
    values, vectors = unpacked(values, vectors)
    assert_close(matrix.to(vectors.dtype) @ vectors, vectors * values)
    assert_close(vectors.abs().square().sum(0), torch.ones(5, dtype=matrix.dtype))


def test_eigenvalues_of_a_complex_matrix() -> None:
    matrix = torch.randn(4, 4, dtype=torch.complex128)
    values, vectors = VALUES["eig"](matrix, True)
    assert_close(matrix @ vectors, vectors * values)


def test_eigenvalues_of_other_shapes() -> None:
    with pytest.raises(RuntimeError, match="square"):
        VALUES["eig"](torch.zeros(2, 3))


@BOTH
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)], ids=str)
def test_least_squares(shape: tuple[int, int], dtype: torch.dtype) -> None:
    rows, columns = shape
    matrix = torch.randn(*shape, dtype=dtype)
    right = torch.randn(rows, 2, dtype=dtype)
    solution, factors = VALUES["lstsq"](right, matrix)
    assert solution.shape == (max(shape), 2) and factors.shape == shape
    expected = torch.linalg.lstsq(matrix, right).solution
    assert_close(solution[:columns], expected)
    if rows >= columns:
        residuals = (matrix @ expected - right).abs().square().sum(0)
        assert_close(solution[columns:].abs().square().sum(0), residuals)
        assert_close(factors, torch.geqrf(matrix).a)
    else:
        lower = factors[:, :rows].tril()  # L L^H = A A^H: Q has orthonormal rows
        assert_close(lower @ lower.mH, matrix @ matrix.mH)


def test_least_squares_of_other_shapes() -> None:
    with pytest.raises(RuntimeError, match=r"\(3, 2\) and \(2, 2\)"):
        VALUES["lstsq"](torch.zeros(3, 2), torch.zeros(2, 2))


def test_adding_at_an_index() -> None:
    target, source = torch.randn(4, 3), torch.randn(2, 3)
    index = torch.tensor([3, 1])
    expected = target.index_add(0, index, source, alpha=2.5)
    assert VALUES["index_add_.alpha"](target, 0, index, source, alpha=2.5) is target
    assert_close(target, expected)
