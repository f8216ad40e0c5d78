"""The logarithm of the gamma function, its derivatives, and Hurwitz's zeta function.

Comes in: nodes of one floating dtype. Goes out: a node, computed in that dtype. Loops
have a fixed count and branches are selected, not taken, so that every target vectorises
them; what an unselected branch gives does not matter. tools/fit_gammas.py made the
coefficients. Sources: Abramowitz and Stegun, Handbook of Mathematical Functions (A&S),
by formula.
"""

from __future__ import annotations

import math

from fuser import ir
from fuser.expr import Expr, polynomial
from fuser.ir import Loop, Node
from fuser.special import bernoulli, operator

# -- lgamma ----------------------------------------------------------------------------


@operator("lgamma(Tensor self) -> Tensor", "int_to_float")
def lgamma(self: Node) -> Node:
    """log(abs(gamma(x))): inf at 0, -1, -2, ..., and at both infinities.

    Between -4 and 4 the recurrence (A&S 6.1.15) leads to [1, 2], where the zeros at
    both ends are factors of the approximation; beyond is Stirling's series (A&S
    6.1.40), and below -4 the reflection (A&S 6.1.17).
    """
    x = Expr(self)
    size = x.apply("abs")
    far = size > 4
    product = _steps(x)
    log = far.where(size, product).apply("log")
    stirling = (size - 0.5) * (log - 1) + (math.log(2 * math.pi) - 1) / 2
    stirling = stirling + _stirling_rest(size)
    # gamma(x) gamma(-x) = -pi / (x sin(pi x))
    sine = (_to_integer(x).apply("abs") * math.pi).apply("sin")
    mirrored = -(sine * (size * (1 / math.pi))).apply("log") - stirling
    value = far.where((x < 0).where(mirrored, stirling), _near(x, product, log))
    at_pole = (x <= 0) & x.equals(x.apply("floor"))
    return at_pole.where(x.lift(math.inf), value).node


def _steps(x: Expr) -> Expr:
    """abs(gamma(x)) over gamma(1 + t), t the fractional part of x in [-4, 4]; below 1
    the reciprocal of that."""
    product = (x - 1).apply("fmax", 1) * (x - 2).apply("fmax", 1) * x.apply("fmin", 1)
    for k in range(1, 5):
        product = product * (x + k).apply("fmin", 1)
    return product.apply("abs")


def _near(x: Expr, product: Expr, log: Expr) -> Expr:
    """lgamma(x) in [-4, 4]; `log` is that of the product of the steps.

    About -2.6 lgamma has a small minimum between two zeros, where the product is near
    1. With y = x + 3 and u = y (3 - y) it is 1 - (1 - u)**2, which is known with more
    digits than the product has; they go to the logarithm as a correction.
    """
    t = x - x.apply("floor")
    rest = 1 - t * (3 - t)
    lost = ((1 - product) - rest * rest) / product
    log = ((x + 2.6).apply("abs") < 0.25).where(log + lost, log)
    return _log_gamma_from_1(t) + (x < 1).where(-log, log)


def _log_gamma_from_1(t: Expr) -> Expr:
    """lgamma(1 + t) for t in [0, 1], exact at both ends."""
    above, below = _LOG_GAMMA[t.node.dtype.bits]
    return t * (t - 1) * (0.5 + polynomial(t, above) / polynomial(t, below))


def _stirling_rest(x: Expr) -> Expr:
    """lgamma(x) without Stirling's (x - 1/2) log(x) - x + log(2 pi) / 2, from 4 on."""
    inverse = 1 / x
    return inverse * polynomial(inverse * inverse, _STIRLING[x.node.dtype.bits])


def _to_integer(x: Expr) -> Expr:
    """The distance to the nearest integer, which is exact."""
    return x - x.apply("round")


# -- digamma and polygamma -------------------------------------------------------------


