"""Gradients of products, after torch/csrc/autograd/FunctionsManual.cpp.

`grad` is the gradient of a product of two matrices, `sizes` and `strides` belong to the
matrix whose gradient is wanted, `alpha` is the number by which the product was
multiplied. The gradient gets the matrix's own memory layout: where it lies column by
column, the transposed product is formed, so that nothing has to be copied later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor


def mm_mat1_backward(
    grad: Tensor, mat2: Tensor, sizes: Sequence[int], strides: Sequence[int], *last: Any
) -> Tensor:
    """The gradient of the first matrix, grad mat2^H, times alpha's conjugate.

    `alpha` comes last, and newer formulas have the layout of the matrix before it.
    """
    alpha = last[-1]
    if _by_columns(sizes, strides):
        product = mat2.conj().mm(grad.t()).t()
    else:
        product = grad.mm(mat2.t().conj())
    return _scaled(product, alpha)


def mm_mat2_backward(
    grad: Tensor, mat1: Tensor, sizes: Sequence[int], strides: Sequence[int], *last: Any
) -> Tensor:
    """The gradient of the second matrix, mat1^H grad, times alpha's conjugate."""
    alpha = last[-1]
    if _by_columns(sizes, strides):
        product = grad.t().mm(mat1.conj()).t()
    else:
        product = mat1.t().conj().mm(grad)
    return _scaled(product, alpha)


def _by_columns(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    return strides[0] == 1 and strides[1] == sizes[0]


def _scaled(product: Tensor, alpha: Any) -> Tensor:
    alpha = alpha.conjugate() if isinstance(alpha, complex) else alpha
    return product if alpha == 1 else product * alpha


def default_cross_dim(dim: int | None, sizes: Sequence[int]) -> int:
    """The dimension of a cross product: the first with 3 elements where none is given.

    `sizes` are those of the first factor.
    """
    return list(sizes).index(3) if dim is None else dim


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "default_cross_dim": default_cross_dim,
    "mm_mat1_backward": mm_mat1_backward,
    "mm_mat2_backward": mm_mat2_backward,
}
