"""A network that solves Burgers' equation, from the equation alone.

    python examples/burgers.py [--steps N] [--eager | --compare] [--plot FILE]

u_t + u u_x = ν u_xx for -1 < x < 1, with u = -sin πx at t = 0 and u = 0 at both ends.
The loss is the residual at random points (a physics-informed network): its gradient
takes the third derivatives of what is fused.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from _common import Problem, Setting, main
from torch import Tensor, nn

VISCOSITY = 0.01 / math.pi


def bent(z: Tensor, bias: Tensor) -> Tensor:
    return torch.tanh(z + bias)


def solution(network: Tensor, x: Tensor, t: Tensor) -> Tensor:
    """What is right at t = 0 and at both ends, whatever the network gives."""
    return t * (1 - x * x) * network - torch.sin(math.pi * x)


def squared_residual(u: Tensor, u_t: Tensor, u_x: Tensor, u_xx: Tensor) -> Tensor:
    return (u_t + u * u_x - VISCOSITY * u_xx) ** 2


class Network(nn.Module):
    """u(x, t) for columns x and t."""

    def __init__(self, width: int, depth: int, setting: Setting) -> None:
        super().__init__()
        self.bent = setting.way.function(bent)  # the switch: fused, or as it is
        self.solution = setting.way.function(solution)
        sizes = [2] + [width] * depth
        self.layers = nn.ModuleList(
            nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)
        )
        self.biases = nn.ParameterList(torch.zeros(width) for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = torch.cat((x, t), -1)
        for layer, bias in zip(self.layers, self.biases, strict=True):
            h = self.bent(layer(h), bias)
        return self.solution(self.last(h), x, t)


def slope(u: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(u.sum(), x, create_graph=True)[0]


def build(setting: Setting) -> Problem:
    size = setting.size or 4096
    u = Network(setting.width or 64, 4, setting).to(**setting.place)
    x = (torch.rand(size, 1) * 2 - 1).to(**setting.place).requires_grad_()
    t = torch.rand(size, 1).to(**setting.place).requires_grad_()
    squared = setting.way.function(squared_residual)

    def loss(x: Tensor, t: Tensor) -> Tensor:
        value = u(x, t)
        u_x = slope(value, x)
        return squared(value, slope(value, t), u_x, slope(u_x, x)).mean()

    run = setting.way.loss(loss)

    def draw(axes: Any) -> None:
        xs = torch.linspace(-1, 1, 257)
        for time, color in ((0.0, "C0"), (0.25, "C1"), (0.5, "C2"), (0.75, "C3")):
            column = xs.to(**setting.place)[:, None]
            with torch.no_grad():
                found = u(column, torch.full_like(column, time))[:, 0].cpu()
            axes.plot(xs, found, color=color, label=f"t = {time}")
            axes.plot(xs, exact(xs, time), "k:", linewidth=1)
        axes.set(xlabel="x", ylabel="u", title="learned; dotted: exact")
        axes.legend(frameon=False, fontsize=8)

    return Problem(list(u.parameters()), lambda: run(x, t), draw)


def exact(x: Tensor, t: float) -> Tensor:
    """Cole's and Hopf's solution, by Gauss-Hermite quadrature; float64."""
    import numpy

    nodes, weights = map(torch.from_numpy, numpy.polynomial.hermite.hermgauss(120))
    y = math.pi * (x.double()[:, None] - math.sqrt(4 * VISCOSITY * t) * nodes)
    share = weights * torch.exp(-torch.cos(y) / (2 * math.pi * VISCOSITY))
    return -(share * torch.sin(y)).sum(-1) / share.sum(-1)


if __name__ == "__main__":
    raise SystemExit(main(build, __doc__))
