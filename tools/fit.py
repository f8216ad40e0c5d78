"""The coefficients of fuser/errorfunctions.py and fuser/bessel.py, made anew.

Run as `python tools/fit.py`: it prints each table as it stands in the source, and the
largest error of the polynomial in exact arithmetic. Each polynomial interpolates its
function at Chebyshev's points of (-1, 1), and so comes within a small factor of the
best one there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mpmath
from mpmath import mpf

Function = Callable[[mpf], mpf]

# Decimal digits that settle a float of so many bits, and those to compute with.
DIGITS = {32: 9, 64: 17}
WORKING = 60


@dataclass(frozen=True, slots=True)
class Fit:
    """`function` over (-1, 1), by a polynomial of `terms` terms; `table` is what its
    coefficients are called in the source."""

    table: str
    bits: int
    terms: int
    function: Function

    def coefficients(self) -> tuple[float, ...]:
        """The polynomial's coefficients, that of the lowest power first."""
        with mpmath.workdps(WORKING):
            nodes = points(self.terms)
            powers = mpmath.matrix([[t**k for k in range(self.terms)] for t in nodes])
            values = mpmath.matrix([self.function(t) for t in nodes])
            found = mpmath.lu_solve(powers, values)
            return tuple(float(mpmath.nstr(c, DIGITS[self.bits])) for c in found)

    def error(self) -> float:
        """The largest error of that polynomial in exact arithmetic."""
        with mpmath.workdps(WORKING):
            coefficients = [mpf(c) for c in reversed(self.coefficients())]
            worst = mpf(0)
            for t in points(10 * self.terms + 1):
                found, exact = mpmath.polyval(coefficients, t), self.function(t)
                worst = max(worst, abs(found - exact))
            return float(worst)


def points(count: int) -> list[mpf]:
    """Chebyshev's points: the zeros of T(count)."""
    return [mpmath.cospi(mpf(2 * k + 1) / (2 * count)) for k in range(count)]


def erfinv(reach: float) -> Function:
    """(erfinv(x) / x - sqrt(pi) / 2) / (1 + t), where 1 - x**2 = exp(-w) and
    t = (2 w - reach) / (w + reach)."""

    def function(t: mpf) -> mpf:
        w = reach * (1 + t) / (2 - t)
        x = mpmath.sqrt(-mpmath.expm1(-w))
        return (mpmath.erfinv(x) / x - mpmath.sqrt(mpmath.pi) / 2) / (1 + t)

    return function


def erfcx(t: mpf) -> mpf:
    """((x + 1/2) erfcx(x) - 1/2) / (1 + t), where t = (x - 4) / (x + 4)."""
    x = 4 * (1 + t) / (1 - t)
    return ((x + 0.5) * mpmath.exp(x * x) * mpmath.erfc(x) - 0.5) / (1 + t)


def bessel(order: int) -> Function:
    """sqrt(x) exp(-x) I(x), where t = 16 / x - 1."""

    def function(t: mpf) -> mpf:
        x = 16 / (1 + t)
        return mpmath.sqrt(x) * mpmath.exp(-x) * mpmath.besseli(order, x)

    return function


def erfcx_gap(t: mpf) -> mpf:
    """(x + 1)**2 (1 / sqrt(pi) - x erfcx(x)), where t = (x - 4) / (x + 4)."""
    x = 4 * (1 + t) / (1 - t)
    value = mpmath.exp(x * x) * mpmath.erfc(x)
    return (x + 1) ** 2 * (1 / mpmath.sqrt(mpmath.pi) - x * value)


def normal_tail(reach: int) -> Function:
    """(y / (1 - r) - 1/2) / r of half of erfcx(x / sqrt(2)), y, for 0 <= x <= reach;
    r = x / (x + 4) runs with t."""

    def function(t: mpf) -> mpf:
        r = mpf(reach) / (reach + 4) * (1 + t) / 2
        x = 4 * r / (1 - r)
        value = mpmath.exp(x * x / 2) * mpmath.erfc(x / mpmath.sqrt(2)) / 2
        return (value / (1 - r) - 0.5) / r

    return function


def bessel_gap(t: mpf) -> mpf:
    """x sqrt(x) exp(-x) (I0(x) - I1(x)), where t = 16 / x - 1."""
    return (bessel(0)(t) - bessel(1)(t)) * 16 / (1 + t)


FITS = (
    Fit("_ERFINV", 32, 16, erfinv(8)),
    Fit("_ERFINV", 64, 40, erfinv(18.25)),
    Fit("_ERFCX", 32, 12, erfcx),
    Fit("_ERFCX", 64, 24, erfcx),
    Fit("_ERFCX_GAP", 32, 13, erfcx_gap),
    Fit("_ERFCX_GAP", 64, 25, erfcx_gap),
    Fit("_NORMAL_TAIL", 32, 9, normal_tail(16)),
    Fit("_NORMAL_TAIL", 64, 22, normal_tail(40)),
    Fit("_TAIL0", 32, 7, bessel(0)),
    Fit("_TAIL0", 64, 24, bessel(0)),
    Fit("_TAIL1", 32, 7, bessel(1)),
    Fit("_TAIL1", 64, 24, bessel(1)),
    Fit("_I0E_GAP", 32, 7, bessel_gap),
    Fit("_I0E_GAP", 64, 24, bessel_gap),
)


def main() -> None:
    for fit in FITS:
        print(f"# {fit.table}[{fit.bits}], within {fit.error():.1e}")
        for c in fit.coefficients():
            print(f"{c!r},")


if __name__ == "__main__":
    main()
