"""What operators compute, in mpmath, and derivatives of it that can be relied on.

Comes in: the arguments of an operator in the order of its signature, tensors as single
numbers of mpmath. Goes out: the value, or `slope`, the partial derivative by one
argument: differences at several precisions, which have to agree with one another, from
both sides, or there is no answer.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mpmath
from mpmath import mpc, mpf
from mpmath.libmp import NoConvergence

from tools import accuracy_exact as exact

Value = Callable[..., Any]

# The precisions that differences are tried at, in digits; what a slope may take.
LEVELS = (50, 130, 1200)
SECONDS = 3.0

# From where on sums and reflections of the functions below take too long.
FAR = 1e4

# From where on steps of 1 are too close to one another for differences.
STEPS = 5e11


class Undefined(ValueError):
    """The operator has no value there, or none that can be had in a short time."""


def slope(value: Value, args: Sequence[Any], place: int) -> Any:
    """The derivative by the argument at `place`; Undefined where there is none, at a
    kink or a step, or where it cannot be had for certain.

    It may be from one side, where the other is not in the domain; the derivative by a
    complex number is that of a holomorphic function.
    """
    with _limited():
        flat = False
        for digits in LEVELS:
            if flat and digits != LEVELS[-1]:
                continue
            for scale in _scales(args, place):
                with mpmath.workdps(digits):
                    found = _agreed(value, args, place, scale, digits)
                if found is not None and (found or digits == LEVELS[-1]):
                    return found
                if found is not None:  # 0 may be what is too small for these digits
                    flat = True
                    break
    raise Undefined(f"no derivative at {args}")


def value(function: Value, args: Sequence[Any]) -> Any:
    """The value itself; Undefined where there is none."""
    with _limited(), mpmath.workdps(LEVELS[0]):
        return _at(function, args)


@contextmanager
def _limited() -> Iterator[None]:
    """Undefined for what takes too long."""

    def late(*_: object) -> None:
        raise Undefined("it takes too long")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _scales(args: Sequence[Any], place: int) -> list[mpf]:
    """On which scales of that argument the operator may change."""
    others = [abs(a) for a in args if isinstance(a, mpf | mpc) and a]
    size = abs(args[place])
    if not size:
        return [min([mpf(1), *others])]
    return [size, mpf(1), 1 / size] if size > 1 else [size]


def _agreed(
    function: Value, args: Sequence[Any], place: int, scale: mpf, digits: int
) -> Any:
    """The derivative, or None where differences of two widths, or those to the left and
    to the right, do not agree."""
    wide = scale * mpf(10) ** -(digits // 3)
    narrow = wide / 1024
    if not _near(args[place] + narrow - args[place], narrow, 1e-12):
        return None
    ways = [1, mpc(0, 1)] if isinstance(args[place], mpc) else [1]
    found: list[Any] = []
    for way in ways:
        here = _at(function, args)
        sides = [
            [_moved(function, args, place, s * way * h) for h in (wide, narrow)]
            for s in (1, -1)
        ]
        there = [
            [
                (y - here) / (s * way * h)
                for y, h in zip(ys, (wide, narrow), strict=True)
            ]
            for s, ys in zip((1, -1), sides, strict=True)
            if None not in ys
        ]
        if not there:
            return None
        for one in there:
            if not _near(one[0], one[1], 1e-8):
                return None
        if len(there) == 2:
            right, left = there
            if not _near(right[1], left[1], 1e-8):
                return None
            both = [(r + e) / 2 for r, e in zip(right, left, strict=True)]
            if not _near(both[0], both[1], 1e-14):
                return None
            found.append(both[1])
        else:
            found.append(there[0][1])
    return found[0] if all(_near(f, found[0], 1e-12) for f in found) else None


def _near(a: Any, b: Any, relative: float) -> bool:
    return abs(a - b) <= relative * abs(b)


def _moved(function: Value, args: Sequence[Any], place: int, by: Any) -> Any:
    """The value beside the point, None where it is not defined."""
    moved = list(args)
    moved[place] = args[place] + by
    try:
        return _at(function, moved)
    except Undefined as error:
        if "long" in str(error):
            raise
        return None


def _at(function: Value, args: Sequence[Any]) -> Any:
    try:
        found = function(*args)
    except Undefined:
        raise
    except (ValueError, ArithmeticError, TypeError, NoConvergence) as error:
        raise Undefined(str(error)) from error
    whole = any(isinstance(a, mpc) for a in args)
    if isinstance(found, mpc) and not whole and found.imag:
        raise Undefined("the value is complex")
    found = (
        found.real if isinstance(found, mpc) and not whole else mpmath.mpmathify(found)
    )
    if not mpmath.isfinite(found):
        raise Undefined("the value is not finite")
    return found


# -- functions that mpmath does not have as they are needed ----------------------------


def _check(good: bool) -> None:
    if not good:
        raise Undefined("outside of the domain")


def _log1p(x: Any) -> Any:
    return mpmath.log1p(x) if isinstance(x, mpf) and x > -1 else mpmath.log(1 + x)


def _sigmoid(x: Any) -> Any:
    if isinstance(x, mpf) and x < 0:
        return mpmath.exp(x) / (1 + mpmath.exp(x))
    return 1 / (1 + mpmath.exp(-x))


def _step(rounded: Value) -> Value:
    def step(x: mpf) -> mpf:
        _check(abs(x) < STEPS)
        return rounded(x)

    return step


def _trunc(x: mpf) -> mpf:
    return mpmath.floor(x) if x > 0 else mpmath.ceil(x)


def _clamp(x: mpf, low: Any, high: Any) -> mpf:
    x = x if low is None else max(x, mpf(low))
    return x if high is None else min(x, mpf(high))


def _copysign(x: mpf, y: Any) -> mpf:
    _check(y != 0)
    return abs(x) if y > 0 else -abs(x)


def _fmod(x: mpf, y: mpf) -> mpf:
    quotient = x / y
    _check(abs(quotient) < STEPS)
    return x - y * _trunc(quotient)


def _remainder(x: mpf, y: mpf) -> mpf:
    quotient = x / y
    _check(abs(quotient) < STEPS)
    return x - y * mpmath.floor(quotient)


def _div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return x / y
    quotient = x / y
    _check(abs(quotient) < STEPS)
    return mpmath.floor(quotient) if rounding_mode == "floor" else _trunc(quotient)


def _frexp(x: mpf) -> mpf:
    _check(x != 0)
    with mpmath.workdps(20):
        _, exponent = mpmath.frexp(x)
    return mpmath.ldexp(x, -exponent)


def _erfc(x: mpf) -> mpf:
    _check(x < FAR)  # 0 in every dtype
    return mpmath.erfc(x)


def _lgamma(x: mpf) -> mpf:
    _check(x > -FAR)
    return exact.lgamma(x)


def _digamma(x: mpf) -> mpf:
    _check(x > -FAR)
    return mpmath.digamma(x)


def _polygamma(n: int, x: mpf) -> mpf:
    _check(x > -FAR)
    return exact.polygamma(n, x)


def _mvlgamma(x: mpf, p: int) -> mpf:
    _check(x > mpf(p - 1) / 2)
    log_pi = mpmath.log(mpmath.pi) * p * (p - 1) / 4
    return log_pi + sum(exact.lgamma(x - mpf(k) / 2) for k in range(p))


def _zeta(s: mpf, q: mpf) -> mpf:
    _check(1 < s < FAR and q > 0)
    return exact.hurwitz(s, q)


def _igamma(a: mpf, x: mpf) -> mpf:
    _check(0 < a < FAR and 0 <= x < FAR)
    return exact.lower(a, x)


def _igammac(a: mpf, x: mpf) -> mpf:
    return 1 - _igamma(a, x)


def _bessel(order: int) -> Value:
    return lambda x: exact.scaled_bessel(order, x) * mpmath.exp(abs(x))


def _scaled_bessel(order: int) -> Value:
    return lambda x: exact.scaled_bessel(order, x)


def _ndtri(p: mpf) -> mpf:
    _check(0 < p < 1)
    return exact.ndtri(p)


def _log_ndtr(x: mpf) -> mpf:
    if x < -1e5:
        y = -x / mpmath.sqrt(2)
        return mpmath.log(exact.erfcx(y) / 2) - y * y
    return mpmath.log(exact.ndtr(x))


def _entr(x: mpf) -> mpf:
    _check(x > 0)
    return -x * mpmath.log(x)


def _xlogy(x: Any, y: Any) -> Any:
    _check(not isinstance(y, mpf) or y > 0)
    return x * mpmath.log(y)


def _xlog1py(x: mpf, y: mpf) -> mpf:
    _check(y > -1)
    return x * mpmath.log1p(y)


def _silu(x: Any) -> Any:
    return x * _sigmoid(x)


def _gelu(x: mpf, approximate: str = "none") -> mpf:
    if approximate == "none":
        return x * exact.ndtr(x)
    return x * _sigmoid(2 * _gelu_inner(x))


def _gelu_inner(x: mpf) -> mpf:
    return mpmath.sqrt(2 / mpmath.pi) * (x + mpf(0.044715) * x**3)


def _gelu_slope(x: mpf, approximate: str) -> mpf:
    if approximate == "none":
        return exact.ndtr(x) + x * mpmath.npdf(x)
    gate = _sigmoid(2 * _gelu_inner(x))
    change = mpmath.sqrt(2 / mpmath.pi) * (1 + 3 * mpf(0.044715) * x * x)
    return gate + 2 * x * gate * _sigmoid(-2 * _gelu_inner(x)) * change


def _elu(x: mpf, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> mpf:
    if x > 0:
        return x * scale
    return mpf(alpha) * scale * mpmath.expm1(x * input_scale)


def _elu_backward(
    grad: mpf, alpha: float, scale: float, by: float, of_result: bool, x: mpf
) -> mpf:
    if x > 0:
        return grad * scale
    inner = x + mpf(alpha) * scale if of_result else alpha * scale * mpmath.exp(x * by)
    return grad * by * inner


def _celu(x: mpf, alpha: float) -> mpf:
    return _elu(x, alpha, 1, 1 / mpf(alpha))


def _softplus(x: mpf, beta: float, threshold: float) -> mpf:
    if x * beta > threshold:
        return x
    return mpmath.log1p(mpmath.exp(x * beta)) / beta


def _softplus_backward(grad: mpf, x: mpf, beta: float, threshold: float) -> mpf:
    return grad if x * beta > threshold else grad * _sigmoid(x * beta)


def _logit(x: mpf, eps: float | None = None) -> mpf:
    if eps is not None:
        x = _clamp(x, eps, 1 - mpf(eps))
    _check(0 < x < 1)
    return mpmath.log(x) - mpmath.log1p(-x)


def _hardshrink(x: mpf, lambd: float) -> mpf:
    return x if abs(x) > lambd else mpf(0)


def _softshrink(x: mpf, lambd: float) -> mpf:
    return x - lambd if x > lambd else x + lambd if x < -lambd else mpf(0)


def _shrink_backward(grad: mpf, x: mpf, lambd: float) -> mpf:
    _check(abs(x) != lambd)
    return grad if abs(x) > lambd else mpf(0)


def _prelu_backward(grad: mpf, x: mpf, weight: mpf) -> mpf:
    """Both results, added up."""
    _check(x != 0)
    return grad if x > 0 else grad * weight + grad * x


def _leaky_backward(grad: mpf, x: mpf, slope: float, of_result: bool) -> mpf:
    _check(x != 0)
    return grad if x > 0 else grad * slope


def _cross_entropy_backward(
    grad: mpf, x: mpf, target: mpf, weight: Any, reduction: int
) -> mpf:
    _check(0 < x < 1 and x * (1 - x) > 1e-12)
    return grad * (1 if weight is None else weight) * (x - target) / (x * (1 - x))


def _pow(x: Any, y: Any) -> Any:
    if isinstance(x, mpc) or isinstance(y, mpc):
        return mpmath.power(x, y)
    x, y = mpf(x), mpf(y)
    if x < 0:
        _check(y == mpmath.nint(y) and abs(y) < 1e15)
        return (-1) ** int(y % 2) * abs(x) ** y
    return x**y


def _hardswish(x: mpf) -> mpf:
    return x * _clamp(x + 3, 0, 6) / 6


def _hardswish_backward(grad: mpf, x: mpf) -> mpf:
    return mpf(0) if x <= -3 else grad if x >= 3 else grad * (x / 3 + mpf(1) / 2)


def _inside(grad: mpf, x: mpf, low: float, high: float) -> mpf:
    _check(x not in (low, high))
    return grad if low < x < high else mpf(0)


def _log2(x: Any) -> Any:
    return mpmath.log(x) / mpmath.log(2)


def _log10(x: Any) -> Any:
    return mpmath.log(x) / mpmath.log(10)


def _exp2(x: Any) -> Any:
    return mpmath.exp(x * mpmath.log(2))


# -- operators -------------------------------------------------------------------------

_UNARY: dict[str, Value] = {
    "abs": abs,
    "acos": mpmath.acos,
    "acosh": mpmath.acosh,
    "angle": lambda x: mpmath.pi if x < 0 else mpf(0),
    "asin": mpmath.asin,
    "asinh": mpmath.asinh,
    "atan": mpmath.atan,
    "atanh": mpmath.atanh,
    "ceil": _step(mpmath.ceil),
    "cos": mpmath.cos,
    "cosh": mpmath.cosh,
    "deg2rad": lambda x: x * mpmath.pi / 180,
    "digamma": _digamma,
    "erf": mpmath.erf,
    "erfc": _erfc,
    "erfinv": mpmath.erfinv,
    "exp": mpmath.exp,
    "exp2": _exp2,
    "expm1": mpmath.expm1,
    "floor": _step(mpmath.floor),
    "frac": _step(lambda x: x - _trunc(x)),
    "frexp.Tensor": _frexp,
    "hardsigmoid": lambda x: _clamp(x + 3, 0, 6) / 6,
    "hardswish": _hardswish,
    "i0": _bessel(0),
    "lgamma": _lgamma,
    "log": mpmath.log,
    "log10": _log10,
    "log1p": _log1p,
    "log2": _log2,
    "log_sigmoid_forward": lambda x: -mpmath.log1p(mpmath.exp(-x)),
    "mish": exact.mish,
    "neg": lambda x: -x,
    "rad2deg": lambda x: x * 180 / mpmath.pi,
    "reciprocal": lambda x: 1 / x,
    "relu": lambda x: _clamp(x, 0, None),
    "round": _step(mpmath.nint),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sgn": mpmath.sign,
    "sigmoid": _sigmoid,
    "sign": mpmath.sign,
    "silu": _silu,
    "sin": mpmath.sin,
    "sinc": mpmath.sincpi,
    "sinh": mpmath.sinh,
    "special_entr": _entr,
    "special_erfcx": exact.erfcx,
    "special_i0e": _scaled_bessel(0),
    "special_i1": _bessel(1),
    "special_i1e": _scaled_bessel(1),
    "special_log_ndtr": _log_ndtr,
    "special_ndtri": _ndtri,
    "sqrt": mpmath.sqrt,
    "tan": mpmath.tan,
    "tanh": mpmath.tanh,
    "trunc": _step(_trunc),
}

_SEVERAL: dict[str, Value] = {
    "_prelu_kernel": lambda x, w: x if x > 0 else x * w,
    "_prelu_kernel_backward": _prelu_backward,
    "add.Scalar": lambda x, y, alpha: x + mpf(alpha) * y,
    "add.Tensor": lambda x, y, alpha: x + mpf(alpha) * y,
    "addcdiv": lambda x, y, z, value: x + mpf(value) * y / z,
    "addcmul": lambda x, y, z, value: x + mpf(value) * y * z,
    "atan2": mpmath.atan2,
    "binary_cross_entropy_backward": _cross_entropy_backward,
    "celu": _celu,
    "celu_": _celu,
    "clamp": _clamp,
    "clamp.Tensor": _clamp,
    "clamp_max": lambda x, y: _clamp(x, None, y),
    "clamp_max.Tensor": lambda x, y: _clamp(x, None, y),
    "clamp_min": lambda x, y: _clamp(x, y, None),
    "clamp_min.Tensor": lambda x, y: _clamp(x, y, None),
    "copysign.Scalar": _copysign,
    "copysign.Tensor": _copysign,
    "div.Scalar": _div,
    "div.Scalar_mode": _div,
    "div.Tensor": _div,
    "div.Tensor_mode": _div,
    "elu": _elu,
    "elu_": _elu,
    "elu_backward": _elu_backward,
    "fmax": max,
    "fmin": min,
    "fmod.Scalar": _fmod,
    "fmod.Tensor": _fmod,
    "gelu": _gelu,
    "gelu_backward": lambda grad, x, approximate: grad * _gelu_slope(x, approximate),
    "hardshrink": _hardshrink,
    "hardshrink_backward": _shrink_backward,
    "hardswish_backward": _hardswish_backward,
    "hardtanh": _clamp,
    "hardtanh_backward": _inside,
    "huber_loss_backward": lambda grad, x, target, reduction, delta: (
        grad * _clamp(x - target, -delta, delta)
    ),
    "hypot": mpmath.hypot,
    "igamma": _igamma,
    "igammac": _igammac,
    "ldexp.Tensor": lambda x, y: x * _exp2(y),
    "leaky_relu": lambda x, slope: x if x > 0 else x * slope,
    "leaky_relu_": lambda x, slope: x if x > 0 else x * slope,
    "leaky_relu_backward": _leaky_backward,
    "lerp.Scalar": lambda x, end, weight: x + mpf(weight) * (end - x),
    "lerp.Tensor": lambda x, end, weight: x + weight * (end - x),
    "log_sigmoid_backward": lambda grad, x, buffer: grad * _sigmoid(-x),
    "logaddexp": exact.logaddexp,
    "logaddexp2": exact.logaddexp2,
    "logit": _logit,
    "masked_fill.Scalar": lambda x, mask, value: mpf(value) if mask else x,
    "maximum": max,
    "minimum": min,
    "mse_loss_backward": lambda grad, x, target, reduction: 2 * grad * (x - target),
    "mul.Scalar": lambda x, y: x * y,
    "mul.Tensor": lambda x, y: x * y,
    "mvlgamma": _mvlgamma,
    "nan_to_num": lambda x, *_: x,
    "native_dropout_backward": lambda grad, mask, scale: grad * int(mask) * mpf(scale),
    "polygamma": _polygamma,
    "polygamma_": lambda x, n: _polygamma(n, x),
    "pow.Scalar": _pow,
    "pow.Tensor_Scalar": _pow,
    "pow.Tensor_Tensor": _pow,
    "remainder.Scalar": _remainder,
    "remainder.Tensor": _remainder,
    "rsub.Scalar": lambda x, y, alpha: y - mpf(alpha) * x,
    "rsub.Tensor": lambda x, y, alpha: y - mpf(alpha) * x,
    "sigmoid_backward": lambda grad, y: grad * y * (1 - y),
    "smooth_l1_loss_backward": lambda grad, x, target, reduction, beta: (
        grad * _clamp((x - target) / beta, -1, 1)
    ),
    "soft_margin_loss_backward": lambda grad, x, target, reduction: (
        -grad * target * _sigmoid(-target * x)
    ),
    "softplus": _softplus,
    "softplus_backward": _softplus_backward,
    "softshrink": _softshrink,
    "softshrink_backward": _shrink_backward,
    "special_xlog1py": _xlog1py,
    "special_xlog1py.other_scalar": _xlog1py,
    "special_xlog1py.self_scalar": _xlog1py,
    "special_zeta": _zeta,
    "special_zeta.self_scalar": _zeta,
    "sub.Scalar": lambda x, y, alpha: x - mpf(alpha) * y,
    "sub.Tensor": lambda x, y, alpha: x - mpf(alpha) * y,
    "tanh_backward": lambda grad, y: grad * (1 - y * y),
    "threshold": lambda x, threshold, value: x if x > threshold else mpf(value),
    "threshold_": lambda x, threshold, value: x if x > threshold else mpf(value),
    "threshold_backward": lambda grad, x, threshold: grad if x > threshold else mpf(0),
    "where.self": lambda condition, x, y: x if condition else y,
    "xlogy.Scalar_Other": _xlogy,
    "xlogy.Scalar_Self": _xlogy,
    "xlogy.Tensor": _xlogy,
}

VALUES: dict[str, Value] = {**_UNARY, **_SEVERAL}

# Operators that are holomorphic, and whose value above is that of complex numbers, too.
_NAMES = """acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10
log1p log2 neg reciprocal rsqrt sigmoid silu sin sinh sqrt tan tanh addcdiv addcmul
div.Tensor mul.Tensor pow.Tensor_Tensor xlogy.Tensor"""
HOLOMORPHIC = frozenset(_NAMES.split())
