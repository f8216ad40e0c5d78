"""erfinv, erfcx and their like against mpmath, in C and interpreted."""

from __future__ import annotations

import math
import random

import mpmath
import pytest
import torch
from mpmath import mpf

from fuser import dtypes
from fuser.build import primitive
from fuser.dtypes import DType
from fuser.errorfunctions import erfcx, erfcx_gap, erfinv, normal_tail
from fuser.expr import Expr
from fuser.ir import Node
from tests.fuser.accuracy import DIGITS, LEAST, Special, derivatives, held

FLOATS = [dtypes.float32, dtypes.float64]
NATIVE = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def exact_erfcx(x: mpf) -> mpf:
    if x > 1e5:  # the asymptotic series
        return (1 - 1 / (2 * x * x) + 3 / (4 * x**4)) / (x * mpmath.sqrt(mpmath.pi))
    return mpmath.exp(x * x) * mpmath.erfc(x)


def exact_gap(x: mpf) -> mpf:
    if x > 1e5:
        return (1 - 3 / (2 * x * x)) / (2 * x * x * mpmath.sqrt(mpmath.pi))
    with mpmath.workdps(2 * DIGITS):
        return 1 / mpmath.sqrt(mpmath.pi) - x * exact_erfcx(x)


def erfinv_slope(y: mpf) -> mpf:
    return mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(mpmath.erfinv(y) ** 2)


ERFINV = Special(erfinv, mpmath.erfinv, erfinv_slope)
ERFCX = Special(erfcx, exact_erfcx, lambda x: -2 * exact_gap(x))
GAP = Special(erfcx_gap, exact_gap, lambda x: 2 * x * exact_gap(x) - exact_erfcx(x))


def above(x: Node) -> Node:
    """What of the normal distribution lies above x."""
    return (Expr(normal_tail(x)) * (-0.5 * Expr(x) * Expr(x)).apply("exp")).node


ABOVE = Special(
    above,
    lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2,
    lambda x: -mpmath.npdf(x),
)


def density(x: mpf) -> mpf:
    return 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-x * x)


ERF = Special(lambda x: primitive("erf", x), mpmath.erf, density)
ERFC = Special(lambda x: primitive("erfc", x), mpmath.erfc, density)


