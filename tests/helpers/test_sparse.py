"""Products with a sparse matrix: the gradients of the elements that it stores."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton.helpers.sparse import _sparse_addmm_sparse_backward
from tests.helpers.applied import agree, leaves, operator, proved

ROWS, COLUMNS = torch.tensor([[0, 2, 1, 0], [1, 0, 3, 1]])  # one place comes twice
SHAPE = (3, 4)


def dense(values: Tensor) -> Tensor:
    zeros = torch.zeros(SHAPE, dtype=values.dtype)
    return zeros.index_put((ROWS, COLUMNS), values, accumulate=True)


@pytest.mark.parametrize(
    ("dtype", "alpha"),
    [(torch.float64, 1), (torch.float64, 2.5), (torch.complex128, 2.5 - 1j)],
    ids=str,
)
def test_product(dtype: torch.dtype, alpha: Any) -> None:
    def theirs(values: Tensor, right: Tensor) -> Tensor:
        return dense(values) @ right * alpha

    def backward(grads: Any, inputs: Any, _: Any) -> tuple[Tensor, Tensor]:
        values, right = inputs
        places = torch.stack((ROWS, COLUMNS))
        matrix = torch.sparse_coo_tensor(places, values, SHAPE, check_invariants=True)
        found = _sparse_addmm_sparse_backward(grads[0], matrix, right, alpha)
        assert found.is_sparse and found.is_coalesced() and found.shape == SHAPE
        by_right = dense(values).mH @ grads[0] * alpha.conjugate()
        return found.to_dense()[ROWS, COLUMNS], by_right

    given = leaves(torch.randn(4, dtype=dtype), torch.randn(4, 2, dtype=dtype))
    agree(operator(theirs, backward), theirs, given)
    proved(operator(theirs, backward), given)


def test_product_with_nothing_stored() -> None:
    empty = torch.zeros(SHAPE).to_sparse()
    grad = torch.ones(3, 2)
    found = _sparse_addmm_sparse_backward(grad, empty, torch.ones(4, 2), 1)
    assert found.shape == SHAPE and found._nnz() == 0
