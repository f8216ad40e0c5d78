"""Derivatives of what picks elements of a tensor, by indices or by a mask.

`grad` is the gradient of the result. No shape depends on what a mask holds: the k-th
element that it picks is found by counting. All of it is linear in `grad`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def index_backward(
    zeros: Tensor, indices: Sequence[Tensor | None], grad: Tensor
) -> Tensor:
    """The gradient of zeros[indices], added up where an element was picked often."""
    return torch.ops.aten.index_put(zeros, indices, grad, True)


def masked_select_backward(grad: Tensor, self: Tensor, mask: Tensor) -> Tensor:
    """The gradient of self[mask], one-dimensional, put where self was picked."""
    shape = torch.broadcast_shapes(self.shape, mask.shape)
    picked = mask.expand(shape).reshape(-1)
    padded = torch.cat((grad, grad.new_zeros(1)))  # there may be nothing to read
    spread = torch.where(picked, padded.index_select(0, _order(picked)), 0)
    return spread.reshape(shape).sum_to_size(self.shape)


def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The gradient of what was written where the mask is true, of those sizes.

    As many first elements have one as the mask has places; that of the others is 0.
    """
    count = math.prod(sizes)
    if count == 0:
        return grad.new_zeros(sizes)
    picked = mask.expand(grad.shape).reshape(-1)
    read = torch.where(picked, grad.reshape(-1), 0)
    return grad.new_zeros(count).index_add(0, _order(picked), read).reshape(sizes)


def masked_fill_backward(grad: Tensor, mask: Tensor) -> Tensor:
    """The gradient of the number that was written where the mask is true."""
    return torch.where(mask, grad, 0).sum()


def take_backward(grad: Tensor, self: Tensor, index: Tensor) -> Tensor:
    """The gradient of self, of which `index` has taken elements, counted in order."""
    return torch.zeros_like(self).put(index, grad, accumulate=True)


def _order(mask: Tensor) -> Tensor:
    """For each element, how many the mask has picked before it; else a valid index."""
    return (mask.cumsum(0) - 1).clamp(min=0)


def _fused_dropout_backward(grad: Tensor, mask: Tensor, p: float) -> Tensor:
    """The gradient of dropout that has kept those in the mask, each with chance p."""
    return grad * mask.to(grad.dtype) / p


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "index_backward": index_backward,
    "masked_select_backward": masked_select_backward,
    "masked_scatter_backward": masked_scatter_backward,
    "masked_fill_backward": masked_fill_backward,
    "take_backward": take_backward,
    "_fused_dropout_backward": _fused_dropout_backward,
}
