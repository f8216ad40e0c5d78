"""Constants as C spells them.

Comes in: Python numbers. Goes out: expressions of exactly the wanted value and type,
enclosed in parentheses where they are more than one token.
"""

from __future__ import annotations

import math
import struct

from fuser import ir
from fuser.dtypes import DType


def integer_literal(value: int, dtype: DType) -> str:
    """The value modulo 2**bits; `INT64_MIN` has no literal and is spelled as a name."""
    value = ir.wrap_integer(value, dtype)
    suffix = "LL" if dtype.bits == 64 else ""
    if dtype.bits >= 32 and value == -(1 << (dtype.bits - 1)):
        return f"INT{dtype.bits}_MIN"
    return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"


def float_literal(value: float, *, double: bool) -> str:
    """The shortest decimal that reads back as the value, rounded to float32 if that."""
    if math.isnan(value):
        return "NAN"
    if not double:
        value = as_float32(value)
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(value) if double else _shortest(value)
    if not {".", "e"} & set(text):
        text += ".0"
    text += "" if double else "f"
    return f"({text})" if text.startswith("-") else text


def as_float32(value: float) -> float:
    """The value rounded to float32, an infinity where it is too large."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _shortest(value: float) -> str:
    for digits in range(1, 9):
        text = f"{value:.{digits}g}"
        if as_float32(float(text)) == value:
            return text
    return f"{value:.9g}"


def half_bits(value: float, dtype: DType) -> int:
    """The bits of the value as float16 or bfloat16, rounded to float32 before."""
    value = as_float32(value)
    if math.isnan(value):
        return 0x7E00 if dtype.name == "float16" else 0x7FC0
    if dtype.name == "float16":
        try:
            return struct.unpack("H", struct.pack("e", value))[0]
        except OverflowError:
            return 0xFC00 if value < 0 else 0x7C00
    bits = struct.unpack("I", struct.pack("f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