def tiny(dtype: DType) -> list[float]:
    """Small numbers, down to the least subnormal one."""
    least = LEAST[dtype.bits]
    return [s * 2.0**e for s in (1, -1) for e in range(least, 0, -least // 20)]


def inside(dtype: DType) -> list[float]:
    """(-1, 1), to the last numbers before the ends."""
    draw = random.Random(0)
    last = 24 if dtype.bits == 32 else 53
    values = [draw.uniform(-1, 1) for _ in range(150)]
    values += [s * (1 - 2.0**-k) for s in (1, -1) for k in range(1, last + 1)]
    values += [1 - 2 ** draw.uniform(-last, 0) for _ in range(100)]
    return held([*values, *tiny(dtype)], dtype)


def wide(dtype: DType) -> list[float]:
    """From where erfcx overflows to where it is subnormal."""
    draw = random.Random(0)
    edge, most = (-9.3824, 38) if dtype.bits == 32 else (-26.6287, 308)
    values = [draw.uniform(edge * 1.001, 0) for _ in range(100)]
    values += [edge * (1 + s * 2.0**-k) for s in (1, -1) for k in range(8, 24)]
    values += [draw.uniform(-1, 4) for _ in range(100)]
    values += [draw.uniform(4, 40) for _ in range(50)]
    values += [10 ** draw.uniform(0, most) for _ in range(60)]
    values += [-100.0, 0.0, -0.0, 1.7 * 10.0**most]
    return held([*values, *tiny(dtype)], dtype)


@NATIVE
def test_erfinv(dtype: DType) -> None:
    values = inside(dtype)
    ERFINV.check(ERFINV.native(values, dtype), values, dtype, 2)
    few = values[::8]
    ERFINV.check(ERFINV.interpreted(few, dtype), few, dtype, 2)


@NATIVE
def test_erfcx(dtype: DType) -> None:
    values = wide(dtype)
    ERFCX.check(ERFCX.native(values, dtype), values, dtype, 4)
    few = values[::8]
    ERFCX.check(ERFCX.interpreted(few, dtype), few, dtype, 4)


@NATIVE
def test_erfcx_gap(dtype: DType) -> None:
    values = [v for v in wide(dtype) if v >= 0]
    GAP.check(GAP.native(values, dtype), values, dtype, 4)


@NATIVE
def test_normal_tail(dtype: DType) -> None:
    """Times exp(-x**2 / 2), which is what it is for, and which is off by more far out
    than the difference in it that cancels there."""
    draw = random.Random(0)
    end = 12.5 if dtype.bits == 32 else 37
    values = [draw.uniform(0, end) for _ in range(200)]
    values += [draw.uniform(0, 2) for _ in range(100)]
    values = held([0.0, *values, *map(abs, tiny(dtype)), end], dtype)
    ABOVE.check(ABOVE.native(values, dtype), values, dtype, 4)
    few = values[::8]
    ABOVE.check(ABOVE.interpreted(few, dtype), few, dtype, 4)


@NATIVE
def test_the_primitives(dtype: DType) -> None:
    """erf and erfc are the C library's, vectorised or not: good to the ends."""
    draw = random.Random(0)
    values = [draw.uniform(-6, 6) for _ in range(150)]
    values += [draw.uniform(3.5, 4.0) for _ in range(50)]
    values += [draw.uniform(6, 28) for _ in range(80)]
    values = held([*values, 3.653322696685791, 0.0, *tiny(dtype)], dtype)
    for special in (ERF, ERFC):
        special.check(special.native(values, dtype), values, dtype, 4)


ODD = [0.0, -0.0, 1.0, -1.0, 1.5, -2.0, 1e300, -1e300, math.inf, -math.inf, math.nan]


@NATIVE
@pytest.mark.parametrize("name", ["erfinv", "erfcx"])
def test_odd_places_are_torchs(name: str, dtype: DType) -> None:
    special = {"erfinv": ERFINV, "erfcx": ERFCX}[name]
    values = torch.tensor(ODD, dtype=getattr(torch, dtype.name))
    theirs = getattr(torch.special, name)(values).tolist()
    for computed in (special.native, special.interpreted):
        ours = computed(values.tolist(), dtype)
        for x, found, expected in zip(ODD, ours, theirs, strict=True):
            assert found == pytest.approx(expected, rel=1e-6, nan_ok=True), x
            if found == 0:
                assert math.copysign(1, found) == math.copysign(1, expected), x


def test_erfcx_is_exact_at_0() -> None:
    for dtype in FLOATS:
        assert ERFCX.native([0.0, -0.0], dtype) == [1.0, 1.0]


@NATIVE
def test_derivatives_of_erfinv(dtype: DType) -> None:
    places = held([0.0, 1e-30, -1e-3, 0.25, -0.5, 0.9, 0.9999], dtype)
    found = derivatives("erfinv", places, dtype)
    for y, first, second in zip(places, *found, strict=True):
        x, slope = mpmath.erfinv(y), erfinv_slope(mpf(y))
        assert first == pytest.approx(float(slope), rel=tolerance(dtype)), y
        expected = float(2 * x * slope**2)
        assert second == pytest.approx(expected, rel=tolerance(dtype)), y


@NATIVE
def test_derivatives_of_erfcx(dtype: DType) -> None:
    places = [-8.0, -3.0, -0.5, -1e-9, 0.0, 1e-9, 0.25, 1.0, 3.0, 7.0, 20.0, 27.0]
    places = held([*places, 1e3, 1e8, 1e12], dtype)
    found = derivatives("special_erfcx", places, dtype)
    with mpmath.workdps(DIGITS):
        for place, first, second in zip(places, *found, strict=True):
            x = mpf(place)
            slope = -2 * exact_gap(x)
            curvature = 2 * exact_erfcx(x) + 2 * x * slope
            if place > 1e4:
                curvature = 2 / (mpmath.sqrt(mpmath.pi) * x**3)
            assert first == pytest.approx(float(slope), rel=tolerance(dtype)), x
            expected = float(curvature)
            assert second == pytest.approx(expected, rel=tolerance(dtype)), x


def test_derivatives_at_the_ends() -> None:
    places = [-math.inf, math.inf]
    assert derivatives("special_erfcx", places, dtypes.float64) == [
        [-math.inf, 0.0],
        [math.inf, 0.0],
    ]
    first, second = derivatives("erfinv", [-1.0, 1.0], dtypes.float64)
    assert first == [math.inf, math.inf]
    assert second == [-math.inf, math.inf]


def tolerance(dtype: DType) -> float:
    return 2e-5 if dtype.bits == 32 else 1e-13
