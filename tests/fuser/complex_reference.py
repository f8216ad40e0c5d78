"""Complex functions in mpmath, numbers to try them on, and how far a result is off.

Errors are counted in units of eps |f|, where below the normal range the smallest normal
number stands for |f|.
"""

from __future__ import annotations

import cmath
import math
import random
from collections.abc import Callable, Iterator

import mpmath

from fuser import dtypes
from fuser.dtypes import DType

mpc = mpmath.mpc

UNARY: dict[str, Callable[[mpc], mpc]] = {
    "neg": lambda z: -z,
    "conj": mpmath.conj,
    "real": lambda z: z.real,
    "imag": lambda z: z.imag,
    "abs": abs,
    "sgn": lambda z: z / abs(z),
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
    "exp": mpmath.exp,
    "exp2": lambda z: mpmath.exp(z * mpmath.log(2)),
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log2": lambda z: mpmath.log(z) / mpmath.log(2),
    "log10": lambda z: mpmath.log(z) / mpmath.log(10),
    "log1p": lambda z: mpmath.log(1 + z),
    **{
        arc + name + h: getattr(mpmath, arc + name + h)
        for arc in ("", "a")
        for name in ("sin", "cos", "tan")
        for h in ("", "h")
    },
}
BINARY: dict[str, Callable[[mpc, mpc], mpc]] = {
    "add": lambda z, w: z + w,
    "sub": lambda z, w: z - w,
    "mul": lambda z, w: z * w,
    "div": lambda z, w: z / w,
    "pow": lambda z, w: mpmath.exp(w * mpmath.log(z)),
}
# Bits that leave room for 1 + z at the smallest z.
BITS = 1300

# mpmath has no sign of zero. Where a function has a branch cut a number next to zero
# stands for it, so that mpmath sees the side that the sign means.
NEXT_TO_ZERO = mpmath.ldexp(1, -1200)
CUT = {"sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow"} | {
    arc for arc in UNARY if arc.startswith("a") and arc != "abs"
}


def exact(name: str, z: complex) -> mpc:
    """The number as mpmath is to see it when the function is `name`."""
    if name not in CUT:
        return mpc(z)
    return mpc(
        *(math.copysign(1, x) * NEXT_TO_ZERO if x == 0 else x for x in parts_of(z))
    )


def parts_of(z: complex) -> tuple[float, float]:
    return z.real, z.imag


def limits(dtype: DType) -> tuple[float, float, mpmath.mpf]:
    """eps, the smallest normal number, and where rounding gives infinity."""
    if dtype == dtypes.complex128:
        return 2.0**-52, 2.0**-1022, mpmath.ldexp(1, 1024) - mpmath.ldexp(1, 970)
    return 2.0**-23, 2.0**-126, mpmath.ldexp(1, 128) - mpmath.ldexp(1, 103)


def error(found: complex, wanted: mpc, dtype: DType) -> float:
    """|found - wanted| in units; infinity must stand exactly where it is meant."""
    eps, normal, overflow = limits(dtype)
    parts = list(zip(parts_of(found), (wanted.real, wanted.imag), strict=True))
    if any(abs(w) >= overflow for _, w in parts):
        large = [(f, w) for f, w in parts if abs(w) >= overflow]
        exact_ = all(math.isinf(f) and f * w > 0 for f, w in large)
        return 0.0 if exact_ else math.inf
    if not cmath.isfinite(found):
        return math.inf
    return float(abs(mpc(found) - wanted) / (eps * max(abs(wanted), normal)))


def magnitudes(dtype: DType) -> tuple[float, float]:
    """The decimal exponents of numbers that have all their digits."""
    return (-300, 300) if dtype == dtypes.complex128 else (-37, 37)


def points(dtype: DType, seed: str, count: int = 12) -> Iterator[complex]:
    """Numbers of all sizes, near what is special, on the axes, at the range's end."""
    rng = random.Random(f"{seed} {dtype}")
    low, high = magnitudes(dtype)
    end = 720.0 if dtype == dtypes.complex128 else 92.0
    tiny = 5e-324 if dtype == dtypes.complex128 else 1.5e-45

    def signed(x: float) -> float:
        return math.copysign(x, rng.uniform(-1, 1))

    def sized(low: float, high: float) -> float:
        return signed(10 ** rng.uniform(low, high))

    for _ in range(count):
        yield complex(sized(low, high), sized(low, high))
        yield complex(sized(-3, 2), sized(-3, 2))
        yield complex(rng.uniform(-4, 4), rng.uniform(-4, 4))
        yield cmath.rect(1 + sized(-16, -1), rng.uniform(-math.pi, math.pi))
        yield complex(signed(end * rng.uniform(0.8, 1)), rng.uniform(-4, 4))
        yield complex(rng.uniform(-4, 4), signed(end * rng.uniform(0.8, 1)))
        yield complex(sized(low, high), tiny * rng.randrange(1, 1000))
        yield complex(sized(low - 8, low), sized(low - 8, low))
        for x in (sized(-2, 1), sized(low, high)):
            zero = signed(0.0)
            yield from (complex(x, zero), complex(x, -zero), complex(zero, x))
        for special in (1, -1, 1j, -1j, math.pi / 2, math.pi * 1j, math.pi / 2 * 1j):
            yield special + complex(sized(-18, -1), sized(-18, -1))
    most = 1.7e308 if dtype == dtypes.complex128 else 3.3e38
    for x in (most, -most):
        yield from (complex(x, most), complex(x, 1), complex(1, x))


def accurate_at(name: str, dtype: DType, z: complex) -> bool:
    """Whether the angle b log(2) of exp2 has all its digits; a larger b loses some."""
    limit = 1e6 if dtype == dtypes.complex128 else 4e3
    return name != "exp2" or abs(z.imag) < limit
