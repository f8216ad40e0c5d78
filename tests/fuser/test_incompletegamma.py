"""igamma and igammac against mpmath, in C and in the interpreter, with derivatives."""

from __future__ import annotations

import math
import random
from functools import cache

import mpmath
import pytest
from mpmath import mpf

from fuser import dtypes, ir
from fuser.derive import Deriver
from fuser.dtypes import DType
from fuser.errors import DerivativeNotImplemented
from fuser.incompletegamma import igamma, igammac
from fuser.interpret import interpret
from fuser.ir import Node
from fuser.pipeline import default_compiler
from fuser.specs import TensorSpec
from tests.fuser.oracles import deriver, expanded
from tests.fuser.pairs import Special2, derivative, held_pairs

FLOATS = [dtypes.float32, dtypes.float64]
NATIVE = pytest.mark.parametrize("dtype", FLOATS, ids=str)
NAMES = pytest.mark.parametrize("name", ["igamma", "igammac"])
Pairs = list[tuple[float, float]]


def density(a: mpf, x: mpf) -> mpf:
    """The derivative of P(a, x) by x."""
    return mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))


def both(a: mpf, x: mpf) -> tuple[mpf, mpf]:
    """P(a, x) and Q(a, x), the smaller one with all digits."""
    if x < a:
        lower = mpmath.gammainc(a, 0, x, regularized=True)
        return lower, 1 - lower
    upper = mpmath.gammainc(a, x, regularized=True)
    return 1 - upper, upper


@cache
def exact(a: mpf, x: mpf) -> tuple[mpf, mpf, mpf]:
    """P(a, x), Q(a, x), and the sum of |a dP/da| and |x dP/dx|."""
    with mpmath.workdps(50):
        by_a = abs(derivative(lambda t: both(t, x)[x >= a], a))
        return *both(a, x), by_a + x * density(a, x)


SPECIALS = {
    "igamma": Special2(igamma, lambda a, x: exact(a, x)[::2]),
    "igammac": Special2(igammac, lambda a, x: exact(a, x)[1:]),
}


def places(dtype: DType, most: float) -> Pairs:
    """Every method, and the seams between them; most of all around x = a."""
    draw = random.Random(0)
    pairs: Pairs = []
    for _ in range(50):
        pairs.append((10 ** draw.uniform(-10, 1.3), 10 ** draw.uniform(-8, 2)))
        pairs.append((draw.uniform(0.01, 2), draw.uniform(0.01, 2)))
        pairs.append((10 ** draw.uniform(-12, 0), draw.uniform(0.1, 1.5)))
        a = draw.uniform(0.1, 22)
        pairs.append((a, a * draw.uniform(0.1, 3)))
        a = 10 ** draw.uniform(1, math.log10(most))
        pairs.append((a, max(a + draw.gauss(0, 3) * math.sqrt(a), 1.0)))
        a = 10 ** draw.uniform(1, 3)
        pairs.append((a, a * draw.uniform(0.3, 2.5)))
    for a in (1.0, 7.999, 8.0, 19.999, 20.0, 300.0):
        pairs += [(a, a * s) for s in (0.1, 0.4399, 0.4401, 1.0, 1.8699, 1.8701, 4.0)]
    pairs += [(0.5, x) for x in (0.9999, 1.0, 1.2499, 1.25, 79.0, 81.0, 160.0)]
    pairs += [(18.5, 450.0), (7.5, 90.0), (2.0, 1e-30), (1e-30, 0.5), (most, most)]
    return held_pairs(pairs, dtype)


@NATIVE
@NAMES
def test_values(name: str, dtype: DType) -> None:
    special, pairs = SPECIALS[name], places(dtype, 1e6)
    special.check(special.native(pairs, dtype), pairs, dtype, 8)
    few = pairs[::6]
    special.check(special.interpreted(few, dtype), few, dtype, 8)


@NATIVE
def test_no_value_is_below_0_or_above_1(dtype: DType) -> None:
    draw = random.Random(1)
    pairs = [
        (10 ** draw.uniform(-8, 3), 10 ** draw.uniform(-8, 3)) for _ in range(5000)
    ]
    for special in SPECIALS.values():
        found = special.native(pairs, dtype)
        assert min(found) >= 0 and max(found) <= 1


