"""The exponential function of C kernels in float32, over all its arguments."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fuser.dtypes import float32
from fuser.optable import PRIMITIVES
from tests import rows
from tests.native import run

LEAST = 2.0**-149


def exponentials(x: Tensor) -> Tensor:
    (found,) = run(rows.program(PRIMITIVES["exp"], float32), [x])
    return found


def units(found: Tensor, exact: Tensor) -> Tensor:
    """The errors, in units of the last place of the exact values."""
    unit = torch.ldexp(torch.ones_like(exact), torch.frexp(exact).exponent - 24)
    return (found.double() - exact).abs() / unit.clamp_min(LEAST)


@pytest.mark.parametrize(
    ("low", "high"), [(-104, -87), (-87, -1), (-1, 0), (0, 1e-6), (0, 1), (1, 88.7228)]
)
def test_within_three_units(low: float, high: float) -> None:
    """Which is libmvec's bound, where the processor has none of our own."""
    torch.manual_seed(0)
    x = torch.rand(200_000, dtype=torch.float64).mul(high - low).add(low).float()
    assert units(exponentials(x), x.double().exp()).max() < 3


def test_numbers_of_any_bits() -> None:
    torch.manual_seed(1)
    x = torch.randint(-(1 << 31), 1 << 31, (200_000,)).int().view(torch.float32)
    found, exact = exponentials(x), x.double().exp()
    assert torch.equal(found.isnan(), x.isnan())
    limit = torch.finfo(torch.float32).max
    assert torch.equal(found.isinf(), exact > limit * (1 + 2.0**-25))
    finite = found.isfinite()
    assert units(found[finite], exact[finite]).max() < 3


def test_the_ends() -> None:
    ends = [-math.inf, -1e30, -104.0, -0.0, 0.0, 88.722836, 1e30, math.inf]
    want = [0, 0, 0, 1, 1, math.inf, math.inf, math.inf]
    last = torch.tensor([88.72283, -103.9, math.nan])
    assert exponentials(torch.tensor(ends)).tolist() == want
    found = exponentials(last)
    assert found[0].isfinite() and found[0] > 3.4e38
    assert found[1] == LEAST
    assert found[2].isnan()
