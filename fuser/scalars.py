"""Python's own meaning of the primitives, on single numbers.

Comes in: Python numbers. Goes out: what the primitive gives in float64 (or in exact
integers), NaN and inf included where `math` would raise. The op table refers to these
functions; constant folding and the interpreter run them.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def total(
    real: Function, complex_: Function | None = None, overflow: float = math.inf
) -> Function:
    """The function with NaN for a domain error; `overflow`, with the sign of the
    argument where that is odd (negative), stands for what is too large."""

    def wrapped(*args: Any) -> Any:
        function = real
        if complex_ is not None and any(isinstance(a, complex) for a in args):
            function = complex_
        try:
            return function(*args)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.copysign(math.inf, args[0]) if overflow < 0 else overflow

    return wrapped


def add(a: Any, b: Any) -> Any:
    return a + b


def sub(a: Any, b: Any) -> Any:
    return a - b


def mul(a: Any, b: Any) -> Any:
    return a * b


def neg(a: Any) -> Any:
    return -a


def div(a: Any, b: Any) -> Any:
    if isinstance(a, complex) or isinstance(b, complex):
        return complex(a) / complex(b) if b else complex(math.nan, math.nan)
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def idiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def imod(a: int, b: int) -> int:
    return a - b * idiv(a, b)


def power(a: Any, b: Any) -> Any:
    if isinstance(a, complex) or isinstance(b, complex):
        return _complex_power(complex(a), complex(b))
    if isinstance(a, int) and isinstance(b, int):
        return _integer_power(a, b)
    odd = float(b).is_integer() and b % 2 == 1
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and odd else math.inf
    except ValueError:  # 0 to a negative power, or a root of a negative number
        if a != 0:
            return math.nan
        return math.copysign(math.inf, a) if odd else math.inf


def _complex_power(a: complex, b: complex) -> complex:
    if not a:
        return 0j if b else 1 + 0j
    try:
        return a**b
    except OverflowError:
        return complex(math.inf, math.nan)
    except ZeroDivisionError:  # an infinite exponent
        return complex(math.nan, math.nan)


def _integer_power(a: int, b: int) -> int:
    if b >= 0:
        return a**b
    if a in (1, -1):
        return a if b % 2 else 1
    return 0


def maximum(a: Any, b: Any) -> Any:
    return a if a != a or a >= b else b


def minimum(a: Any, b: Any) -> Any:
    return a if a != a or a <= b else b


def fmax(a: Any, b: Any) -> Any:
    return a if b != b or a >= b else b


def fmin(a: Any, b: Any) -> Any:
    return a if b != b or a <= b else b


def absolute(a: Any) -> Any:
    return math.hypot(a.real, a.imag) if isinstance(a, complex) else abs(a)


def sgn(a: Any) -> Any:
    if isinstance(a, complex):
        return a / abs(a) if a else 0j
    return type(a)((a > 0) - (a < 0))


def log(a: Any) -> Any:
    if isinstance(a, complex):
        return cmath.log(a) if a else complex(-math.inf, 0)
    if a > 0:
        return math.log(a)
    return -math.inf if a == 0 else math.nan


def log1p(a: Any) -> Any:
    if isinstance(a, complex):
        return log(1 + a)
    if a > -1:
        return math.log1p(a)
    return -math.inf if a == -1 else math.nan


def atanh(a: Any) -> Any:
    if isinstance(a, complex) or abs(a) != 1:
        return _atanh(a)
    return math.copysign(math.inf, a)


def rounding(function: Function) -> Function:
    """floor and its kin keep inf and NaN, and the sign of zero."""

    def wrapped(a: float) -> float:
        if not math.isfinite(a):
            return a
        return math.copysign(float(function(a)), a)

    return wrapped


sqrt = total(math.sqrt, cmath.sqrt)
exp = total(math.exp, cmath.exp)
sinh = total(math.sinh, cmath.sinh, overflow=-math.inf)
_atanh = total(math.atanh, cmath.atanh)
_expm1 = total(math.expm1)


def rsqrt(a: Any) -> Any:
    return div(1.0, sqrt(a))


def exp2(a: Any) -> Any:
    return power(2.0, a)


def expm1(a: Any) -> Any:
    return exp(a) - 1 if isinstance(a, complex) else _expm1(a)


def log2(a: Any) -> Any:
    if isinstance(a, complex):
        return log(a) / math.log(2)
    return math.log2(a) if a > 0 else log(a)


def log10(a: Any) -> Any:
    if isinstance(a, complex):
        return log(a) / math.log(10)
    return math.log10(a) if a > 0 else log(a)


def conj(a: Any) -> Any:
    return a.conjugate()


def real(a: Any) -> Any:
    return a.real


def imag(a: Any) -> Any:
    return a.imag


def signbit(a: Any) -> bool:
    return math.copysign(1.0, a) < 0


def isnan(a: Any) -> bool:
    return a != a


def where(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def both(a: Any, b: Any) -> Any:
    return a & b


def either(a: Any, b: Any) -> Any:
    return a | b


def differ(a: Any, b: Any) -> Any:
    return a ^ b


def left_shift(a: int, b: int) -> int:
    return a << b if 0 <= b < 64 else 0


def right_shift(a: int, b: int) -> int:
    return a >> b if 0 <= b < 64 else -(a < 0)
