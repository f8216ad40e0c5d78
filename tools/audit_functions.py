"""Functions as operators compute them, where mpmath does not have them so.

Comes in: numbers of mpmath, and options as they are. Goes out: the value; Undefined
outside of the domain, and where it would take too long.
"""

from __future__ import annotations

from typing import Any

import mpmath
from mpmath import mpc, mpf

from tools import accuracy_exact as exact
from tools.audit_slopes import Undefined, Value

# From where on sums and reflections of the functions below take too long.
FAR = 1e4

# From where on steps of 1 are too close to one another for differences.
STEPS = 5e11


def check(good: bool) -> None:
    if not good:
        raise Undefined("outside of the domain")


def log1p(x: Any) -> Any:
    return mpmath.log1p(x) if isinstance(x, mpf) and x > -1 else mpmath.log(1 + x)


def step(rounded: Value) -> Value:
    def checked(x: mpf) -> mpf:
        check(abs(x) < STEPS)
        return rounded(x)

    return checked


def trunc(x: mpf) -> mpf:
    return mpmath.floor(x) if x > 0 else mpmath.ceil(x)


def clamp(x: mpf, low: Any, high: Any) -> mpf:
    x = x if low is None else max(x, mpf(low))
    return x if high is None else min(x, mpf(high))


def copysign(x: mpf, y: Any) -> mpf:
    check(y != 0)
    return abs(x) if y > 0 else -abs(x)


def fmod(x: mpf, y: mpf) -> mpf:
    quotient = x / y
    check(abs(quotient) < STEPS)
    return x - y * trunc(quotient)


def remainder(x: mpf, y: mpf) -> mpf:
    quotient = x / y
    check(abs(quotient) < STEPS)
    return x - y * mpmath.floor(quotient)


def div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return x / y
    quotient = x / y
    check(abs(quotient) < STEPS)
    return mpmath.floor(quotient) if rounding_mode == "floor" else trunc(quotient)


def frexp(x: mpf) -> mpf:
    check(x != 0)
    with mpmath.workdps(20):
        _, exponent = mpmath.frexp(x)
    return mpmath.ldexp(x, -exponent)


def erfc(x: mpf) -> mpf:
    check(x < FAR)  # 0 in every dtype
    return mpmath.erfc(x)


def lgamma(x: mpf) -> mpf:
    check(x > -FAR)
    return exact.lgamma(x)


def digamma(x: mpf) -> mpf:
    check(x > -FAR)
    return mpmath.digamma(x)


def polygamma(n: int, x: mpf) -> mpf:
    check(x > -FAR)
    return exact.polygamma(n, x)


def mvlgamma(x: mpf, p: int) -> mpf:
    check(x > mpf(p - 1) / 2)
    return exact.mvlgamma(x, p)


def zeta(s: mpf, q: mpf) -> mpf:
    check(1 < s < FAR and q > 0)
    return exact.hurwitz(s, q)


def igamma(a: mpf, x: mpf) -> mpf:
    check(0 < a < FAR and 0 <= x < FAR)
    return exact.lower(a, x)


def igammac(a: mpf, x: mpf) -> mpf:
    return 1 - igamma(a, x)


def ndtri(p: mpf) -> mpf:
    check(0 < p < 1)
    return exact.ndtri(p)


def log_ndtr(x: mpf) -> mpf:
    if x < -1e5:
        y = -x / mpmath.sqrt(2)
        return mpmath.log(exact.erfcx(y) / 2) - y * y
    return mpmath.log(exact.ndtr(x))


def entr(x: mpf) -> mpf:
    check(x > 0)
    return -x * mpmath.log(x)


def xlogy(x: Any, y: Any) -> Any:
    check(not isinstance(y, mpf) or y > 0)
    return x * mpmath.log(y)


def xlog1py(x: mpf, y: mpf) -> mpf:
    check(y > -1)
    return x * mpmath.log1p(y)


def silu(x: Any) -> Any:
    return x * exact.sigmoid(x)


