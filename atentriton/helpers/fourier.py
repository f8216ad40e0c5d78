"""Gradients of Fourier transforms between real and complex tensors.

A transform with F = exp(-2 pi i j k / n) has the adjoint with conj(F), by the same
factor; PyTorch counts `normalization` so that it means the same in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


def fft_r2c_backward(
    grad: Tensor, dim: Sequence[int], normalization: int, onesided: bool, size: int
) -> Tensor:
    """The gradient of a real tensor from that of its transform along `dim`.

    A one-sided transform has left out what conjugates say again: of that nothing
    comes. `size` is that of the real tensor along the last of the dimensions.
    """
    if onesided:
        last = dim[-1]
        missing = size - grad.shape[last]
        grad = pad(grad.movedim(last, -1), (0, missing)).movedim(-1, last)
    return torch.ops.aten._fft_c2c(grad, dim, normalization, False).real


def fft_c2r_backward(grad: Tensor, dim: Sequence[int], normalization: int) -> Tensor:
    """The gradient of a one-sided transform from that of the real tensor made of it.

    All its elements but the first and, of an even size, the last count twice, for
    themselves and for the conjugates that they stand for.
    """
    found = torch.ops.aten._fft_r2c(grad, dim, normalization, True)
    size, twice = found.shape[dim[-1]], grad.shape[dim[-1]] - found.shape[dim[-1]]
    index = torch.arange(size, device=grad.device)
    shape = [1] * grad.dim()
    shape[dim[-1]] = size
    doubled = ((index > 0) & (index <= twice)).reshape(shape)
    return torch.where(doubled, 2 * found, found)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fft_r2c_backward": fft_r2c_backward,
    "fft_c2r_backward": fft_c2r_backward,
}
