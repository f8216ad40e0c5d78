"""The coefficients of fuser/gammas.py and fuser/incompletegamma.py, made anew.

Run as `python tools/fit_gammas.py`: it prints each table as it stands in the source,
and the largest error in exact arithmetic. Each polynomial or quotient of polynomials
interpolates its function at Chebyshev's points of an interval, and so comes within a
small factor of the best one there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mpmath
from mpmath import mpf

Function = Callable[[mpf], mpf]
Table = tuple[float, ...] | tuple[tuple[float, ...], tuple[float, ...]]

# Decimal digits that settle a float of so many bits, and those to compute with.
DIGITS = {32: 9, 64: 17}
WORKING = 60


@dataclass(frozen=True, slots=True)
class Fit:
    """`function` from 0 to `end`, by `above` terms over `below` ones that begin with 1;
    `table` is what the coefficients are called in the source."""

    table: str
    bits: int
    function: Function
    end: float
    above: int
    below: int = 1

    def coefficients(self) -> Table:
        """The coefficients, that of the lowest power first; numerator and denominator
        where there is one."""
        with mpmath.workdps(WORKING):
            nodes = self.points(self.above + self.below - 1)
            rows: list[list[mpf]] = []
            for x in nodes:
                value = self.function(x)
                lower = [-value * x**k for k in range(1, self.below)]
                rows.append([*(x**k for k in range(self.above)), *lower])
            values = mpmath.matrix([self.function(x) for x in nodes])
            found = mpmath.lu_solve(mpmath.matrix(rows), values)
            rounded = [float(mpmath.nstr(c, DIGITS[self.bits])) for c in found]
        above, below = tuple(rounded[: self.above]), tuple(rounded[self.above :])
        return (above, (1.0, *below)) if below else above

    def error(self) -> float:
        """The largest error of that approximation in exact arithmetic."""
        table = self.coefficients()
        quotient = isinstance(table[0], tuple)
        above, below = table if quotient else (table, (1.0,))
        with mpmath.workdps(WORKING):
            return float(
                max(
                    abs(evaluate(above, x) / evaluate(below, x) - self.function(x))
                    for x in self.points(200)
                )
            )

    def points(self, count: int) -> list[mpf]:
        """Chebyshev's points of the interval."""
        half = mpf(self.end) / 2
        turns = (mpf(2 * k + 1) / (2 * count) for k in range(count))
        return [half * (1 + mpmath.cospi(turn)) for turn in turns]


def evaluate(coefficients: tuple[float, ...], x: mpf) -> mpf:
    return mpmath.polyval([mpf(c) for c in reversed(coefficients)], x)


def log_gamma(t: mpf) -> mpf:
    """lgamma(1 + t) / (t (t - 1)) - 1/2."""
    return mpmath.loggamma(1 + t) / (t * (t - 1)) - mpf(1) / 2


def stirling(w: mpf) -> mpf:
    """x times what lgamma(x) has beside Stirling's formula, where w = 1 / x**2."""
    x = 1 / mpmath.sqrt(w)
    formula = (x - mpf(1) / 2) * mpmath.log(x) - x + mpmath.log(2 * mpmath.pi) / 2
    return x * (mpmath.loggamma(x) - formula)


def digamma(t: mpf) -> mpf:
    """digamma(1 + t) over the distance to its zero."""
    zero = mpmath.findroot(mpmath.digamma, 1.4616) - 1
    if abs(t - zero) < mpf(10) ** -25:
        return mpmath.psi(1, 1 + t)
    return mpmath.digamma(1 + t) / (t - zero)


def digamma_far(w: mpf) -> mpf:
    """x**2 (log(x) - 1 / (2 x) - digamma(x)), where w = 1 / x**2."""
    x = 1 / mpmath.sqrt(w)
    return x * x * (mpmath.log(x) - 1 / (2 * x) - mpmath.digamma(x))


def reciprocal_gamma(t: mpf) -> mpf:
    """(1 / gamma(1 + t) - 1) / (t (1 - t))."""
    return (mpmath.rgamma(1 + t) - 1) / (t * (1 - t))


FITS = (
    Fit("_LOG_GAMMA", 32, log_gamma, 1, 4, 4),
    Fit("_LOG_GAMMA", 64, log_gamma, 1, 8, 7),
    Fit("_STIRLING", 32, stirling, 1 / 16, 3),
    Fit("_STIRLING", 64, stirling, 1 / 16, 9),
    Fit("_DIGAMMA", 32, digamma, 2, 5, 4),
    Fit("_DIGAMMA", 64, digamma, 2, 8, 7),
    Fit("_DIGAMMA_FAR", 32, digamma_far, 1 / 9, 4),
    Fit("_DIGAMMA_FAR", 64, digamma_far, 1 / 9, 12),
    Fit("_RECIPROCAL_GAMMA", 32, reciprocal_gamma, 1, 7),
    Fit("_RECIPROCAL_GAMMA", 64, reciprocal_gamma, 1, 14),
)


def main() -> None:
    for fit in FITS:
        print(f"# {fit.table}[{fit.bits}], within {fit.error():.1e}")
        print(fit.coefficients())


if __name__ == "__main__":
    main()
