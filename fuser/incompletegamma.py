"""The incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x).

Comes in: nodes of one floating dtype. Goes out: a node, computed in that dtype. Loops
have a fixed count and branches are selected, not taken, so that every target vectorises
them; what an unselected branch gives does not matter. tools/fit_gammas.py made the
coefficients. Sources: the Digital Library of Mathematical Functions (DLMF), chapter 8;
N. M. Temme, "On the computation of the incomplete gamma functions for large values of
the parameters", in Algorithms for Approximation (1987); A. R. DiDonato and
A. H. Morris, "Computation of the incomplete gamma function ratios and their inverse",
ACM TOMS 12 (1986).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from fuser import ir
from fuser.expr import Expr, polynomial
from fuser.ir import Loop, Node
from fuser.special import operator


@operator("igamma(Tensor self, Tensor other) -> Tensor", "int_to_float")
def igamma(self: Node, other: Node) -> Node:
    """P(a, x), the lower part: 0 at x = 0, 1 at a = 0 and at x = inf, 0 at a = inf.

    NaN for a negative argument, and where both are 0 or both are infinite.
    """
    place = _place(Expr(self), Expr(other))
    front = _front(place)
    short = place.lower | (place.x < _SMALL[place.bits])
    value = short.where(_below(place, front), 1 - _above(place, front))
    tail = _uniform_tail(place, front)
    value = place.uniform.where(place.lower.where(tail, 1 - tail), value)
    return _with_ends(place, value, 0.0).node


@operator("igammac(Tensor self, Tensor other) -> Tensor", "int_to_float")
def igammac(self: Node, other: Node) -> Node:
    """Q(a, x), the upper part: 1 at x = 0, 0 at a = 0 and at x = inf, 1 at a = inf.

    NaN for a negative argument, and where both are 0 or both are infinite.
    """
    place = _place(Expr(self), Expr(other))
    front = _front(place)
    value = place.lower.where(1 - _below(place, front), _above(place, front))
    near_0 = place.a.apply("fmax", place.x) < _SMALL[place.bits]
    value = near_0.where(_near_0(place, near_0), value)
    tail = _uniform_tail(place, front)
    value = place.uniform.where(place.lower.where(1 - tail, tail), value)
    return _with_ends(place, value, 1.0).node


def _with_ends(place: _Place, value: Expr, at_0: float) -> Expr:
    """The value, never above 1, and what it is at the ends of the range; `at_0` where x
    is 0."""
    a, x = place.a, place.x
    nan, start, end = x.lift(math.nan), x.lift(at_0), x.lift(1 - at_0)
    at_start = x.equals(0) | a.equals(math.inf)
    at_end = a.equals(0) | x.equals(math.inf)
    value = at_start.where(start, at_end.where(end, value.apply("fmin", 1.0)))
    defined = (a >= 0) & (x >= 0)  # which no NaN is
    return defined.where((at_start & at_end).where(nan, value), nan)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a point lies, and which of the methods is meant for it.

    `large` is for an `a` to which Temme's expansion applies, `uniform` if x is also
    near enough to it, `lower` for an x below a. `phi` is x / a - 1 - log(x / a) where
    `a` is large, else 0.
    """

    a: Expr
    x: Expr
    large: Expr
    uniform: Expr
    lower: Expr
    phi: Expr

    @property
    def bits(self) -> int:
        return self.a.node.dtype.bits


def _place(a: Expr, x: Expr) -> _Place:
    large = a >= _LARGE[a.node.dtype.bits]
    one = a.lift(1.0)
    base, point = large.where(a, one), large.where(x, one)
    excess, ratio = (point - base) / base, point / base
    near = (excess > -0.56) & (excess < 0.87)
    # This loses digits where it is small, but none that the result has.
    beside = near.where(excess, 0.0)
    beside = (beside - beside.apply("log1p")).apply("fmax", 0.0)
    phi = near.where(beside, excess - near.where(one, ratio).apply("log"))
    return _Place(a, x, large, large & near, x < a, phi)


def _times(front: Expr, other: Expr) -> Expr:
    """The product; 0 where the factor in front is: there `other` may be NaN."""
    return (front > 0).where(front * other, 0.0)


# -- the factor in front, x**a exp(-x) / gamma(a + 1) ----------------------------------


