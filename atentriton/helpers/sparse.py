"""Gradients of sparse matrices: only elements that are stored have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _sparse_addmm_sparse_backward(
    grad: Tensor, sparse: Tensor, dense: Tensor, alpha: Any
) -> Tensor:
    """The gradient of the sparse m x n matrix in `sparse` @ `dense`, times alpha's
    conjugate: grad dense^H at the places of `sparse` (COO), and sparse like it.

    Each element is a product of a row of `grad`, m x k, and a row of `dense`, n x k;
    the m x n elements of the whole product are never there.
    """
    sparse = sparse.coalesce()
    rows, columns = indices = sparse.indices()
    values = (grad[rows] * dense[columns].conj()).sum(-1)
    alpha = alpha.conjugate() if isinstance(alpha, complex) else alpha
    values = values if alpha == 1 else values * alpha
    # What is coalesced already needs no check of where its elements are.
    return torch.sparse_coo_tensor(
        indices, values, sparse.shape, check_invariants=False, is_coalesced=True
    )


def to_sparse_backward(grad: Tensor, layout: torch.layout, blocksize: None) -> Tensor:
    """The gradient of a tensor that was made sparse, in its own layout."""
    return grad.to_dense() if layout == torch.strided else grad


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_sparse_addmm_sparse_backward": _sparse_addmm_sparse_backward,
    "mm_mat1_sparse_backward": _sparse_addmm_sparse_backward,
    "to_sparse_backward": to_sparse_backward,
}
