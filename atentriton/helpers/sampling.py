"""Gradients of sampling an image or a volume at the points of a grid.

ATen's operators of today ask as well which of the two gradients are wanted, and so do
newer formulas; older ones have both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def _gradients(operator: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
    """The gradients of the images, N x C x ..., and of the grid, N x ... x dimensions,
    from that of the samples, N x C x ...; `operator` is ATen's."""

    def gradients(
        grad: Tensor,
        input: Tensor,
        grid: Tensor,
        interpolation_mode: int,
        padding_mode: int,
        align_corners: bool,
        wanted: Sequence[bool] = (True, True),
    ) -> tuple[Tensor, Tensor]:
        modes = interpolation_mode, padding_mode, align_corners
        return operator(grad, input, grid, *modes, wanted)

    return gradients


grid_sampler_2d_backward = _gradients(torch.ops.aten.grid_sampler_2d_backward)
grid_sampler_3d_backward = _gradients(torch.ops.aten.grid_sampler_3d_backward)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "grid_sampler_2d_backward": grid_sampler_2d_backward,
    "grid_sampler_3d_backward": grid_sampler_3d_backward,
}