def gelu(x: mpf, approximate: str = "none") -> mpf:
    if approximate == "none":
        return x * exact.ndtr(x)
    return x * exact.sigmoid(2 * gelu_inner(x))


def gelu_inner(x: mpf) -> mpf:
    return mpmath.sqrt(2 / mpmath.pi) * (x + mpf(0.044715) * x**3)


def gelu_slope(x: mpf, approximate: str) -> mpf:
    if approximate == "none":
        return exact.ndtr(x) + x * mpmath.npdf(x)
    gate = exact.sigmoid(2 * gelu_inner(x))
    change = mpmath.sqrt(2 / mpmath.pi) * (1 + 3 * mpf(0.044715) * x * x)
    return gate + 2 * x * gate * exact.sigmoid(-2 * gelu_inner(x)) * change


def elu(x: mpf, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> mpf:
    if x > 0:
        return x * scale
    return mpf(alpha) * scale * mpmath.expm1(x * input_scale)


def elu_backward(
    grad: mpf, alpha: float, scale: float, by: float, of_result: bool, x: mpf
) -> mpf:
    if x > 0:
        return grad * scale
    inner = x + mpf(alpha) * scale if of_result else alpha * scale * mpmath.exp(x * by)
    return grad * by * inner


def celu(x: mpf, alpha: float) -> mpf:
    return elu(x, alpha, 1, 1 / mpf(alpha))


def softplus_backward(grad: mpf, x: mpf, beta: float, threshold: float) -> mpf:
    return grad if x * beta > threshold else grad * exact.sigmoid(x * beta)


def logit(x: mpf, eps: float | None = None) -> mpf:
    if eps is not None:
        x = clamp(x, eps, 1 - mpf(eps))
    check(0 < x < 1)
    return mpmath.log(x) - mpmath.log1p(-x)


def hardshrink(x: mpf, lambd: float) -> mpf:
    return x if abs(x) > lambd else mpf(0)


def softshrink(x: mpf, lambd: float) -> mpf:
    return x - lambd if x > lambd else x + lambd if x < -lambd else mpf(0)


def shrink_backward(grad: mpf, x: mpf, lambd: float) -> mpf:
    check(abs(x) != lambd)
    return grad if abs(x) > lambd else mpf(0)


def prelu_backward(grad: mpf, x: mpf, weight: mpf) -> mpf:
    """Both results, added up."""
    check(x != 0)
    return grad if x > 0 else grad * weight + grad * x


def leaky_backward(grad: mpf, x: mpf, slope: float, of_result: bool) -> mpf:
    check(x != 0)
    return grad if x > 0 else grad * slope


def cross_entropy_backward(
    grad: mpf, x: mpf, target: mpf, weight: Any, reduction: int
) -> mpf:
    check(0 < x < 1 and x * (1 - x) > 1e-12)
    return grad * (1 if weight is None else weight) * (x - target) / (x * (1 - x))


def power(x: Any, y: Any) -> Any:
    if isinstance(x, mpc) or isinstance(y, mpc):
        return mpmath.power(x, y)
    x, y = mpf(x), mpf(y)
    check(x >= 0 or (y == mpmath.nint(y) and abs(y) < 1e15))
    return exact.power(x, y)


def hardswish(x: mpf) -> mpf:
    return x * clamp(x + 3, 0, 6) / 6


def hardswish_backward(grad: mpf, x: mpf) -> mpf:
    return mpf(0) if x <= -3 else grad if x >= 3 else grad * (x / 3 + mpf(1) / 2)


def inside(grad: mpf, x: mpf, low: float, high: float) -> mpf:
    check(x not in (low, high))
    return grad if low < x < high else mpf(0)


def log2(x: Any) -> Any:
    return mpmath.log(x) / mpmath.log(2)


def log10(x: Any) -> Any:
    return mpmath.log(x) / mpmath.log(10)


def exp2(x: Any) -> Any:
    return mpmath.exp(x * mpmath.log(2))
