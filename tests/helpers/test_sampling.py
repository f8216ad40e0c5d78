"""Sampling at the points of a grid, affine grids, convolution over time: gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton.helpers import sampling
from tests.helpers.applied import agree, leaves, operator, proved

aten = torch.ops.aten
PLACES = {
    "grid_sampler_2d": sampling.grid_sampler_2d_backward,
    "grid_sampler_3d": sampling.grid_sampler_3d_backward,
    "_grid_sampler_2d_cpu_fallback": aten._grid_sampler_2d_cpu_fallback_backward,
}
MODES = [(i, p, a) for i in (0, 1) for p in (0, 1, 2) for a in (False, True)]
CASES = [
    (n, m) for n in PLACES for m in [*MODES, (2, 0, False)] if "3d" not in n or m[0] < 2
]


def sampler(name: str, modes: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def theirs(image: Tensor, grid: Tensor) -> Tensor:
        return getattr(aten, name)(image, grid, *modes)

    backward = PLACES[name]
    return operator(theirs, lambda g, i, _: backward(g[0], *i, *modes)), theirs


def points(name: str) -> tuple[Tensor, ...]:
    """An image or a volume, and a grid that reaches beyond it.

    The fallback knows float32 alone.
    """
    dtype = torch.float32 if "fallback" in name else torch.float64
    sides = (3, 4, 2)[: 3 if "3d" in name else 2]
    image = torch.randn(2, 2, *sides, dtype=dtype)
    shape = (2, *(2 for _ in sides), len(sides))
    return leaves(image, 2.4 * torch.rand(shape, dtype=dtype) - 1.2)


def derives_again() -> bool:
    """Whether this torch differentiates the gradients: earlier ones do not."""
    image, grid = points("grid_sampler_2d")
    result = aten.grid_sampler_2d(image, grid, 0, 0, False)
    try:
        found = torch.autograd.grad(result.sum(), grid, create_graph=True)
        torch.autograd.grad(found[0].sum(), grid)
    except RuntimeError as error:
        assert "not implemented" in str(error)
        return False
    return True


AGAIN = pytest.mark.skipif(not derives_again(), reason="torch has no derivative")
SAMPLINGS = pytest.mark.parametrize(("name", "modes"), CASES, ids=str)


@SAMPLINGS
def test_gradients_of_sampling(name: str, modes: tuple[int, int, bool]) -> None:
    ours, theirs = sampler(name, modes)
    given = points(name)
    seed = torch.randn_like(theirs(*given))
    assert_close(*(torch.autograd.grad(f(*given), given, seed) for f in (ours, theirs)))


@AGAIN
@SAMPLINGS
def test_second_derivatives_of_sampling(
    name: str, modes: tuple[int, int, bool]
) -> None:
    agree(*sampler(name, modes), points(name))


@AGAIN
@pytest.mark.parametrize("name", ["grid_sampler_2d", "grid_sampler_3d"])
def test_sampling_by_differences(name: str) -> None:
    proved(sampler(name, (0, 0, False))[0], points(name))


@pytest.mark.parametrize("corners", [False, True])
def test_grid_of_an_affine_map(corners: bool) -> None:
    size = [2, 3, 4, 5]

    def theirs(theta: Tensor) -> Tensor:
        return aten.affine_grid_generator(theta, size, corners)

    ours = operator(
        theirs,
        lambda g, _, __: aten.affine_grid_generator_backward(g[0], size, corners),
    )
    given = leaves(torch.randn(2, 2, 3, dtype=torch.float64))
    agree(ours, theirs, given)
    proved(ours, given)


@pytest.mark.parametrize("pad", [0, 1])
def test_convolution_over_time(pad: int) -> None:
    def theirs(*tensors: Tensor) -> Tensor:
        return aten.conv_tbc(*tensors, pad)

    ours = operator(theirs, lambda g, i, _: aten.conv_tbc_backward(g[0], *i, pad))
    shapes = (5, 2, 3), (2, 3, 4), (4,)
    given = leaves(*(torch.randn(*s, dtype=torch.float64) for s in shapes))
    agree(ours, theirs, given)
    proved(ours, given)
