"""Exact values of functions, where mpmath does not have them, or not fast enough.

Comes in: numbers of mpmath. Goes out: values good to some 40 digits at `DIGITS` digits
of working precision.
Source: Abramowitz and Stegun, Handbook of Mathematical Functions (A&S), by formula.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import mpmath
from mpmath import mpf

DIGITS = 60


def sigmoid(x: mpf) -> mpf:
    return 1 / (1 + mpmath.exp(-x))


def softplus(x: mpf, beta: float = 1, threshold: float = 20) -> mpf:
    """From the threshold on it is x by definition."""
    return x if x * beta > threshold else mpmath.log1p(mpmath.exp(x * beta)) / beta


def mish(x: mpf) -> mpf:
    e = mpmath.exp(x)
    return x * e * (e + 2) / (e * (e + 2) + 2)


def sinc_change(x: mpf) -> mpf:
    return mpmath.cospi(x) - mpmath.sincpi(x)


def ndtr(x: mpf) -> mpf:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def ndtri(p: mpf) -> mpf:
    """By Newton's method from the standard library's value."""
    if p > 0.5:
        return -ndtri(1 - p)
    x = mpf(NormalDist().inv_cdf(float(p)))
    for _ in range(3):
        ratio = (ndtr(x) - p) / mpmath.npdf(x)
        x -= ratio / (1 + x * ratio / 2)  # Halley's correction
    return x


def erfcx(x: mpf) -> mpf:
    if x > 1e8:  # A&S 7.1.23
        y = 1 / (2 * x * x)
        return (1 - y * (1 - 3 * y * (1 - 5 * y))) / (x * mpmath.sqrt(mpmath.pi))
    return mpmath.exp(x * x) * mpmath.erfc(x)


def lgamma(x: mpf) -> mpf:
    return mpmath.re(mpmath.loggamma(x))


def mvlgamma(x: mpf, p: int = 3) -> mpf:
    of_pi = mpmath.log(mpmath.pi) * p * (p - 1) / 4
    return of_pi + sum(lgamma(x - mpf(k) / 2) for k in range(p))


def hurwitz(s: mpf, q: mpf) -> mpf:
    """zeta(s, q) by the Euler-Maclaurin formula; q < 0 is for whole s."""
    count = max(0, math.ceil(max(30, s) - q))
    w = q + count
    total = mpmath.re(mpmath.fsum((q + k) ** -s for k in range(count)))
    total += w ** (1 - s) / (s - 1) + w**-s / 2
    term = s * w ** (-s - 1)
    for k in range(1, 26):
        total += mpmath.bernoulli(2 * k) / mpmath.factorial(2 * k) * term
        term *= (s + 2 * k - 1) * (s + 2 * k) / w**2
    return total


def polygamma(n: int, x: mpf) -> mpf:
    """psi of order n <= 4, reflected for x < 0 (A&S 6.4.7)."""
    if x > 0:
        if n == 0:
            return mpmath.digamma(x)
        return (-1) ** (n + 1) * mpmath.factorial(n) * hurwitz(mpf(n + 1), x)
    s, c, pi = mpmath.sinpi(x), mpmath.cospi(x), mpmath.pi
    cotangent = (
        pi * c / s,
        -((pi / s) ** 2),
        2 * (pi / s) ** 3 * c,
        -2 * (pi / s) ** 4 * (1 + 2 * c * c),
        8 * (pi / s) ** 5 * c * (2 + c * c),
    )[n]
    return (-1) ** n * polygamma(n, 1 - x) - cotangent


def scaled_bessel(order: int, x: mpf) -> mpf:
    """exp(-|x|) I(x); for large x by A&S 9.7.1."""
    y = abs(x)
    if y < 100:
        return mpmath.exp(-y) * mpmath.besseli(order, x)
    total = term = mpf(1)
    for k in range(1, 60):
        term *= -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * y)
        total += term
    sign = -1 if order and x < 0 else 1
    return sign * total / mpmath.sqrt(2 * mpmath.pi * y)


def bessel(order: int, x: mpf) -> mpf:
    return scaled_bessel(order, x) * mpmath.exp(abs(x))


def lower(a: mpf, x: mpf) -> mpf:
    """P(a, x) by A&S 6.5.29, whose terms are all positive."""
    if x == 0:
        return mpf(0)
    term = total = mpf(1)
    n = 0
    least = mpf(10) ** -(mpmath.mp.dps + 2)
    while term > least * total:
        n += 1
        term *= x / (a + n)
        total += term
    return total * mpmath.exp(a * mpmath.log(x) - x - mpmath.loggamma(a + 1))


def upper(a: mpf, x: mpf) -> mpf:
    """Q(a, x), with the digits that 1 - P loses."""
    lost = max(0.0, float(x - a - a * mpmath.log(x / a))) / math.log(10)
    with mpmath.workdps(DIGITS + 10 + int(lost)):
        return 1 - lower(a, x)


def power(x: mpf, y: mpf) -> mpf:
    """Of a negative x the sign by the nearest whole y: y is whole, but for a step."""
    sign = -1 if x < 0 and int(mpmath.nint(y)) % 2 else 1
    return sign * abs(x) ** y


def logaddexp2(x: mpf, y: mpf) -> mpf:
    return max(x, y) + mpmath.log1p(mpf(2) ** -abs(x - y)) / mpmath.log(2)


def logaddexp(x: mpf, y: mpf) -> mpf:
    return max(x, y) + mpmath.log1p(mpmath.exp(-abs(x - y)))
