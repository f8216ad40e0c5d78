"""lgamma, digamma, polygamma and zeta against mpmath, in C and in the interpreter."""

from __future__ import annotations

import math
import random
from functools import cache, partial

import mpmath
import pytest
import torch
from mpmath import mpf

from atentriton.specs import TO_TORCH
from fuser import dtypes, ir
from fuser.dtypes import DType
from fuser.gammas import digamma, lgamma, polygamma, zeta
from fuser.pipeline import default_compiler
from fuser.specs import TensorSpec
from tests.fuser.accuracy import LEAST, Special, derivatives, held
from tests.fuser.pairs import Special2, derivative, held_pairs

FLOATS = [dtypes.float32, dtypes.float64]
NATIVE = pytest.mark.parametrize("dtype", FLOATS, ids=str)
POLES = [0.0, -0.0, -1.0, -2.0, -7.0, -1e10]


def log_gamma(x: mpf) -> mpf:
    if x > 50:
        return mpmath.loggamma(x)
    if x < -50:
        return mpmath.log(mpmath.pi / abs(mpmath.sinpi(x))) - mpmath.loggamma(1 - x)
    return mpmath.log(abs(mpmath.gamma(x)))


def psi(n: int, x: mpf) -> mpf:
    """mpmath's, but that from far on the left would be a sum from there to 0."""
    if x > -50 or n == 0:
        return mpmath.psi(n, x)
    mirror = mpf(mpmath.nint(x))
    near = x - mirror  # pi cot(pi x) is the sum of 1 / (x - k) over every integer k
    rest = (-1) ** n * mpmath.psi(n, 1 - near) - mpmath.psi(n, near)
    return (-1) ** n * mpmath.psi(n, 1 - x) - rest


LGAMMA = Special(lgamma, log_gamma, mpmath.digamma)
DIGAMMA = Special(digamma, mpmath.digamma, partial(psi, 1))


@cache
def polygammas(n: int) -> Special:
    return Special(partial(polygamma, n), partial(psi, n), partial(psi, n + 1))


