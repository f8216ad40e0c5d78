"""Derivatives of means, variances and standard deviations.

`grad` is the gradient of the reduced tensor, `self` what was reduced, of the sizes
`sizes`. No `dim` stands for all dimensions, and no `correction` for 1: a variance is
the sum of squared distances from the mean, divided by their number less the correction.
All of it is for real and complex tensors, differentiable again, and linear in `grad`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from atentriton.helpers.reductions import (
    Dims,
    _kept,
    _safe_size,
    _wrapped,
    sum_backward,
)


def mean_backward(
    grad: Tensor, sizes: Sequence[int], dim: Dims, numel: int, keepdim: bool
) -> Tensor:
    """The gradient of a mean: every term has its share of that of the mean."""
    return sum_backward(grad, sizes, dim, keepdim) / _safe_size(sizes, dim)


def var_backward(
    grad: Tensor, self: Tensor, dim: Dims, correction: Any, keepdim: bool
) -> Tensor:
    """The gradient of a variance, 2 (self - mean) / (n - correction) times `grad`.

    The mean moves as well, but distances from it sum to 0.
    """
    centred = self - self.mean(_wrapped(dim, self.dim()), keepdim=True)
    count = _safe_size(self.shape, dim) - (1 if correction is None else correction)
    return 2 * _kept(grad, dim, self.dim(), keepdim) * centred / count


def std_backward(
    result: Tensor,
    grad: Tensor,
    self: Tensor,
    dim: Dims,
    correction: Any,
    keepdim: bool,
) -> Tensor:
    """The gradient of result = sqrt(variance); 0 where the result is."""
    vanishing = result == 0
    halved = grad / (2 * result).masked_fill(vanishing, 1)
    halved = halved.masked_fill(vanishing, 0)
    return var_backward(halved, self, dim, correction, keepdim)


def var_mean_backward(
    grad_var: Tensor | None,
    grad_mean: Tensor | None,
    self: Tensor,
    dim: Dims,
    correction: Any,
    keepdim: bool,
) -> Tensor | None:
    """The gradient of a variance and a mean together."""
    found = None
    if grad_var is not None:
        found = var_backward(grad_var, self, dim, correction, keepdim)
    return _with_mean(found, grad_mean, self, dim, keepdim)


def std_mean_backward(
    grad_std: Tensor | None,
    grad_mean: Tensor | None,
    self: Tensor,
    std: Tensor,
    dim: Dims,
    correction: Any,
    keepdim: bool,
) -> Tensor | None:
    """The gradient of a standard deviation and a mean together."""
    found = None
    if grad_std is not None:
        found = std_backward(std, grad_std, self, dim, correction, keepdim)
    return _with_mean(found, grad_mean, self, dim, keepdim)


def _with_mean(
    found: Tensor | None,
    grad_mean: Tensor | None,
    self: Tensor,
    dim: Dims,
    keepdim: bool,
) -> Tensor | None:
    if grad_mean is None:
        return found
    other = mean_backward(grad_mean, self.shape, dim, self.numel(), keepdim)
    return other if found is None else found + other


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mean_backward": mean_backward,
    "var_backward": var_backward,
    "std_backward": std_backward,
    "var_mean_backward": var_mean_backward,
    "std_mean_backward": std_mean_backward,
}
