"""Derivatives of norms along dimensions, and of what norms are made into.

Where a norm is 0 its derivative is taken as 0. All of it is for real and complex
tensors; tangents and gradients come of one formula, that of `norm_backward`: the change
of a norm is Re(conj(g) t), summed, where g is its gradient and t the tangent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from atentriton.helpers.reductions import Dims, _wrapped, norm_backward

TINY = 1e-7
"""What PyTorch's renorm adds to a norm that it divides by."""


def norm_jvp(
    self_p: Tensor,
    self_t: Tensor,
    p: float | None,
    norm: Tensor,
    dim: Dims = (),
    keepdim: bool = False,
) -> Tensor:
    """The tangent of `norm`, the p-norm of `self_p` along `dim`."""
    gradient = norm_backward(torch.ones_like(norm), self_p, p, norm, dim, keepdim)
    change = gradient.conj() * self_t
    return change.real.sum(_wrapped(dim, self_p.dim()), keepdim)


def renorm_backward(grad: Tensor, self: Tensor, p: float, dim: int, most: float) -> Any:
    """The gradient of self f(n), f(n) = most / n where the norm n is more, and else 1.

    n is that of all elements with one index along `dim`.
    """
    dims = _others(self, dim)
    norm = torch.linalg.vector_norm(self, p, dims, keepdim=True)
    factor, slope = _factor(norm, most)
    change = (self.conj() * grad).real.sum(dims, keepdim=True) * slope
    return grad * factor + norm_backward(change, self, p, norm, dims)


def renorm_jvp(
    self_p: Tensor, self_t: Tensor, p: float, dim: int, most: float
) -> Tensor:
    """The tangent of self f(n), as in `renorm_backward`."""
    dims = _others(self_p, dim)
    norm = torch.linalg.vector_norm(self_p, p, dims, keepdim=True)
    factor, slope = _factor(norm, most)
    change = norm_jvp(self_p, self_t, p, norm, dims, True)
    return self_t * factor + self_p * slope * change


def _others(tensor: Tensor, dim: int) -> list[int]:
    return [d for d in range(tensor.dim()) if d != dim % tensor.dim()]


def _factor(norm: Tensor, most: float) -> tuple[Tensor, Tensor]:
    """f(n) and its derivative."""
    inverse = 1 / (norm + TINY)
    more = norm > most
    factor = torch.where(more, most * inverse, 1)
    return factor, torch.where(more, -most * inverse * inverse, 0)


def _euclidean_dist_backward(
    grad: Tensor, x1: Tensor, x2: Tensor, result: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of points, m x d and n x d, from that of their distances, m x n.

    The distance of a and b changes by (a - b) / |a - b| with a, and by as much less
    with b; where it is 0 the gradient is.
    """
    vanishing = result == 0
    ratio = (grad / result.masked_fill(vanishing, 1)).masked_fill(vanishing, 0)
    first = x1 * ratio.sum(-1, keepdim=True) - ratio @ x2
    second = x2 * ratio.sum(-2).unsqueeze(-1) - ratio.mT @ x1
    return first, second


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "norm_jvp": norm_jvp,
    "linalg_vector_norm_backward": norm_backward,
    "linalg_vector_norm_jvp": norm_jvp,
    "renorm_backward": renorm_backward,
    "renorm_jvp": renorm_jvp,
    "_euclidean_dist_backward": _euclidean_dist_backward,
}
