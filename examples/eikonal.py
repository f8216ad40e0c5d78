"""The signed distance to a curve, learned from points on it.

    python examples/eikonal.py [--steps N] [--eager | --compare] [--plot FILE]

The network f is zero on the points, and its gradient has length one everywhere (the
eikonal equation). That makes the loss a function of the gradient: its own gradient
differentiates the fused activations twice.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from _common import Problem, Setting, main
from torch import Tensor, nn


def bent(z: Tensor, bias: Tensor) -> Tensor:
    return F.softplus(z + bias, beta=100.0)


def stretch(along_x: Tensor, along_y: Tensor) -> Tensor:
    """How far the length of the gradient is from one, squared."""
    return (torch.sqrt(along_x**2 + along_y**2) - 1) ** 2


class Network(nn.Module):
    """f for points (n, 2); at first about the distance to a circle of radius 0.5."""

    def __init__(self, width: int, depth: int, setting: Setting) -> None:
        super().__init__()
        self.bent = setting.way.function(bent)  # the switch: fused, or as it is
        sizes = [2] + [width] * depth
        self.layers = nn.ModuleList(
            nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)
        )
        self.biases = nn.ParameterList(torch.zeros(width) for _ in range(depth))
        self.last = nn.Linear(width, 1)
        for layer in self.layers:
            nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / width))
        nn.init.normal_(self.last.weight, math.sqrt(math.pi / width), 1e-4)
        nn.init.constant_(self.last.bias, -0.5)

    def forward(self, points: Tensor) -> Tensor:
        h = points
        for layer, bias in zip(self.layers, self.biases, strict=True):
            h = self.bent(layer(h), bias)
        return self.last(h)


def flower(size: int) -> Tensor:
    """Points on a curve with five petals."""
    angle = torch.rand(size) * (2 * math.pi)
    radius = 0.5 + 0.15 * torch.cos(5 * angle)
    return torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), -1)


def build(setting: Setting) -> Problem:
    size = setting.size or 4096
    f = Network(setting.width or 128, 4, setting).to(**setting.place)
    on = flower(size).to(**setting.place)
    anywhere = (torch.rand(size, 2) * 2 - 1).to(**setting.place).requires_grad_()
    stretched = setting.way.function(stretch)

    def loss(on: Tensor, anywhere: Tensor) -> Tensor:
        total = f(anywhere).sum()
        (gradient,) = torch.autograd.grad(total, anywhere, create_graph=True)
        return f(on).abs().mean() + 0.1 * stretched(*gradient.unbind(-1)).mean()

    run = setting.way.loss(loss)

    def draw(axes: Any) -> None:
        line = torch.linspace(-1, 1, 101)
        x, y = torch.meshgrid(line, line, indexing="xy")
        grid = torch.stack((x, y), -1).reshape(-1, 2).to(**setting.place)
        with torch.no_grad():
            values = f(grid).reshape(x.shape).cpu()
        filled = axes.contourf(x, y, values, 20, cmap="RdBu")
        axes.contour(x, y, values, [0.0], colors="black")
        axes.plot(*on[:200].cpu().T, ".", color="gold", markersize=3)
        axes.figure.colorbar(filled, ax=axes)
        axes.set(title="distance; black: zero; dots: given", aspect="equal")

    return Problem(list(f.parameters()), lambda: run(on, anywhere), draw)


if __name__ == "__main__":
    raise SystemExit(main(build, __doc__))