def _front(place: _Place) -> Expr:
    """The factor, without a difference of large logarithms: if `a` is large it is
    exp(-a phi) / sqrt(2 pi a) over Stirling's correction (DLMF 5.11.3)."""
    large, a = place.large, place.a
    one = a.lift(1.0)
    power, x = large.where(one, a), large.where(one, place.x)
    # In two steps: the exponential alone would vanish before the product does. Beyond
    # the second one there is nothing left.
    step = _STEP[place.bits]
    x = x.apply("fmin", 2 * step)
    first = x.apply("fmin", step)
    direct = x**power * _reciprocal_gamma(power)
    direct = direct * (-first).apply("exp") * (first - x).apply("exp")
    base = large.where(a, one)
    exponent = base * place.phi
    seen = exponent < _UNSEEN[place.bits]
    correction = (1 + _beta(place)[1] / base) * (base * (2 * math.pi)).apply("sqrt")
    indirect = (-seen.where(exponent, 0.0)).apply("exp") / correction
    return large.where(seen.where(indirect, 0.0), direct)


def _reciprocal_gamma(a: Expr) -> Expr:
    """1 / gamma(1 + a) for a from 0 to where it is large, by recurrence from [1, 2]."""
    dtype = a.node.dtype
    factor, product = Expr(ir.param(0, dtype)), Expr(ir.param(1, dtype))
    step = ((factor - 1).node, (product * factor.apply("fmax", 1.0)).node)
    rounds = _LARGE[dtype.bits] - 1
    start = (a.node, a.lift(1.0).node)
    _, product = map(Expr, ir.iterate(start, (), Loop(step, None, rounds)))
    return (1 + _reciprocal_gamma_rest(a - a.apply("floor"))) / product


def _reciprocal_gamma_rest(t: Expr) -> Expr:
    """1 / gamma(1 + t) - 1 for t in [0, 1], exact at both ends."""
    return t * (1 - t) * polynomial(t, _RECIPROCAL_GAMMA[t.node.dtype.bits])


# -- x below a: the power series -------------------------------------------------------


def _below(place: _Place, front: Expr) -> Expr:
    """P(a, x) by its series, the factor in front times 1 + x / (a + 1) + x**2 / ((a +
    1) (a + 2)) + ... (DLMF 8.7.1), summed from its end as a fraction without divisions.
    """
    a, dtype = place.a, place.a.node.dtype
    scale = place.large.where(1 / a, 1 / 16)
    k, above, below, start, x, scale_ = (Expr(ir.param(i, dtype)) for i in range(6))
    deeper = (start + k) * scale_ * below
    step = ((k - 1).node, (deeper + x * above).node, deeper.node)
    rounds = _SERIES[place.bits]
    state = (a.lift(rounds).node, a.lift(1.0).node, a.lift(1.0).node)
    given = (a.node, (place.x * scale).node, scale.node)
    _, above, below = map(Expr, ir.iterate(state, given, Loop(step, None, rounds)))
    return _times(front, above / below)


# -- x above a: the continued fraction -------------------------------------------------


def _above(place: _Place, front: Expr) -> Expr:
    """Q(a, x), `a` times the factor in front over

        x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ...))

    (DLMF 8.9.2, contracted), from its end as a fraction without divisions. The end is
    put to what the fraction would be with coefficients that grow no more.
    """
    rounds, dtype = _FRACTION[place.bits], place.a.node.dtype
    elsewhere = place.lower | place.uniform
    a = elsewhere.where(place.a.lift(1.0), place.a)
    x = elsewhere.where(place.x.lift(2.0), place.x)
    scale = 1 / (x + 2 * rounds)
    rise = (x - a) * scale
    root = (rise * rise + (x * scale) * (scale * (4 * rounds + 4))).apply("sqrt")
    end = (rise + scale * (2 * rounds) + root) * 0.5
    k, above, below, a_, rise_, scale_ = (Expr(ir.param(i, dtype)) for i in range(6))
    here = k * scale_
    taken = here * ((k - a_) * scale_) * below
    step = (
        (k - 1).node,
        ((rise_ + 2 * here - scale_) * above - taken).node,
        above.node,
    )
    state = (x.lift(rounds).node, end.node, x.lift(1.0).node)
    given = (a.node, rise.node, scale.node)
    _, above, below = map(Expr, ir.iterate(state, given, Loop(step, None, rounds)))
    return _times(front, a * scale * (below / above))


# -- a and x near 0 --------------------------------------------------------------------


def _near_0(place: _Place, near_0: Expr) -> Expr:
    """Q(a, x) for arguments below _SMALL, with all its digits where `a` is small
    (DiDonato and Morris, section 2).

    It is 1 - g p (1 - a s) with g = 1 / gamma(1 + a), p = x**a and s the sum of
    -(-x)**k / (k! (a + k)) over k > 0; g - 1 and p - 1 are what is computed.
    """
    one = place.a.lift(1.0)
    a, x = near_0.where(place.a, one), near_0.where(place.x, one)
    t = a - a.apply("floor")
    g = _reciprocal_gamma_rest(t)
    g = (a < 1).where(g, (g - t) / a)
    p = (a * x.apply("log")).apply("expm1")
    rest = g + p + g * p
    return (1 + rest) * a * _alternating(a, x) - rest


