"""Derivatives of diagonals and of concatenation.

Sizes come as lists, and dtypes as torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def diag_backward(grad: Tensor, sizes: Sequence[int], diagonal: int) -> Tensor:
    """The gradient of diag: of a vector's matrix, or of the diagonal of a matrix."""
    if len(sizes) == 1:
        return grad.diagonal(diagonal)
    return torch.diagonal_scatter(grad.new_zeros(sizes), grad, diagonal)


def cat_tensors_backward(
    grad: Tensor,
    sizes: Sequence[Sequence[int]],
    dtypes: Sequence[torch.dtype],
    dim: int,
) -> list[Tensor | None]:
    """The gradients of concatenated tensors of those sizes: each its own part.

    A one-dimensional tensor without elements has no part, whatever the others'
    dimensions are. Real tensors among complex ones have the real part of theirs, and
    integers have none.
    """
    found: list[Tensor | None] = []
    start = 0
    for shape, dtype in zip(sizes, dtypes, strict=True):
        if list(shape) == [0]:
            part = grad.new_zeros(0)
        else:
            part = grad.narrow(dim, start, shape[dim])
            start += shape[dim]
        found.append(_in_dtype(part, dtype))
    return found


def _in_dtype(grad: Tensor, dtype: torch.dtype) -> Tensor | None:
    if dtype.is_complex:
        return grad.to(dtype)
    return grad.real.to(dtype) if dtype.is_floating_point else None


class Duals(list[Tensor]):
    """A list of tensors that have tangents; None is one that is zero."""

    def __init__(
        self, primals: Iterable[Tensor], tangents: Iterable[Tensor | None]
    ) -> None:
        super().__init__(primals)
        self.tangents = list(tangents)


def cat_jvp(tensors: Duals, dim: int) -> Tensor:
    """The tangent of concatenated tensors."""
    pairs = zip(tensors, tensors.tangents, strict=True)
    return torch.cat([torch.zeros_like(p) if t is None else t for p, t in pairs], dim)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "diag_backward": diag_backward,
    "cat_tensors_backward": cat_tensors_backward,
    "cat_jvp": cat_jvp,
}