@operator("digamma(Tensor self) -> Tensor", "int_to_float")
def digamma(self: Node) -> Node:
    """The logarithmic derivative of gamma: -inf at 0, inf at -0, NaN at -1, -2, ...

    Up to 3 the positive zero is a factor of the approximation, after one step of the
    recurrence (A&S 6.3.5) below 1; beyond is the asymptotic series (A&S 6.3.18), and
    below 0 the reflection (A&S 6.3.7).
    """
    x = Expr(self)
    bits = self.dtype.bits
    low = x < 0
    upper = low.where(1 - x, x)
    inverse = 1 / upper
    below_1 = upper < 1
    t = below_1.where(upper, upper - 1)
    above, below = _DIGAMMA[bits]
    zero, remainder = _DIGAMMA_ZERO[bits]
    near = ((t - zero) - remainder) * (polynomial(t, above) / polynomial(t, below))
    near = below_1.where(near - inverse, near)
    square = inverse * inverse
    series = 0.5 * inverse + square * polynomial(square, _DIGAMMA_FAR[bits])
    value = (upper < 3).where(near, upper.apply("log") - series)
    distance = _to_integer(x)
    value = low.where(value - _cotangent(distance), value)
    return (low & distance.equals(0)).where(x.lift(math.nan), value).node


def _cotangent(distance: Expr) -> Expr:
    """pi cot(pi x), from the distance of x to the nearest integer."""
    # Of a small distance it is the reciprocal, also where pi times that is subnormal.
    small = distance.apply("abs") < _SMALL[distance.node.dtype.bits]
    tangent = (small.where(distance.lift(0.5), distance) * math.pi).apply("tan")
    return small.where(distance.lift(1), math.pi) / small.where(distance, tangent)


@operator("polygamma(int n, Tensor self) -> Tensor", "int_to_float")
def polygamma(n: int, self: Node) -> Node:
    """The n-th derivative of digamma (A&S 6.4.10), the sum of (-1)**(n + 1) n! / (x +
    k)**(n + 1) over k >= 0; below 0 by reflection (A&S 6.4.7).

    inf with the sign (-1)**(n + 1) at 0, -1, -2, ... and -inf. n must not be negative.
    """
    if n < 0:
        raise ValueError(f"polygamma(n, x) needs n >= 0, not {n}")
    if n == 0:
        return digamma(self)
    x = Expr(self)
    low = x < 0
    value = _powers(n, low.where(1 - x, x))
    reflected = _cotangent_derivative(n, _cotangent(_to_integer(x)))
    # For odd n both are positive.
    value = low.where(reflected - value if n % 2 else reflected + value, value)
    at_pole = (x <= 0) & x.equals(x.apply("floor"))
    value = at_pole.where(x.lift(math.inf), value)
    return (value if n % 2 else -value).node


def _powers(n: int, x: Expr) -> Expr:
    """The sum of n! / (x + k)**(n + 1) over k >= 0 for x >= 0."""
    dtype = x.node.dtype
    t, total = Expr(ir.param(0, dtype)), Expr(ir.param(1, dtype))
    step = total + _factorial_times(n, 1 / t, n + 1)
    loop = Loop(((t + 1).node, step.node), None, _SHIFT[dtype.bits])
    last, summed = map(Expr, ir.iterate((x.node, x.lift(0.0).node), (), loop))
    inverse = 1 / last
    rest = 1 / n + inverse * 0.5
    square = inverse * inverse
    rest = rest + square * polynomial(square, _tail_of(n + 1, dtype.bits))
    return summed + _factorial_times(n, inverse, n) * rest


def _tail_of(s: int, bits: int) -> list[float]:
    """B_2k s (s + 1) ... (s + 2k - 2) / (2k)! for k = 1, 2, ..."""
    return [
        float(b * math.prod(range(s, s + 2 * k - 1)) / math.factorial(2 * k))
        for k, b in enumerate(bernoulli(_TERMS[bits]), start=1)
    ]


