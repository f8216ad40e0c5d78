"""Special functions against mpmath, and against PyTorch at odd places.

The bound is |err| <= 8 (ulp(f) + |x f'| eps): a function whose value hangs on the last
bit of its argument, as near a zero, cannot be had better.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import mpmath
import pytest
import torch

from fuser import dtypes, ir
from fuser.dtypes import DType
from fuser.interpret import interpret
from fuser.ir import Node
from fuser.rounding import rounded
from fuser.simplify import simplify
from fuser.special import bernoulli, digamma, polygamma, zeta
from fuser.verify import verify

FLOATS = [dtypes.float32, dtypes.float64]
EPS = {32: 2.0**-24, 64: 2.0**-53}
LARGEST = {32: 3.4028234663852886e38, 64: 1.7976931348623157e308}


def ulp(value: float, dtype: DType) -> float:
    if dtype.bits == 64:
        return math.ulp(value)
    return 2.0 ** (max(math.frexp(value)[1], -125) - 24)


def check(
    found: float, exact: mpmath.mpf, slope: mpmath.mpf, dtype: DType, where: object
) -> None:
    """`slope` is the sum of |x f'| over the arguments."""
    if abs(exact) > LARGEST[dtype.bits]:
        assert math.isinf(found), where
        return
    allowed = 8 * (ulp(float(exact), dtype) + slope * EPS[dtype.bits])
    assert abs(mpmath.mpf(found) - exact) <= allowed, (where, found, float(exact))


def points(dtype: DType) -> list[float]:
    """(-20, 1e6), close to the poles and to the zeros too."""
    draw = random.Random(0)
    values = [draw.uniform(-20, 0) for _ in range(40)]
    values += [10 ** draw.uniform(-8, 6) for _ in range(40)]
    values += [draw.uniform(0, 12) for _ in range(20)]
    values += [s * 10.0**-e - n for n in (0, 1, 7) for s in (1, -1) for e in (2, 5)]
    values += [1.4616321449683623, -0.5040830082644554, -1.5734984731623904]
    values += [0.25, 0.5, 1.0, 2.0, 9.0, 10.0, 11.0, 1e6]
    held = {float(rounded(v, dtype)) for v in values}  # type: ignore[arg-type]
    return sorted(v for v in held if not (v <= 0 and v.is_integer()))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", range(7))
def test_polygamma(n: int, dtype: DType) -> None:
    root = one(polygamma(n, ir.input_("x", dtype)))
    with mpmath.workdps(40):
        for x in points(dtype):
            exact, slope = (mpmath.psi(k, mpmath.mpf(x)) for k in (n, n + 1))
            check(value(root, x=x), exact, abs(slope * x), dtype, x)


def hurwitz(s: mpmath.mpf, q: mpmath.mpf) -> mpmath.mpf:
    """Hurwitz's zeta to 30 digits, also where q is negative and s whole: mpmath's own
    takes minutes at some of the points below."""
    count = max(0, math.ceil(200 - q))
    w = q + count
    total = mpmath.fsum((q + k) ** -s for k in range(count))
    total += w ** (1 - s) / (s - 1) + w**-s / 2
    term = s * w ** (-s - 1)
    for k in range(1, 20):
        total += mpmath.bernoulli(2 * k) / mpmath.factorial(2 * k) * term
        term *= (s + 2 * k - 1) * (s + 2 * k) / w**2
    return total


