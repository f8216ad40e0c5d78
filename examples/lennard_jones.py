"""A potential between pairs of atoms, learned from forces.

    python examples/lennard_jones.py [--steps N] [--eager | --compare] [--plot FILE]

Two kinds of atoms in a periodic box attract and repel each other by the Lennard-Jones
potential with Kob's and Andersen's parameters. Forces are the gradient of the energy,
which is one fused function of all pairs; the loss compares forces, and so its gradient
differentiates that function twice.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from _common import Problem, Setting, main
from torch import Tensor, nn

SPACING = 1.15
CUTOFF = 2.5
# Of the pairs AA, AB and BB.
DEPTHS = (1.0, 1.5, 0.5)
DIAMETERS = (1.0, 0.8, 0.88)


def pair_energy(
    first: tuple[Tensor, Tensor, Tensor],
    second: tuple[Tensor, Tensor, Tensor],
    depth: Tensor,
    diameter: Tensor,
    same: Tensor,
    box: float,
) -> Tensor:
    """Half the energy of a pair: every pair is met twice; none of an atom itself."""
    squared = torch.zeros_like(depth)
    for a, b in zip(first, second, strict=True):
        apart = a - b
        apart = apart - box * torch.round(apart / box)  # to the nearest image
        squared = squared + apart * apart
    squared = torch.where(same, 1.0, squared)
    sixth = (diameter * diameter / squared) ** 3
    energy = 2 * depth * (sixth * sixth - sixth)
    # Goes to zero smoothly, with its slope, at the cutoff.
    left = (1 - squared / CUTOFF**2).clamp(min=0)
    return torch.where(same, 0.0, energy * left * left)


class Potential(nn.Module):
    """The energy and the forces of systems of atoms, from six parameters."""

    def __init__(self, kinds: Tensor, box: float, setting: Setting) -> None:
        super().__init__()
        self.pair_energy = setting.way.function(pair_energy)  # fused, or as it is
        self.depths = nn.Parameter(torch.ones(3))
        self.diameters = nn.Parameter(torch.full((3,), 0.9))
        self.box = box
        self.register_buffer("pairs", kinds[:, None] + kinds)
        self.register_buffer("same", torch.eye(len(kinds), dtype=torch.bool))

    def energy(self, places: Tensor) -> Tensor:
        """Of each system; `places` is (systems, atoms, 3)."""
        x, y, z = places.unbind(-1)
        parts = self.pair_energy(
            (x[:, :, None], y[:, :, None], z[:, :, None]),
            (x[:, None], y[:, None], z[:, None]),
            self.depths[self.pairs],
            self.diameters[self.pairs],
            self.same,
            self.box,
        )
        return parts.sum((-2, -1))

    def forces(self, places: Tensor) -> Tensor:
        total = self.energy(places).sum()
        return -torch.autograd.grad(total, places, create_graph=True)[0]


def build(setting: Setting) -> Problem:
    size = setting.size or 32
    side = setting.width or 4  # atoms along an edge of the box
    box = side * SPACING
    steps = torch.arange(side) * SPACING
    lattice = torch.cartesian_prod(steps, steps, steps)
    shaken = lattice + 0.08 * torch.randn(size, side**3, 3)
    places = shaken.to(**setting.place).requires_grad_()
    kinds = (torch.rand(side**3) < 0.2).long()  # one in five is a B
    model = Potential(kinds, box, setting).to(**setting.place)

    true = Potential(kinds, box, setting).to(**setting.place)
    true.depths.data = torch.tensor(DEPTHS).to(**setting.place)
    true.diameters.data = torch.tensor(DIAMETERS).to(**setting.place)
    wanted = true.forces(places).detach()
    scale = wanted.square().mean()
    before = model.forces(places).detach()

    def loss(places: Tensor) -> Tensor:
        return (model.forces(places) - wanted).square().mean() / scale

    run = setting.way.loss(loss)

    def draw(axes: Any) -> None:
        after = model.forces(places).detach()
        for forces, label in ((before, "before"), (after, "after")):
            pairs = (v.flatten()[:2000].cpu() for v in (wanted, forces))
            axes.plot(*pairs, ".", markersize=3, label=label)
        bound = 3 * math.sqrt(scale.item())
        axes.plot((-bound, bound), (-bound, bound), "k:", linewidth=1)
        axes.set(xlabel="given force", ylabel="learned force")
        axes.set(xlim=(-bound, bound), ylim=(-bound, bound))
        axes.legend(frameon=False)

    return Problem(list(model.parameters()), lambda: run(places), draw, rate=5e-3)


if __name__ == "__main__":
    raise SystemExit(main(build, __doc__))