def _factorial_times(n: int, y: Expr, power: int) -> Expr:
    """n! y**power, in two factors that overflow or vanish only with the result."""
    size = math.factorial(n)
    half = 2 ** (size.bit_length() // 2)
    low = _power(y, power // 2)
    high = low * y if power % 2 else low
    return (low * half) * (high * (size / half))


def _power(y: Expr, n: int) -> Expr:
    """y**n for n >= 0 by squaring."""
    result = y.lift(1.0)
    for digit in f"{n:b}":
        result = result * result * y if digit == "1" else result * result
    return result


def _cotangent_derivative(n: int, cotangent: Expr) -> Expr:
    """(-1)**n times the n-th derivative of pi cot(pi x), a polynomial in pi cot(pi x)
    with positive coefficients: c' = -(pi**2 + c**2)."""
    known = [0, 1]
    for _ in range(n):
        slope = [k * a for k, a in enumerate(known)][1:]
        known = [a + b for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    odd = (n + 1) % 2
    coefficients = [
        float(a) * math.pi ** (n + 1 - k) for k, a in enumerate(known) if k % 2 == odd
    ]
    value = polynomial(cotangent * cotangent, coefficients)
    return value * cotangent if odd else value


# -- zeta ------------------------------------------------------------------------------


@operator("special_zeta(Tensor self, Tensor other) -> Tensor", "int_to_float")
def zeta(self: Node, other: Node) -> Node:
    """Hurwitz's zeta(s, q), the sum of (q + k)**-s over k >= 0, s > 1 (A&S 23.2.7).

    inf at the poles s = 1 and q = 0, -1, ...; NaN for s < 1, and for q < 0 unless s is
    an integer. The terms at a negative q + k stand, up to the sign (-1)**s, at the
    mirror points from the fractional part of -q up to -q.
    """
    s, q = Expr(self), Expr(other)
    dtype = self.dtype
    negative = q < 0
    floor = q.apply("floor")
    start = negative.where(q - floor, q)
    # A positive q has no mirror points: they would begin behind their end.
    mirror = negative.where(q.apply("ceil") - q, 1.0)
    end = negative.where(0.5 - q, 0.0)
    t, total, m, mirrored, power, bound = (Expr(ir.param(i, dtype)) for i in range(6))
    mirrored = mirrored + (m < bound).where(m**power, 0.0)
    steps = (t + 1, total + t**power, m + 1, mirrored)
    loop = Loop(tuple(e.node for e in steps), None, _SHIFT[dtype.bits])
    state = (start, q.lift(0.0), mirror, q.lift(0.0))
    t, total, m, mirrored = map(
        Expr, ir.iterate([e.node for e in state], ((-s).node, end.node), loop)
    )
    mirrored = mirrored + (m < end).where(_tail(s, m) - _tail(s, 1 - q), 0.0)
    half = s * 0.5
    mirrored = half.equals(half.apply("floor")).where(mirrored, -mirrored)
    value = total + _tail(s, t)
    value = negative.where(value + mirrored, value)
    value = (negative & s.apply("ne", s.apply("floor"))).where(q.lift(math.nan), value)
    at_pole = (q <= 0) & q.equals(floor)
    value = (at_pole | s.equals(1)).where(q.lift(math.inf), value)
    broken = (s < 1) | s.apply("isnan") | q.apply("isnan")
    return broken.where(q.lift(math.nan), value).node


def _tail(s: Expr, w: Expr) -> Expr:
    """The sum of (w + k)**-s over k >= 0 for a large w, by Euler and Maclaurin's
    formula (A&S 3.6.28). Where w is not large beside s, all of it is lost in the terms
    before."""
    ratios = [b / math.factorial(2 * k) for k, b in enumerate(bernoulli(8), start=1)]
    inverse = 1 / w
    square = inverse * inverse
    series = w.lift(1.0)
    for k in range(_TERMS[w.node.dtype.bits] - 1, 0, -1):
        ratio = float(ratios[k] / ratios[k - 1])
        series = 1 + ((s + (2 * k - 1)) * (s + 2 * k) * ratio) * (square * series)
    rest = 1 / (s - 1) + inverse * (0.5 + s * (1 / 12) * (inverse * series))
    power = w ** (1 - s)
    # An infinite s has no other power here, and no series.
    return power.equals(0).where(w.lift(0.0), power * rest)


# -- coefficients, by the bits of the dtype --------------------------------------------

# How many terms of the sum over (x + k)**-s are added one by one, and how many of Euler
# and Maclaurin's formula stand for the others; they are good for every s.
_SHIFT = {32: 5, 64: 9}
_TERMS = {32: 3, 64: 8}

# Distances below which pi x cot(pi x) is 1.
_SMALL = {32: 2.0**-14, 64: 2.0**-29}

# lgamma(1 + t) / (t (t - 1)) - 1/2 on [0, 1]: a numerator and a denominator.
_LOG_GAMMA = {
    32: (
        (0.0772156632, -0.129279384, -0.165416029, -0.0278772813),
        (1.0, 1.50192075, 0.615171985, 0.0604623854),
    ),
    64: (
        (
            0.07721566490153287,
            -0.008223657289312665,
            -0.31776222359115963,
            -0.3672607820345531,
            -0.15861324835849908,
            -0.027211998957271222,
            -0.001417421527298876,
            -7.978941098521763e-07,
        ),
        (
            1.0,
            3.0696842607718264,
            3.621645643899702,
            2.0587168639115454,
            0.5774290623672858,
            0.0725453126933089,
            0.002977597285715616,
        ),
    ),
}

# Stirling's series from x = 4 on, times x: powers of 1/x**2.
_STIRLING = {
    32: (0.0833333293, -0.00277661487, 0.000742721429),
    64: (
        0.08333333333333331,
        -0.0027777777777176055,
        0.0007936507676291937,
        -0.0005952337085914222,
        0.0008413741438815142,
        -0.0018988790775843355,
        0.005842830219816523,
        -0.018529842349409912,
        0.03686739114470535,
    ),
}

# The positive zero of digamma, less 1: to the bits of the dtype, and what is left.
_DIGAMMA_ZERO = {
    32: (0.4616321325302124, 1.2438149938918909e-08),
    64: (0.46163214496836236, -1.5522348162858677e-17),
}

# digamma(1 + t) / (t - zero) on [0, 2]: a numerator and a denominator.
_DIGAMMA = {
    32: (
        (1.25038013, 1.17319781, 0.239989696, 0.00418357423, -9.27109054e-05),
        (1.0, 1.62181941, 0.698735082, 0.076405771),
    ),
    64: (
        (
            1.2503801375034054,
            1.8998845370478825,
            1.0164566510246777,
            0.2374725594485366,
            0.0238414069598138,
            0.000818874142960514,
            2.5009024312418424e-06,
            -1.578585859621291e-08,
        ),
        (
            1.0,
            2.2029923661052755,
            1.7169749127558187,
            0.6092694909208878,
            0.10266883844857362,
            0.007561224327355051,
            0.00017933601981804436,
        ),
    ),
}

# log(x) - 1/(2x) - digamma(x) from x = 3 on, times x**2: powers of 1/x**2.
_DIGAMMA_FAR = {
    32: (0.0833333279, -0.00833174229, 0.00389351334, -0.00296634885),
    64: (
        0.08333333333333326,
        -0.008333333333142599,
        0.003968253884920039,
        -0.004166652178650307,
        0.00757443060881869,
        -0.02101916489697652,
        0.08064047398067098,
        -0.37430045081725144,
        1.7458633558768843,
        -6.706334097588545,
        17.261883761190987,
        -21.298613337013414,
    ),
}
