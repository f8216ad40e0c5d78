"""Derivatives of what layers of networks do: dropout, gates, pooling, embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Dims = Sequence[int]


def dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of dropout that has kept those in the mask, and scaled them."""
    return grad * (mask.to(grad.dtype) * scale)


def glu_double_backward_grad_output(grad: Tensor, self: Tensor, dim: int) -> Tensor:
    """The gradient of g, where (g s, g a s (1 - s)) is the gradient of a gated unit.

    a and b are the halves of `self` along `dim`, and s = sigmoid(b).
    """
    first, second = grad.chunk(2, dim)
    a, b = self.chunk(2, dim)
    s = b.sigmoid()
    return s * (first + second * a * (1 - s))


def glu_double_backward(
    grad: Tensor, grad_output: Tensor, self: Tensor, dim: int
) -> Tensor:
    """The gradients of a and b together, as in `glu_double_backward_grad_output`.

    s' = s (1 - s) and s'' = s' (1 - 2 s).
    """
    first, second = grad.chunk(2, dim)
    a, b = self.chunk(2, dim)
    s = b.sigmoid()
    slope = grad_output * s * (1 - s)
    return torch.cat((second * slope, slope * (first + second * a * (1 - 2 * s))), dim)


def max_pool_double_backward(grad: Tensor, indices: Tensor, dim: int) -> Tensor:
    """What of `grad` lies where the maxima of the last `dim` dimensions were found."""
    flat = grad.flatten(-dim).gather(-1, indices.flatten(-dim))
    return flat.reshape(indices.shape)


def embedding_dense_double_backward(
    grad: Tensor, indices: Tensor, padding_idx: int
) -> Tensor:
    """The rows of `grad` that the indices name, zeros for the index of padding."""
    rows = grad.index_select(0, indices.reshape(-1)).reshape(*indices.shape, -1)
    if padding_idx < 0:
        return rows
    return rows.masked_fill((indices == padding_idx).unsqueeze(-1), 0)


def _trilinear_backward(
    grad: Tensor,
    i1: Tensor | None,
    i2: Tensor | None,
    i3: Tensor | None,
    expand1: Dims,
    expand2: Dims,
    expand3: Dims,
    sumdim: Dims,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """The gradients of three factors from that of the sum of their product.

    Each is the sum of the product of the other two and the gradient: what was expanded
    is summed, and what was summed is expanded.
    """
    product = torch.ops.aten._trilinear
    first = second = third = None
    if mask[0]:
        first = product(grad, i2, i3, sumdim, expand2, expand3, expand1)
    if mask[1]:
        second = product(i1, grad, i3, expand1, sumdim, expand3, expand2)
    if mask[2]:
        third = product(i1, i2, grad, expand1, expand2, sumdim, expand3)
    return first, second, third


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "infinitely_differentiable_native_dropout_backward": dropout_backward,
    "glu_double_backward_grad_output": glu_double_backward_grad_output,
    "glu_double_backward": glu_double_backward,
    "max_pool_double_backward": max_pool_double_backward,
    "embedding_dense_double_backward": embedding_dense_double_backward,
    "_trilinear_backward": _trilinear_backward,
}
