"""The functions whose accuracy is measured: exact values, and points to ask at.

Comes in: exact values. Goes out: `FUNCTIONS`, by family, with their domains and bounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import mpmath
from mpmath import mpf

from tests.fuser.accuracy import BITS, LEAST, MOST
from tools import accuracy_exact as exact
from tools.accuracy_points import Points, Range, line, pairs, scales

Exact = Callable[..., Any]

ELEMENTARY = "Elementary functions"
ACTIVATIONS = "Activations"
ERRORS = "Error functions and the normal distribution"
GAMMAS = "Gamma functions"
BESSELS = "Bessel functions"
PAIRS = "Functions of two arguments"
FAMILIES = (ELEMENTARY, ACTIVATIONS, ERRORS, GAMMAS, BESSELS, PAIRS)

# What the worst error may be, in units. WIDE holds for functions with long recurrences,
# and for those put together from several calls of the system's vector math, which is
# good to 4 ulp a call.
NARROW, WIDE = 4, 8


@dataclass(frozen=True, slots=True)
class Function:
    """An operator: its value in mpmath, its points by bits, and where in the call the
    numbers go that are not measured over (`before`).

    `changes` are x f' for each argument, where they are not to be had by differences.
    """

    name: str
    family: str
    exact: Exact
    points: Points
    bound: int = NARROW
    label: str = ""
    before: tuple[Any, ...] = ()
    after: tuple[Any, ...] = ()
    changes: tuple[Exact, ...] = ()
    note: str = ""  # why the bound is not kept, where it is not

    @property
    def title(self) -> str:
        return self.label or self.name

    def wiggle(self, values: tuple[mpf, ...]) -> mpf:
        """How much f moves when its arguments do, relatively: the sum of |x f'|."""
        if self.changes:
            return mpmath.fsum(abs(change(*values)) for change in self.changes)
        step, total = mpf(2) ** -80, mpf(0)
        for k, v in enumerate(values):
            up, down = (
                self.exact(*values[:k], v * (1 + s * step), *values[k + 1 :])
                for s in (1, -1)
            )
            total += abs(mpmath.re(up - down)) / (2 * step)
        return total


# -- points that only one function needs
# -------------------------------------------------------------------------------------


def power_points(bits: int, draw: random.Random, count: int) -> Iterable[Any]:
    """Over the whole range of results, which the exponent is chosen for."""
    for _ in range(count):
        x = draw.choice((2.0 ** draw.uniform(-100, 100), 1 + draw.uniform(-0.5, 1)))
        if draw.random() < 0.2:
            yield -x, float(draw.randint(-9, 9))
        else:
            yield x, draw.uniform(LEAST[bits], MOST[bits]) / math.log2(x)