def _alternating(a: Expr, x: Expr) -> Expr:
    """The sum of -(-x)**k / (k! (a + k)) over k > 0, from its end, as a fraction."""
    dtype = a.node.dtype
    k, above, below, a_, x_ = (Expr(ir.param(i, dtype)) for i in range(5))
    place = a_ + k
    deeper = (k + 1) * (place + 1) * below
    step = ((k - 1).node, (deeper - x_ * place * above).node, deeper.node)
    rounds = _ALTERNATING[dtype.bits]
    state = (a.lift(rounds).node, a.lift(1.0).node, a.lift(1.0).node)
    given = (a.node, x.node)
    _, above, below = map(Expr, ir.iterate(state, given, Loop(step, None, rounds)))
    return x * above / ((a + 1) * below)


# -- x near a large a: Temme's expansion -----------------------------------------------


def _uniform_tail(place: _Place, front: Expr) -> Expr:
    """The smaller one: P(a, x) for x < a, else Q(a, x) (DLMF 8.12.3 and 8.12.4)."""
    phi = place.uniform.where(place.phi, 0.0)
    gauss = (phi * place.a).apply("sqrt").apply("erfc") * 0.5
    size = (phi * 2).apply("sqrt")
    eta = place.lower.where(-size, size)
    series = eta.lift(0.0)
    for term in reversed(_beta(place)):
        series = series * eta + term
    return gauss + front * place.lower.where(-series, series)


def _beta(place: _Place) -> list[Expr]:
    """The coefficients of Temme's series in eta, by recurrence from the last one; the
    second one over `a` is what gamma(a) is above Stirling's formula, less 1."""
    inverse = 1 / place.large.where(place.a, _LARGE[place.bits])
    f = _temme(_UNIFORM[place.bits])
    beta = [place.a.lift(float(value)) for value in f[-2:]]
    for n in range(len(f) - 2, 0, -1):
        beta.insert(0, beta[1] * inverse * (n + 1) + float(f[n]))
    return beta


@cache
def _temme(count: int) -> tuple[Fraction, ...]:
    """The coefficients in eta of eta / mu, where eta**2 / 2 = mu - log(1 + mu).

    The derivative of that, mu mu' = eta (1 + mu), gives those of mu one by one.
    """
    mu = [Fraction(0), Fraction(1)]
    for n in range(2, count + 2):
        known = sum((mu[i] * mu[n + 1 - i] for i in range(2, n)), Fraction(0))
        mu.append(mu[n - 1] / (n + 1) - known / 2)
    f = [Fraction(1)]
    for n in range(1, count):
        f.append(-sum((mu[j + 1] * f[n - j] for j in range(1, n + 1)), Fraction(0)))
    return tuple(f)


# -- limits and coefficients, by the bits of the dtype ---------------------------------

# From this `a` on Temme's expansion has all digits, and how many terms it then needs.
_LARGE = {32: 8, 64: 20}
_UNIFORM = {32: 12, 64: 26}
# Below this x the continued fraction would be too long.
_SMALL = {32: 1.0, 64: 1.25}
# How far an exponential is taken at once, and from where on it is 0: vector functions
# are slow beyond their range.
_STEP = {32: 80.0, 64: 500.0}
_UNSEEN = {32: 104.0, 64: 746.0}
# Terms that are enough where each sum is used.
_SERIES = {32: 21, 64: 48}
_FRACTION = {32: 18, 64: 67}
_ALTERNATING = {32: 11, 64: 21}

# (1 / gamma(1 + t) - 1) / (t (1 - t)) on [0, 1].
_RECIPROCAL_GAMMA = {
    32: (
        0.57721565,
        -0.078660908,
        -0.120688595,
        0.0460096579,
        0.00331503248,
        -0.00549912641,
        0.00109264342,
    ),
    64: (
        0.5772156649015329,
        -0.07866240661871901,
        -0.1206650416529461,
        0.04587356973275799,
        0.003675835130925686,
        -0.005946136019490933,
        0.0012728052284062502,
        0.00010764481919020128,
        -0.00010761474392844187,
        2.0466380023160652e-05,
        2.9600771315225563e-07,
        -9.30572699437163e-07,
        1.9930170446435493e-07,
        -1.6796002705931017e-08,
    ),
}
