"""Gradients of sampling an image or a volume at the points of a grid.

ATen's operators of today ask as well which of the two gradients are wanted, and so do
newer formulas; older ones have both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def grid_sampler_2d_backward(
    grad: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    wanted: Sequence[bool] = (True, True),
) -> tuple[Tensor, Tensor]:
    """The gradients of `input`, N x C x H x W, and `grid`, N x h x w x 2, from that of
    the samples, N x C x h x w."""
    modes = interpolation_mode, padding_mode, align_corners
    return torch.ops.aten.grid_sampler_2d_backward(grad, input, grid, *modes, wanted)


def grid_sampler_3d_backward(
    grad: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    wanted: Sequence[bool] = (True, True),
) -> tuple[Tensor, Tensor]:
    """The gradients of `input`, N x C x D x H x W, and `grid`, N x d x h x w x 3, from
    that of the samples, N x C x d x h x w."""
    modes = interpolation_mode, padding_mode, align_corners
    return torch.ops.aten.grid_sampler_3d_backward(grad, input, grid, *modes, wanted)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "grid_sampler_2d_backward": grid_sampler_2d_backward,
    "grid_sampler_3d_backward": grid_sampler_3d_backward,
}