def zeta_points(bits: int, draw: random.Random, count: int) -> Iterable[Any]:
    for _ in range(count * 3 // 4):
        yield 1 + 10 ** draw.uniform(-0.3 * BITS[bits], 2), 10 ** draw.uniform(-9, 9)
    for _ in range(count // 4):
        yield float(draw.randint(2, 9)), draw.uniform(-20, 0)


def gamma_points(bits: int, draw: random.Random, count: int) -> Iterable[Any]:
    """To the left, about x = a (seldom large: that is slow), in the right tail, and
    small ones."""
    for _ in range(count // 3):
        a = 10 ** (draw.uniform(-3, 4) if draw.random() < 0.97 else draw.uniform(4, 6))
        yield a, max(a + draw.uniform(-8, 8) * math.sqrt(a), a * draw.random())
    for _ in range(count // 3):
        yield 10 ** draw.uniform(-8, 2), 10 ** draw.uniform(-30, 2)
    for _ in range(count // 3):
        a = 10 ** draw.uniform(-2, 2.5)
        yield a, a + draw.uniform(0, TAILS[bits][1])


# -- the functions
# -------------------------------------------------------------------------------------


def both(low: float, high: float) -> Range:
    return dict.fromkeys(BITS, (low, high))


EXP: Range = {32: (-104, 89), 64: (-746, 710)}
HYPERBOLIC: Range = {32: (-90, 90), 64: (-711, 711)}
TAILS: Range = {32: (-104, 104), 64: (-746, 746)}
NORMAL: Range = {32: (-14.5, 14.5), 64: (-38.6, 38.6)}
BESSEL: Range = {32: (-92, 92), 64: (-714, 714)}
ALL: Range = {b: (-(2.0 ** (MOST[b] - 1)), 2.0 ** (MOST[b] - 1)) for b in (32, 64)}
POSITIVE: Range = {b: (0.0, high) for b, (_, high) in ALL.items()}
ABOVE_ONE: Range = {b: (1.0, high) for b, (_, high) in ALL.items()}
ABOVE_MINUS_ONE: Range = {b: (-1.0, high) for b, (_, high) in ALL.items()}
UNIT: Range = both(-1.0, 1.0)
PROBABILITY: Range = both(0.0, 1.0)
ERFC: Range = {32: (-5, 10.1), 64: (-7, 27.3)}
ERFCX: Range = {32: (-9.4, ALL[32][1]), 64: (-26.7, ALL[64][1])}
POLES: Range = {32: (-1e4, 1e30), 64: (-1e6, 1e100)}

HALF_TURNS = [k * math.pi / 2 for k in (1, 2, 3, 4, 7, 100, 12345)]
GAMMA_PLACES = [-k for k in range(8)] + [
    *(1.0, 2.0, 1.4616321449683623, -0.5040830082644554, -1.5734984731623904),
    *(-2.4570247382208006, -2.7476826467274127, -3.955294284858598, -30.0, 8.0, 16.0),
]


def _psi(n: int) -> Function:
    return Function(
        "polygamma" if n else "digamma",
        GAMMAS,
        lambda x: exact.polygamma(n, x),
        line(POLES, GAMMA_PLACES),
        bound=WIDE if n else NARROW,
        label=f"polygamma({n})" if n else "",
        before=(n,) if n else (),
        changes=(lambda x: x * exact.polygamma(n + 1, x),),
    )


FUNCTIONS: tuple[Function, ...] = (
    Function("sqrt", ELEMENTARY, mpmath.sqrt, line(POSITIVE)),
    Function("rsqrt", ELEMENTARY, lambda x: 1 / mpmath.sqrt(x), line(POSITIVE)),
    Function("exp", ELEMENTARY, mpmath.exp, line(EXP)),
    Function(
        "exp2",
        ELEMENTARY,
        lambda x: mpf(2) ** x,
        line({32: (-150, 129), 64: (-1076, 1025)}),
    ),
    Function("expm1", ELEMENTARY, mpmath.expm1, line(EXP)),
    Function("log", ELEMENTARY, mpmath.log, line(POSITIVE, [1])),
    Function("log2", ELEMENTARY, lambda x: mpmath.log(x, 2), line(POSITIVE, [1])),
    Function("log10", ELEMENTARY, mpmath.log10, line(POSITIVE, [1])),
    Function(
        "log1p",
        ELEMENTARY,
        mpmath.log1p,
        line(ABOVE_MINUS_ONE),
    ),
    Function(
        "sin",
        ELEMENTARY,
        mpmath.sin,
        line(ALL, HALF_TURNS),
        changes=(lambda x: x * mpmath.cos(x),),
    ),
    Function(
        "cos",
        ELEMENTARY,
        mpmath.cos,
        line(ALL, HALF_TURNS),
        changes=(lambda x: x * mpmath.sin(x),),
    ),
    Function(
        "tan",
        ELEMENTARY,
        mpmath.tan,
        line(ALL, HALF_TURNS),
        changes=(lambda x: x / mpmath.cos(x) ** 2,),
    ),
    Function("asin", ELEMENTARY, mpmath.asin, line(UNIT, [0.5, -0.5])),
    Function("acos", ELEMENTARY, mpmath.acos, line(UNIT, [0.5, -0.5])),
    Function("atan", ELEMENTARY, mpmath.atan, line(ALL, [1, -1])),
    Function("sinh", ELEMENTARY, mpmath.sinh, line(HYPERBOLIC)),
    Function("cosh", ELEMENTARY, mpmath.cosh, line(HYPERBOLIC)),
    Function("tanh", ELEMENTARY, mpmath.tanh, line(TAILS)),
    Function("asinh", ELEMENTARY, mpmath.asinh, line(ALL, [1, -1])),
    Function(
        "acosh",
        ELEMENTARY,
        mpmath.acosh,
        line(ABOVE_ONE),
    ),
    Function("atanh", ELEMENTARY, mpmath.atanh, line(UNIT, [0.5, -0.5])),
    Function(
        "sinc",
        ELEMENTARY,
        mpmath.sincpi,
        line(ALL, [1, 2, -3, 100]),
        bound=WIDE,
        changes=(exact.sinc_change,),
    ),
    Function(
        "sigmoid",
        ACTIVATIONS,
        exact.sigmoid,
        line(TAILS),
        bound=WIDE,
    ),
    Function(
        "log_sigmoid",
        ACTIVATIONS,
        lambda x: -mpmath.log1p(mpmath.exp(-x)),
        line(TAILS),
        bound=WIDE,
    ),
    Function(
        "logit",
        ACTIVATIONS,
        lambda x: mpmath.log(x / (1 - x)),
        line(PROBABILITY, [0.5]),
        bound=WIDE,
    ),
    Function(
        "softplus", ACTIVATIONS, exact.softplus, line(TAILS, [19, 21]), bound=WIDE
    ),
    Function(
        "silu",
        ACTIVATIONS,
        lambda x: x * exact.sigmoid(x),
        line(TAILS),
        bound=WIDE,
    ),
    Function("mish", ACTIVATIONS, exact.mish, line(TAILS), bound=WIDE),
    Function(
        "gelu",
        ACTIVATIONS,
        lambda x: x * exact.ndtr(x),
        line(NORMAL),
        bound=WIDE,
    ),
    Function(
        "elu",
        ACTIVATIONS,
        lambda x: x if x > 0 else mpmath.expm1(x),
        line(TAILS),
        bound=WIDE,
    ),
    Function("erf", ERRORS, mpmath.erf, line(both(-7.0, 7.0))),
    Function("erfc", ERRORS, mpmath.erfc, line(ERFC)),
    Function("erfinv", ERRORS, mpmath.erfinv, line(UNIT)),
    Function("special_erfcx", ERRORS, exact.erfcx, line(ERFCX)),
    Function("special_ndtr", ERRORS, exact.ndtr, line(NORMAL), bound=WIDE),
    Function(
        "special_ndtri", ERRORS, exact.ndtri, line(PROBABILITY, [0.5]), bound=WIDE
    ),
    Function(
        "special_log_ndtr",
        ERRORS,
        lambda x: mpmath.log(exact.ndtr(x)) if x < 0 else mpmath.log1p(-exact.ndtr(-x)),
        line({32: (-1e6, 14.5), 64: (-1e6, 38.6)}, [-1]),
        bound=WIDE,
    ),
    Function(
        "special_entr",
        ERRORS,
        lambda x: -x * mpmath.log(x),
        line(both(0.0, 1e30), [1]),
        bound=WIDE,
    ),
    Function(
        "lgamma",
        GAMMAS,
        exact.lgamma,
        line(POLES, GAMMA_PLACES),
        changes=(lambda x: x * exact.polygamma(0, x),),
    ),
    *(_psi(n) for n in range(4)),
    Function(
        "mvlgamma",
        GAMMAS,
        exact.mvlgamma,
        line(both(1.0, 1e30), [1.5, 2, 3]),
        bound=WIDE,
        label="mvlgamma(p=3)",
        after=(3,),
    ),
    Function(
        "i0",
        BESSELS,
        lambda x: exact.bessel(0, x),
        line(BESSEL, [8, -8]),
    ),
    Function(
        "special_i0e", BESSELS, lambda x: exact.scaled_bessel(0, x), line(ALL, [8])
    ),
    Function(
        "special_i1",
        BESSELS,
        lambda x: exact.bessel(1, x),
        line(BESSEL, [8, -8]),
        bound=WIDE,
    ),
    Function(
        "special_i1e",
        BESSELS,
        lambda x: exact.scaled_bessel(1, x),
        line(ALL, [8]),
        bound=WIDE,
    ),
    Function(
        "special_spherical_bessel_j0",
        BESSELS,
        lambda x: mpmath.sin(x) / x,
        line(ALL, HALF_TURNS),
        bound=WIDE,
        changes=(lambda x: mpmath.cos(x) - mpmath.sin(x) / x,),
    ),
    Function("pow", PAIRS, exact.power, power_points),
    Function("atan2", PAIRS, mpmath.atan2, pairs(scales(ALL), scales(ALL))),
    Function("hypot", PAIRS, mpmath.hypot, pairs(scales(ALL), scales(ALL))),
    Function(
        "logaddexp",
        PAIRS,
        exact.logaddexp,
        pairs(scales(TAILS), scales(TAILS)),
        bound=WIDE,
    ),
    Function(
        "logaddexp2",
        PAIRS,
        exact.logaddexp2,
        pairs(scales(TAILS), scales(TAILS)),
        bound=WIDE,
    ),
    Function(
        "xlogy",
        PAIRS,
        lambda x, y: x * mpmath.log(y),
        pairs(scales(ALL), scales(POSITIVE)),
        bound=WIDE,
    ),
    Function(
        "special_xlog1py",
        PAIRS,
        lambda x, y: x * mpmath.log1p(y),
        pairs(scales(ALL), scales(ABOVE_MINUS_ONE)),
        bound=WIDE,
    ),
    Function("special_zeta", PAIRS, exact.hurwitz, zeta_points, bound=WIDE),
    Function("igamma", PAIRS, exact.lower, gamma_points, bound=WIDE),
    Function("igammac", PAIRS, exact.upper, gamma_points, bound=WIDE),
)
