"""Element types and PyTorch's promotion lattice, without PyTorch.

Comes in: names of dtypes. Goes out: `DType` objects, the type in which arithmetic on a
dtype is carried out (its opmath) and the common type of two dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fuser.errors import nearest

Kind = Literal["bool", "int", "float", "complex"]
KINDS: tuple[Kind, ...] = ("bool", "int", "float", "complex")


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: `bits` counts the whole element, both parts of a complex one."""

    name: str
    kind: Kind
    bits: int
    signed: bool = True

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_floating(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_integral(self) -> bool:
        """Whether the type is an integer type; bool is not one."""
        return self.kind == "int"

    @property
    def is_differentiable(self) -> bool:
        return self.kind in ("float", "complex")

    @property
    def is_half(self) -> bool:
        return self.kind == "float" and self.bits == 16

    @property
    def opmath(self) -> DType:
        """The type kernels compute in: half types widen to float32."""
        return float32 if self.is_half else self

    @property
    def real(self) -> DType:
        """The type of a real or imaginary part."""
        if self.kind != "complex":
            return self
        return float64 if self.bits == 128 else float32

    @property
    def complex(self) -> DType:
        """The complex type that holds this real type without loss where one exists."""
        if self.kind == "complex":
            return self
        return complex128 if self == float64 else complex64


bool_ = DType("bool", "bool", 8, signed=False)
uint8 = DType("uint8", "int", 8, signed=False)
int8 = DType("int8", "int", 8)
int16 = DType("int16", "int", 16)
int32 = DType("int32", "int", 32)
int64 = DType("int64", "int", 64)
float16 = DType("float16", "float", 16)
bfloat16 = DType("bfloat16", "float", 16)
float32 = DType("float32", "float", 32)
float64 = DType("float64", "float", 64)
complex64 = DType("complex64", "complex", 64)
complex128 = DType("complex128", "complex", 128)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        bool_,
        uint8,
        int8,
        int16,
        int32,
        int64,
        float16,
        bfloat16,
        float32,
        float64,
        complex64,
        complex128,
    )
}

# The names that ScalarType has in C++ formulas: at::kFloat, kBool, ...
SCALAR_TYPES: dict[str, DType] = {
    "kBool": bool_,
    "kByte": uint8,
    "kChar": int8,
    "kShort": int16,
    "kInt": int32,
    "kLong": int64,
    "kHalf": float16,
    "kBFloat16": bfloat16,
    "kFloat": float32,
    "kDouble": float64,
    "kComplexFloat": complex64,
    "kComplexDouble": complex128,
}


def dtype(name: str) -> DType:
    """The dtype called `name` (`float32`, `bool`); KeyError with the nearest name."""
    try:
        return DTYPES[name]
    except KeyError:
        guess = nearest(name, DTYPES)
        hint = f'; did you mean "{guess}"?' if guess else ""
        raise KeyError(f'no dtype is called "{name}"{hint}') from None


def promote(a: DType, b: DType) -> DType:
    """The smallest type to which both convert (torch.promote_types)."""
    if a == b:
        return a
    if KINDS.index(a.kind) > KINDS.index(b.kind):
        a, b = b, a
    if a.kind != b.kind:
        if b.kind == "complex" and a == float64:
            return complex128
        return b
    if a.kind == "int":
        return _promote_integers(a, b)
    if a.bits == b.bits:  # float16 with bfloat16: neither holds the other
        return float32
    return a if a.bits > b.bits else b


def _promote_integers(a: DType, b: DType) -> DType:
    if a.bits == b.bits:  # uint8 with int8
        return int16
    return a if a.bits > b.bits else b


def default_of(kind: Kind, default: DType = float32) -> DType:
    """The dtype a Python number of that kind brings along in promotion."""
    if kind == "bool":
        return bool_
    if kind == "int":
        return int64
    return default if kind == "float" else default.complex
