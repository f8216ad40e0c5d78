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


def stack_tensors_backward(
    grad: Tensor, dim: int, dtypes: Sequence[torch.dtype]
) -> list[Tensor | None]:
    """The gradients of stacked tensors."""
    pairs = zip(grad.unbind(dim), dtypes, strict=True)
    return [_in_dtype(part, dtype) for part, dtype in pairs]


def block_diag_backward(
    grad: Tensor, sizes: Sequence[Sequence[int]], dtypes: Sequence[torch.dtype]
) -> list[Tensor | None]:
    """The gradients of blocks of those sizes; vectors and numbers make one row."""
    found: list[Tensor | None] = []
    row = column = 0
    for shape, dtype in zip(sizes, dtypes, strict=True):
        rows, columns = (1, 1, *shape)[-2:]
        block = grad[row : row + rows, column : column + columns].reshape(shape)
        found.append(_in_dtype(block, dtype))
        row, column = row + rows, column + columns
    return found


def _to_copy_backward(grad: Tensor, dtype: torch.dtype) -> Tensor | None:
    """The gradient of a copy in another dtype, in the dtype of what was copied."""
    return _in_dtype(grad, dtype)


def unsqueeze_to(grad: Tensor, *dims_and_sizes: Any) -> Tensor:
    """The gradient with the dimensions of size 1 again that a squeeze took away."""
    return grad.reshape(dims_and_sizes[-1])


def repeat_backward(
    grad: Tensor, repeats: Sequence[int], sizes: Sequence[int]
) -> Tensor:
    """The gradient of what was repeated: the sum of those of the copies."""
    if not repeats:
        return grad
    padded = [1] * (len(repeats) - len(sizes)) + list(sizes)
    split = [n for pair in zip(repeats, padded, strict=True) for n in pair]
    copies = list(range(0, len(split), 2))
    return grad.reshape(split).sum(copies).reshape(sizes)


def constant_pad_nd_backward(grad: Tensor, pad: Sequence[int]) -> Tensor:
    """The gradient of what was padded, or cut where the padding was negative."""
    return torch.constant_pad_nd(grad, [-n for n in pad], 0)


def slice_backward_wrapper(
    grad: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Tensor:
    """The gradient of a slice, in zeros of those sizes."""
    return torch.ops.aten.slice_backward(grad, sizes, dim, start, end, step)


def as_strided_scatter_backward(
    grad: Tensor,
    geometry: Any,
    written: Any,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None,
) -> Tensor:
    """The gradient of what was written over: none where it was written.

    The gradient is laid out as the tensor was, of which the strides are.
    """
    own = grad.new_zeros(geometry.sizes).as_strided(geometry.sizes, geometry.strides)
    laid = own.copy_(grad)
    return torch.as_strided_scatter(laid, grad.new_zeros(size), size, stride, offset)


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


def stack_jvp(tensors: Duals, dim: int) -> Tensor:
    """The tangent of stacked tensors."""
    return torch.stack(_filled(tensors), dim)


def block_diag_jvp(tensors: Duals) -> Tensor:
    """The tangent of a matrix of blocks."""
    return torch.block_diag(*_filled(tensors))


def _filled(tensors: Duals) -> list[Tensor]:
    pairs = zip(tensors, tensors.tangents, strict=True)
    return [torch.zeros_like(p) if t is None else t for p, t in pairs]


def cat_jvp(tensors: Duals, dim: int) -> Tensor:
    """The tangent of concatenated tensors."""
    return torch.cat(_filled(tensors), dim)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "diag_backward": diag_backward,
    "cat_tensors_backward": cat_tensors_backward,
    "cat_jvp": cat_jvp,
    "stack_tensors_backward": stack_tensors_backward,
    "stack_jvp": stack_jvp,
    "block_diag_backward": block_diag_backward,
    "block_diag_jvp": block_diag_jvp,
    "_to_copy_backward": _to_copy_backward,
    "unsqueeze_to": unsqueeze_to,
    "repeat_backward": repeat_backward,
    "constant_pad_nd_backward": constant_pad_nd_backward,
    "slice_backward_wrapper": slice_backward_wrapper,
    "as_strided_scatter_backward": as_strided_scatter_backward,
}
