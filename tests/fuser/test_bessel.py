"""I0, I1 and their scaled forms against mpmath, in C and in the interpreter."""

from __future__ import annotations

import math
import random

import mpmath
import pytest
import torch
from mpmath import mpf

from fuser import dtypes
from fuser.bessel import i0, i0e, i0e_gap, i1, i1e
from fuser.dtypes import DType
from tests.fuser.accuracy import LEAST, Special, derivatives, held

FLOATS = [dtypes.float32, dtypes.float64]
NATIVE = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def exact(order: int, x: mpf) -> mpf:
    return mpmath.besseli(order, x)


def slope(order: int, x: mpf) -> mpf:
    if order == 0:
        return exact(1, x)
    return (exact(0, x) + exact(2, x)) / 2


def curvature(order: int, x: mpf) -> mpf:
    if order == 0:
        return (exact(0, x) + exact(2, x)) / 2
    return (3 * exact(1, x) + exact(3, x)) / 4


def scaled(order: int, x: mpf) -> mpf:
    return mpmath.exp(-abs(x)) * exact(order, x)


def scaled_slope(order: int, x: mpf) -> mpf:
    return mpmath.exp(-abs(x)) * (slope(order, x) - mpmath.sign(x) * exact(order, x))


def scaled_curvature(order: int, x: mpf) -> mpf:
    found = curvature(order, x) - 2 * mpmath.sign(x) * slope(order, x)
    return mpmath.exp(-abs(x)) * (found + mpmath.sign(x) ** 2 * exact(order, x))


SPECIALS = {
    "i0": Special(i0, lambda x: exact(0, x), lambda x: slope(0, x)),
    "special_i1": Special(i1, lambda x: exact(1, x), lambda x: slope(1, x)),
    "special_i0e": Special(i0e, lambda x: scaled(0, x), lambda x: scaled_slope(0, x)),
    "special_i1e": Special(i1e, lambda x: scaled(1, x), lambda x: scaled_slope(1, x)),
}


def gap(x: mpf) -> mpf:
    with mpmath.workdps(110):
        return -scaled_slope(0, x)


def gap_slope(x: mpf) -> mpf:
    with mpmath.workdps(110):
        return -scaled_curvature(0, x)


GAP = Special(i0e_gap, gap, gap_slope)

NAMES = pytest.mark.parametrize("name", SPECIALS)


def places(name: str, dtype: DType) -> list[float]:
    """To where the function overflows or, being scaled, goes to 0."""
    draw = random.Random(0)
    most = 92 if dtype.bits == 32 else 714
    least = LEAST[dtype.bits]
    values = [draw.uniform(-3, 3) for _ in range(80)]
    values += [draw.uniform(-16, 16) for _ in range(80)]
    values += [draw.uniform(-most, most) for _ in range(60)]
    values += [8 + s * 2.0**-e for s in (1, -1) for e in range(1, 53, 3)]
    values += [s * 2.0**e for s in (1, -1) for e in range(least, 0, -least // 20)]
    values += [0.0, 8.0, most - 1e-3, -most + 0.05]
    if name.endswith("e"):
        values += [10 ** draw.uniform(1, 30) for _ in range(30)]
    return held(values, dtype)


@NATIVE
@NAMES
def test_values(name: str, dtype: DType) -> None:
    special, values = SPECIALS[name], places(name, dtype)
    # A vectorised exponential alone may be 2.6 ulp off, and i1e is flat at its top.
    bound = 8 if name == "special_i1e" else 4
    special.check(special.native(values, dtype), values, dtype, bound)
    few = values[::8]
    special.check(special.interpreted(few, dtype), few, dtype, 3)


@NATIVE
def test_gap(dtype: DType) -> None:
    values = [v for v in places("special_i0e", dtype) if v >= 8]
    GAP.check(GAP.native(values, dtype), values, dtype, 4)


ODD = [0.0, -0.0, 1e4, -1e4, 1e30, -1e30, math.nan]


@NATIVE
@NAMES
def test_odd_places_are_torchs(name: str, dtype: DType) -> None:
    """But torch's odd functions lose the sign of -0, and some are NaN at infinity."""
    special = SPECIALS[name]
    values = torch.tensor(ODD, dtype=getattr(torch, dtype.name))
    theirs = getattr(torch.special, name.removeprefix("special_"))(values).tolist()
    scale = "e" if name.endswith("e") else ""
    odd = "1" in name
    for computed in (special.native, special.interpreted):
        ours = computed(values.tolist(), dtype)
        assert ours[0] == float(not odd)
        assert math.copysign(1, ours[1]) == (-1 if odd else 1)
        for x, found, expected in zip(ODD, ours, theirs, strict=True):
            if not math.isnan(expected) or math.isnan(x):
                assert found == pytest.approx(expected, rel=1e-6, nan_ok=True), x
        end = 0.0 if scale else math.inf
        sign = -1 if odd else 1
        assert computed([math.inf, -math.inf], dtype) == [end, sign * end]


@NATIVE
@NAMES
def test_derivatives(name: str, dtype: DType) -> None:
    values = [0.0, 1e-30, -1e-3, 0.5, -0.999, 1.001, 2.0, 5.0, -7.9, 8.1, 30.0, 80.0]
    order = int("1" in name)
    exactly = [slope, curvature]
    if name.endswith("e"):
        values += [300.0, 499.0, 501.0, 1e5, -1e10]
        exactly = [scaled_slope, scaled_curvature]
    values = held(values, dtype)
    found = derivatives(name, values, dtype)
    with mpmath.workdps(60):
        for ours, function in zip(found, exactly, strict=True):
            for x, value in zip(values, ours, strict=True):
                expected = float(function(order, mpf(x)))
                bound = 1e-4 if dtype.bits == 32 else 2e-13
                assert value == pytest.approx(expected, rel=bound), x


@NAMES
def test_derivatives_at_infinity(name: str) -> None:
    first, second = derivatives(name, [math.inf, -math.inf], dtypes.float64)
    if name.endswith("e"):
        assert first == second == [0.0, 0.0]
    else:
        assert first == ([math.inf] * 2 if "1" in name else [math.inf, -math.inf])
