"""What a dtype makes of a Python number.

Comes in: numbers. Goes out: the numbers that the dtype can hold: floats rounded to
nearest even, integers wrapped around.
"""

from __future__ import annotations

import math
import struct

from fuser.dtypes import DType

Number = bool | int | float | complex


def rounded(value: Number, dtype: DType) -> Number:
    """The number as the dtype holds it; of a complex one, for a real dtype, the real
    part. Floats are truncated to integers; infinities and NaN become 0 there."""
    if dtype.kind == "complex":
        z = complex(value)
        return complex(_round(z.real, dtype.real), _round(z.imag, dtype.real))
    if isinstance(value, complex):
        value = value.real
    if dtype.kind == "bool":
        return bool(value)
    if dtype.kind == "float":
        return _round(_as_float(value), dtype)
    if isinstance(value, float) and not math.isfinite(value):
        return 0
    return wrap_integer(int(value), dtype)


def wrap_integer(value: int, dtype: DType) -> int:
    """The value modulo 2**bits, in the range of the integer type."""
    value &= (1 << dtype.bits) - 1
    if dtype.signed and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def _as_float(value: bool | int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _round(value: float, dtype: DType) -> float:
    if dtype.bits == 64 or not math.isfinite(value):
        return value
    if dtype.name == "bfloat16":
        return _round_bfloat16(value)
    try:
        code = "f" if dtype.bits == 32 else "e"
        return struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _round_bfloat16(value: float) -> float:
    """Round to nearest even on the upper half of float32's bits, as kernels do."""
    try:
        bits = struct.unpack("I", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return struct.unpack("f", struct.pack("I", bits & 0xFFFF0000))[0]