@NATIVE
def test_the_parts_make_a_whole(dtype: DType) -> None:
    pairs = places(dtype, 1e6)
    lower, upper = (SPECIALS[n].native(pairs, dtype) for n in ("igamma", "igammac"))
    for p, q, pair in zip(lower, upper, pairs, strict=True):
        assert p + q == pytest.approx(1, abs=1e-6 if dtype.bits == 32 else 1e-15), pair


ENDS = [
    # a, x, P(a, x)
    (2.0, 0.0, 0.0),
    (2.0, -0.0, 0.0),
    (1e-30, 0.0, 0.0),
    (2.0, math.inf, 1.0),
    (0.0, 2.0, 1.0),
    (-0.0, 2.0, 1.0),
    (0.0, math.inf, 1.0),
    (math.inf, 2.0, 0.0),
    (math.inf, 0.0, 0.0),
    (0.0, 0.0, math.nan),
    (math.inf, math.inf, math.nan),
    (-1.0, 2.0, math.nan),
    (2.0, -1.0, math.nan),
    (-1.0, 0.0, math.nan),
    (-math.inf, 1.0, math.nan),
    (math.nan, 0.0, math.nan),
    (math.nan, math.inf, math.nan),
    (0.0, math.nan, math.nan),
    (math.inf, math.nan, math.nan),
    (1e30, 1.0, 0.0),
    (1e30, 3e30, 1.0),
    (3e38, 1e38, 0.0),
    (1.0, 3e38, 1.0),
]


@NATIVE
def test_ends(dtype: DType) -> None:
    """As in PyTorch, but that nothing is lost of NaN."""
    pairs = [(a, x) for a, x, _ in ENDS]
    expected = [p for _, _, p in ENDS]
    lower, upper = SPECIALS["igamma"], SPECIALS["igammac"]
    for found in (lower.native(pairs, dtype), lower.interpreted(pairs, dtype)):
        assert list(map(repr, found)) == list(map(repr, expected))
    for found in (upper.native(pairs, dtype), upper.interpreted(pairs, dtype)):
        assert list(map(repr, found)) == [repr(1 - p) for p in expected]


# -- derivatives -----------------------------------------------------------------------


def graph(name: str) -> tuple[Node, Node, Node]:
    """The operator's arguments and its value, in float64."""
    program = default_compiler().program(name, [TensorSpec(dtypes.float64)] * 2)
    return (*program.inputs, *program.roots)


def slope(derive: Deriver, root: Node, leaf: Node) -> Node:
    (found,) = derive.vjp([root], [ir.const(1, dtypes.float64)], [leaf])
    assert found is not None
    return found


@NAMES
def test_derivatives_by_x(name: str) -> None:
    _, x, root = graph(name)
    first = slope(deriver(), root, x)
    second = slope(deriver(), first, x)
    sign = 1 if name == "igamma" else -1
    for a_, x_ in [(0.5, 0.3), (1.0, 2.0), (2.5, 4.0), (30.0, 29.0), (7.0, 90.0)]:
        a, at = mpf(a_), mpf(x_)
        expected = (density(a, at), density(a, at) * ((a - 1) / at - 1))
        found = interpret(expanded([first, second]), {"self": a_, "other": x_})
        for ours, right in zip(found, expected, strict=True):
            assert ours == pytest.approx(sign * float(right), rel=1e-12), (a_, x_)


@NAMES
def test_the_slope_derives_by_a(name: str) -> None:
    a, x, root = graph(name)
    mixed = slope(deriver(), slope(deriver(), root, x), a)
    sign = 1 if name == "igamma" else -1
    (found,) = interpret(expanded([mixed]), {"self": 2.5, "other": 4.0})
    right = density(mpf(2.5), mpf(4)) * (mpmath.log(4) - mpmath.digamma(2.5))
    assert found == pytest.approx(sign * float(right), rel=1e-12)


@NAMES
def test_the_derivative_by_a_is_missing_only_if_it_is_asked_for(name: str) -> None:
    compiler = default_compiler()
    program = compiler.program(name, [TensorSpec(dtypes.float32)] * 2)
    compiler.vjp(program, (False, True), (True,))
    compiler.jvp(program, (False, True))
    for wanted in ((True, False), (True, True)):
        with pytest.raises(DerivativeNotImplemented, match=f"{name}: input"):
            compiler.vjp(program, wanted, (True,))
