"""Special functions that need a loop, built once for every target.

Comes in: nodes of one floating dtype. Goes out: a node. Each is written over the
primitives and `iterate`, so that it runs, in that dtype, wherever the primitives do.
Sources: Abramowitz and Stegun, Handbook of Mathematical Functions (A&S), by formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from fuser import ir
from fuser.expr import Expr
from fuser.functions import Builder
from fuser.ir import Loop, Node

# From where on an asymptotic series is used, and how many terms of it are worth adding
# in double precision.
_FAR = 10
_TERMS = 10
# No sum takes more steps: either the argument grows to _FAR + s, or a term is lost.
_MOST = 96
# A term is lost beside a sum that is so much larger, by the bits of the dtype.
_LOST = {32: 2.0**-27, 64: 2.0**-56}


@dataclass(frozen=True, slots=True)
class Special:
    """A builder with the signature and the promotion of its ATen operator."""

    signature: str
    promotes: str
    builder: Builder


SPECIAL: list[Special] = []

B = TypeVar("B", bound=Builder)


def operator(signature: str, promotes: str) -> Callable[[B], B]:
    """Register the builder as the value of an operator."""

    def register(builder: B) -> B:
        SPECIAL.append(Special(signature, promotes, builder))
        return builder

    return register


def bernoulli(count: int) -> Iterator[Fraction]:
    """B_2, B_4, ..., the even Bernoulli numbers (A&S 23.1.3)."""
    known = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        total = sum((math.comb(n + 1, k) * b for k, b in enumerate(known)), Fraction(0))
        known.append(-total / (n + 1))
        if n % 2 == 0:
            yield known[n]


@operator("special_zeta(Tensor self, Tensor other) -> Tensor", "int_to_float")
def zeta(self: Node, other: Node) -> Node:
    """Hurwitz's zeta(s, q), the sum of (q + k)**-s over k >= 0, s > 1 (A&S 23.2.7).

    inf at the poles s = 1 and q = 0, -1, ...; NaN for s < 1, and for q < 0 unless s is
    an integer. The terms at a negative q + k stand, up to the sign (-1)**s, at the
    mirror points between the fractional part of -q and -q itself.
    """
    s, q = Expr(self), Expr(other)
    floor = q.apply("floor")
    negative = q < 0
    value = _sum_from(s, negative.where(q - floor, q))
    beyond = q.lift(2.0**100)
    mirrored = _sum_between(
        s, negative.where(q.apply("ceil") - q, beyond), negative.where(1 - q, beyond)
    )
    half = s * 0.5
    even = half.equals(half.apply("floor"))
    value = negative.where(value + even.where(mirrored, -mirrored), value)
    value = q.equals(math.inf).where(q.lift(0.0), value)
    broken = negative & s.apply("ne", s.apply("floor"))
    value = broken.where(q.lift(math.nan), value)
    at_pole = (q <= 0) & q.equals(floor)
    value = (at_pole | s.equals(1)).where(q.lift(math.inf), value)
    return (s < 1).where(q.lift(math.nan), value).node


def _sum_from(s: Expr, start: Expr) -> Expr:
    """The sum of t**-s over t = start, start + 1, ..., for a positive start."""
    total, t, settled = _sum_below(s, start, s + _FAR)
    return total + settled.where(t.lift(0.0), _tail(s, t))


def _sum_between(s: Expr, start: Expr, end: Expr) -> Expr:
    """The sum of t**-s over t = start, start + 1, ..., end - 1."""
    last = end - 0.5
    total, t, settled = _sum_below(s, start, last.apply("fmin", s + _FAR))
    done = settled | (t >= last)
    return total + done.where(t.lift(0.0), _tail(s, t) - _tail(s, end))


def _sum_below(s: Expr, start: Expr, end: Expr) -> tuple[Expr, Expr, Expr]:
    """The sum of t**-s over t = start, start + 1, ... below `end`; the first t that is
    left; and whether the sum ended before because its terms were lost in it."""
    dtype = start.node.dtype
    lost = _LOST[dtype.bits]
    t, total, term, power, bound = (Expr(ir.param(i, dtype)) for i in range(5))
    following = t**power
    loop = Loop(
        ((t + 1).node, (total + following).node, following.node),
        ((t < bound) & (term > total * lost)).node,
        _MOST,
    )
    zero, infinity = start.lift(0.0), start.lift(math.inf)
    left, summed, smallest = map(
        Expr,
        ir.iterate((start.node, zero.node, infinity.node), ((-s).node, end.node), loop),
    )
    return summed, left, smallest <= summed * lost


def _tail(s: Expr, w: Expr) -> Expr:
    """The sum of (w + k)**-s over k >= 0 for w >= 10 + s, by Euler and Maclaurin's
    formula (A&S 3.6.28)."""
    power = w ** (-s)
    total = power * w / (s - 1) + power * 0.5
    factor, inverse = s * power / w, 1.0 / (w * w)
    for k, b in enumerate(bernoulli(_TERMS), start=1):
        total = total + factor * float(b / math.factorial(2 * k))
        factor = factor * ((s + (2 * k - 1)) * (s + 2 * k)) * inverse
    return total


@operator("polygamma(int n, Tensor self) -> Tensor", "int_to_float")
def polygamma(n: int, self: Node) -> Node:
    """The n-th derivative of digamma: (-1)**(n + 1) n! zeta(n + 1, x) (A&S 6.4.10).

    At the poles 0, -1, ... it is inf with the sign (-1)**(n + 1).
    """
    if n < 0:
        raise ValueError(f"polygamma(n, x) needs n >= 0, not {n}")
    if n == 0:
        return digamma(self)
    here = Expr(self)
    size = float(math.factorial(n)) if n <= 170 else math.inf
    value = Expr(zeta(here.lift(n + 1).node, self))
    return (value * (size if n % 2 else -size)).node


def _cotangent(x: Expr) -> Expr:
    """cot(pi x), from the distance to the nearest integer, which is exact."""
    distance = x - x.apply("round")
    return 1.0 / (distance * math.pi).apply("tan")


@operator("digamma(Tensor self) -> Tensor", "int_to_float")
def digamma(self: Node) -> Node:
    """The logarithmic derivative of gamma (A&S 6.3): recurrence up to x >= 10, then the
    asymptotic series; reflection below 0.5. -inf at 0, inf at -0, NaN at -1, -2, ...
    """
    here = Expr(self)
    low = here < 0.5
    shifted, total = _up(low.where(1.0 - here, here))
    inverse = 1.0 / (shifted * shifted)
    series = shifted.lift(0.0)
    for k, b in reversed(list(enumerate(bernoulli(_TERMS), start=1))):
        series = (series + float(b / (2 * k))) * inverse
    upper = shifted.apply("log") - 0.5 / shifted - series - total
    value = low.where(upper - _cotangent(here) * math.pi, upper)
    at_zero = here.equals(0.0)
    at_pole = (here < 0) & here.equals(here.apply("floor"))
    value = at_pole.where(here.lift(math.nan), value)
    return at_zero.where(here.lift(-math.inf).apply("copysign", -here), value).node


def _up(start: Expr) -> tuple[Expr, Expr]:
    """start + k for the least k >= 0 that makes it 10 or more, and the sum of 1/t over
    t = start, ..., start + k - 1."""
    dtype = start.node.dtype
    t, total = Expr(ir.param(0, dtype)), Expr(ir.param(1, dtype))
    loop = Loop(((t + 1).node, (total + 1.0 / t).node), (t < _FAR).node, _FAR)
    last, summed = ir.iterate((start.node, start.lift(0.0).node), (), loop)
    return Expr(last), Expr(summed)