def around(places: list[float], dtype: DType) -> list[float]:
    """Beside the places, at distances down to the last bit."""
    steps = range(2, -LEAST[dtype.bits] // 6, 5)
    return [x + s * 2.0**-e for x in places for e in steps for s in (1, -1)]


def places(dtype: DType, zeros: list[float], count: int) -> list[float]:
    """The whole range: close to poles and zeros, far out, and next to 0."""
    draw = random.Random(0)
    values = [draw.uniform(-5, 5) for _ in range(2 * count)]
    values += [draw.uniform(-30, 12) for _ in range(count)]
    values += [-(10 ** draw.uniform(1, 4)) for _ in range(count // 4)]
    values += [10 ** draw.uniform(-8, 8) for _ in range(count // 2)]
    values += [s * 2.0**e for s in (1, -1) for e in range(LEAST[dtype.bits], 0, 19)]
    values += around([0.0, -1.0, -4.0, *zeros], dtype)
    values += [0.5, 3.0, 4.0, -0.5, -1.5, -2.61, 1e6, 1e15, 1e30]
    return [v for v in held(values, dtype) if v > 0 or not v.is_integer()]


LGAMMA_ZEROS = [1.0, 2.0, -2.4570247382208006, -2.7476826467274127, -3.1435808883499798]
DIGAMMA_ZEROS = [1.4616321449683623, -0.5040830082644554, -1.5734984731623904]


@NATIVE
def test_lgamma(dtype: DType) -> None:
    values = [*places(dtype, LGAMMA_ZEROS, 200), 1e36]
    LGAMMA.check(LGAMMA.native(values, dtype), values, dtype, 4)
    few = values[::8]
    LGAMMA.check(LGAMMA.interpreted(few, dtype), few, dtype, 4)


@NATIVE
def test_digamma(dtype: DType) -> None:
    values = places(dtype, DIGAMMA_ZEROS, 150)
    DIGAMMA.check(DIGAMMA.native(values, dtype), values, dtype, 4)
    few = values[::8]
    DIGAMMA.check(DIGAMMA.interpreted(few, dtype), few, dtype, 4)


@NATIVE
@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
def test_polygamma(n: int, dtype: DType) -> None:
    special = polygammas(n)
    values = places(dtype, [-0.5, -1.5], 50)
    special.check(special.native(values, dtype), values, dtype, 8)
    few = values[::8]
    special.check(special.interpreted(few, dtype), few, dtype, 8)


@NATIVE
def test_far_to_the_left_it_is_as_exact(dtype: DType) -> None:
    values = held([-1e5 - 0.25, -8388607.5, -4e15 - 0.5], dtype)
    values = [v for v in values if not v.is_integer()]
    for special in (LGAMMA, DIGAMMA, polygammas(1), polygammas(2)):
        special.check(special.native(values, dtype), values, dtype, 8)


@NATIVE
def test_lgamma_at_odd_places(dtype: DType) -> None:
    for computed in (LGAMMA.native, LGAMMA.interpreted):
        assert computed([1.0, 2.0], dtype) == [0.0, 0.0]
        infinite = [*POLES, math.inf, -math.inf, 3e38 if dtype.bits == 32 else 1e308]
        assert computed(infinite, dtype) == [math.inf] * len(infinite)
        assert math.isnan(computed([math.nan], dtype)[0])


@NATIVE
def test_digamma_at_odd_places(dtype: DType) -> None:
    odd = [*POLES, math.inf, -math.inf, math.nan]
    theirs = torch.digamma(torch.tensor(odd, dtype=TO_TORCH[dtype])).tolist()
    for computed in (DIGAMMA.native, DIGAMMA.interpreted):
        assert list(map(repr, computed(odd, dtype))) == list(map(repr, theirs))


@NATIVE
@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_polygamma_at_odd_places(n: int, dtype: DType) -> None:
    """As in SciPy; PyTorch's first one has large numbers at the poles."""
    special, sign = polygammas(n), 1 if n % 2 else -1
    poles = [*POLES, -math.inf]
    for computed in (special.native, special.interpreted):
        assert computed(poles, dtype) == [sign * math.inf] * len(poles)
        end, broken = computed([math.inf, math.nan], dtype)
        assert end == 0 and math.copysign(1, end) == sign
        assert math.isnan(broken)


def test_no_derivative_below_zero() -> None:
    with pytest.raises(ValueError, match="n >= 0"):
        polygamma(-1, ir.input_("x", dtypes.float64))


def test_polygamma_0_is_digamma() -> None:
    x = ir.input_("x", dtypes.float64)
    assert polygamma(0, x) is digamma(x)


def test_a_high_order_goes_as_far_as_its_result() -> None:
    special = polygammas(60)
    values = [2.0, 20.0, 150.0, 1e5]
    special.check(special.native(values, dtypes.float64), values, dtypes.float64, 8)


@NATIVE
@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_derivatives(name: str, dtype: DType) -> None:
    order = ["lgamma", "digamma"].index(name)
    values = held([-3.7, -0.4, 1e-3, 0.6, 1.0, 1.46, 2.0, 3.5, 12.0, 1e4], dtype)
    found = derivatives(name, values, dtype)
    bound = 1e-5 if dtype.bits == 32 else 1e-13
    for n, ours in enumerate(found):
        for x, value in zip(values, ours, strict=True):
            assert value == pytest.approx(float(mpmath.psi(order + n, x)), rel=bound), x


def test_the_slope_of_lgamma_at_0() -> None:
    (slopes, _) = derivatives("lgamma", [0.0, 1e-30], dtypes.float64)
    assert slopes == [-math.inf, pytest.approx(-1e30)]


@pytest.mark.parametrize("name", ["lgamma", "digamma", "special_zeta"])
def test_integers_become_floats(name: str) -> None:
    compiler = default_compiler()
    count = len(compiler.operator(name).signature.arguments)
    program = compiler.program(name, [TensorSpec(dtypes.int64)] * count)
    assert program.outputs[0].dtype == dtypes.float32


# -- zeta ------------------------------------------------------------------------------

BERNOULLI = [mpmath.bernoulli(2 * k) / mpmath.factorial(2 * k) for k in range(1, 26)]


def hurwitz(s: mpf, q: mpf) -> mpf:
    """The sum, also for a negative q and a whole s; mpmath's loses digits in places."""
    count = 30 + max(0, math.ceil(-q))
    total = mpmath.fsum((q + k) ** -s for k in range(count))
    w = q + count
    total += w ** (1 - s) / (s - 1) + w**-s / 2
    factor = s * w ** (-s - 1)
    for k, b in enumerate(BERNOULLI, start=1):
        total += b * factor
        factor *= (s + (2 * k - 1)) * (s + 2 * k) / w**2
    return total


def exact_zeta(s: mpf, q: mpf) -> tuple[mpf, mpf]:
    with mpmath.workdps(50):
        slopes = abs(q * s * hurwitz(s + 1, q))
        if q > 0:
            slopes += abs(derivative(lambda t: hurwitz(t, q), s))
        return hurwitz(s, q), slopes


ZETA = Special2(zeta, exact_zeta)


@NATIVE
def test_zeta(dtype: DType) -> None:
    draw = random.Random(1)
    pairs = [
        (1 + 10 ** draw.uniform(-3, 2), 10 ** draw.uniform(-5, 5)) for _ in range(80)
    ]
    pairs += [(1 + draw.uniform(0, 9), draw.uniform(0, 12)) for _ in range(80)]
    pairs += [(float(draw.randint(2, 12)), draw.uniform(-20, 0)) for _ in range(60)]
    pairs += [(draw.uniform(5, 80), draw.uniform(1, 60)) for _ in range(60)]
    pairs += [(2.0, -300.25), (3.0, -1000.75), (60.0, 60.5), (41.0, 9.5), (1.5, 1e-6)]
    pairs = held_pairs([*pairs, (1.25, 1e30), (2.0, 1e30)], dtype)
    ZETA.check(ZETA.native(pairs, dtype), pairs, dtype, 8)
    few = pairs[::8]
    ZETA.check(ZETA.interpreted(few, dtype), few, dtype, 8)


@NATIVE
def test_zeta_at_odd_places(dtype: DType) -> None:
    """As in PyTorch, but that nothing is lost of NaN, and that it is 0 at infinity."""
    ends = [0.5, 1.0, 1.5, 2.0, 3.0, 400.0]
    pairs = [(s, q) for s in ends for q in (*POLES, -1.5, 1.0, 2.0, -math.inf)]
    theirs = torch.special.zeta(
        *torch.tensor(pairs, dtype=TO_TORCH[dtype]).unbind(1)
    ).tolist()
    zeros = [(s, math.inf) for s in (1.5, 2.0, math.inf)] + [(math.inf, 2.0)]
    nans = [(1.0, math.nan), (2.0, math.nan), (math.nan, 0.0), (math.nan, 2.0)]
    for computed in (ZETA.native, ZETA.interpreted):
        for pair, found, expected in zip(
            pairs, computed(pairs, dtype), theirs, strict=True
        ):
            assert found == pytest.approx(expected, rel=1e-4, nan_ok=True), pair
        assert computed(zeros, dtype) == [0.0] * len(zeros)
        assert all(map(math.isnan, computed(nans, dtype)))
        assert computed([(math.inf, 1.0), (math.inf, 0.5)], dtype) == [1.0, math.inf]