def test_the_oracle_is_mpmaths() -> None:
    with mpmath.workdps(40):
        for s, q in [(2, 0.5), (3.5, 7.25), (1.25, 30.0)]:
            known = mpmath.zeta(s, mpmath.mpf(q))
            assert mpmath.almosteq(hurwitz(mpmath.mpf(s), mpmath.mpf(q)), known, 1e-30)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_zeta(dtype: DType) -> None:
    draw = random.Random(1)
    pairs = [
        (1 + 10 ** draw.uniform(-3, 2), 10 ** draw.uniform(-5, 5)) for _ in range(60)
    ]
    pairs += [(float(draw.randint(2, 9)), draw.uniform(-20, 0)) for _ in range(20)]
    pairs += [(2.0, -300.25), (3.0, -1000.75), (60.0, 60.5), (41.0, 9.5), (1.5, 1e-6)]
    root = one(zeta(ir.input_("s", dtype), ir.input_("q", dtype)))
    with mpmath.workdps(40):
        for pair in pairs:
            held = [float(rounded(v, dtype)) for v in pair]  # type: ignore[arg-type]
            s, q = map(mpmath.mpf, held)
            slope = abs(q * s * hurwitz(s + 1, q))
            if q > 0:
                step = s * mpmath.mpf("1e-25")
                difference = hurwitz(s + step, q) - hurwitz(s, q)
                slope += abs(s * difference / step)
            found = value(root, s=held[0], q=held[1])
            check(found, hurwitz(s, q), slope, dtype, held)


def test_far_to_the_left_no_sum_is_long() -> None:
    root = one(polygamma(1, ir.input_("x", dtypes.float64)))
    with mpmath.workdps(40):
        for x in (-1e5 - 0.25, -123456789.5, -1e15 - 0.5):
            sine, cosine = mpmath.sinpi(mpmath.mpf(x)), mpmath.cospi(mpmath.mpf(x))
            exact = (mpmath.pi / sine) ** 2 - mpmath.psi(1, 1 - mpmath.mpf(x))
            slope = 2 * mpmath.pi**3 * cosine / sine**3
            check(value(root, x=x), exact, abs(slope * x), dtypes.float64, x)


ODD = [0.0, -0.0, -1.0, -2.0, -7.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_odd_places_are_torchs(dtype: DType) -> None:
    known = getattr(torch, dtype.name)
    x = ir.input_("x", dtype)
    functions: list[tuple[Node, Callable[[torch.Tensor], torch.Tensor]]] = [
        (digamma(x), torch.digamma),
        (polygamma(1, x), lambda t: torch.special.polygamma(1, t)),
        (polygamma(2, x), lambda t: torch.special.polygamma(2, t)),
        (polygamma(3, x), lambda t: torch.special.polygamma(3, t)),
    ]
    for node, function in functions:
        expected = function(torch.tensor(ODD, dtype=known))
        for place, theirs in zip(ODD, expected.tolist(), strict=True):
            if node is functions[1][0] and place < 0:
                theirs = math.inf  # not what sin(pi x) happens to be in PyTorch
            if place == math.inf and node is not functions[0][0]:
                assert value(one(node), x=place) == 0  # where PyTorch may have NaN
                continue
            assert repr(value(one(node), x=place)) == repr(theirs), place
    root = one(zeta(ir.input_("s", dtype), x))
    for s in (0.5, 1.0, 2.0, 2.5, 3.0, math.nan):
        for q in (*ODD, -1.5, 1.0, 2.0):
            theirs = torch.special.zeta(
                torch.tensor(s, dtype=known), torch.tensor(q, dtype=known)
            )
            found = value(root, s=s, x=q)
            if q == math.inf and s > 1:  # where PyTorch has NaN
                assert found == 0
                continue
            assert found == pytest.approx(theirs.item(), nan_ok=True, rel=1e-6), (s, q)


def test_no_derivative_below_zero() -> None:
    with pytest.raises(ValueError, match="n >= 0"):
        polygamma(-1, ir.input_("x", dtypes.float64))


def test_bernoulli() -> None:
    assert [str(b) for b in bernoulli(5)] == ["1/6", "-1/30", "1/42", "-1/30", "5/66"]


def one(root: Node) -> Node:
    (found,) = simplify([root])
    verify([found])
    return found


def value(root: Node, **names: float) -> float:
    (found,) = interpret([root], names)
    assert isinstance(found, float)
    return found
