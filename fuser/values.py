"""What expressions stand for while a formula is lowered, and PyTorch's promotion.

Comes in: nodes with what PyTorch would know of them. Goes out: `Tensor`, `Number`,
`Tuple` and `ir.Static` values, and the dtype that several of them have together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fuser import dtypes, ir
from fuser.dtypes import DType, Kind
from fuser.ir import Node, Static


@dataclass(frozen=True, slots=True)
class Tensor:
    """An element of a tensor. `node` has the opmath of `dtype`, the type PyTorch sees.

    `zero_dim` marks a tensor without dimensions, which gives way in promotion.
    """

    node: Node
    dtype: DType
    zero_dim: bool = False

    @staticmethod
    def of(node: Node, zero_dim: bool = False) -> Tensor:
        """A node of a graph as a tensor of the node's own dtype."""
        return Tensor(node, node.dtype, zero_dim)


@dataclass(frozen=True, slots=True)
class Number:
    """A Python or C++ number; `node` is bool, int64, float64 or complex128."""

    node: Node

    @property
    def kind(self) -> Kind:
        return self.node.dtype.kind

    @property
    def constant(self) -> ir.Number | None:
        """The value, where it is known when the kernel is compiled."""
        return ir.value_of(self.node) if self.node.op == "const" else None


@dataclass(frozen=True, slots=True)
class Tuple:
    """Several values: a brace list, or what a function with several results gives."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Undefined:
    """A tensor that is not there (`Tensor()`, an absent gradient or tangent): a zero.

    `dtype` is the type of the zero, where it is known.
    """

    dtype: DType | None = None


Value = Tensor | Number | Tuple | Static | Undefined


def common_half(values: Iterable[Value]) -> DType | None:
    """The half dtype that all tensors among the values have, if it is one."""
    found = {value.dtype for value in values if isinstance(value, Tensor)}
    common = found.pop() if len(found) == 1 else None
    return common if common is not None and common.opmath != common else None


NUMBER_DTYPES: dict[Kind, DType] = {
    "bool": dtypes.bool_,
    "int": dtypes.int64,
    "float": dtypes.float64,
    "complex": dtypes.complex128,
}


def number(value: ir.Number) -> Number:
    """A known number."""
    kind: Kind = (
        "bool"
        if isinstance(value, bool)
        else "int"
        if isinstance(value, int)
        else "float"
        if isinstance(value, float)
        else "complex"
    )
    return Number(ir.const(value, NUMBER_DTYPES[kind]))


def result_type(values: Iterable[Value], default: DType = dtypes.float32) -> DType:
    """torch.result_type: tensors with dimensions count before those without, and these
    before numbers; a lower rank only matters when it brings a higher kind.

    `default` is torch.get_default_dtype(), the type of a floating-point number.
    """
    ranks: list[DType | None] = [None, None, None]
    for value in values:
        if isinstance(value, Tensor):
            rank, found = int(value.zero_dim), value.dtype
        elif isinstance(value, Number):
            rank, found = 2, dtypes.default_of(value.kind, default)
        else:
            continue
        seen = ranks[rank]
        ranks[rank] = found if seen is None else dtypes.promote(seen, found)
    result = _combine(ranks[0], _combine(ranks[1], ranks[2]))
    if result is None:
        raise ValueError("result_type of no values")
    return result


def _combine(higher: DType | None, lower: DType | None) -> DType | None:
    if higher is None or lower is None:
        return higher or lower
    if higher.kind == "complex":
        return higher
    if higher.kind == "float":
        if lower.kind != "complex":
            return higher
        # A complex number of lower rank makes the type complex, at the same width.
        return higher.complex
    if higher.kind == "bool" or lower.kind in ("float", "complex"):
        return dtypes.promote(higher, lower)
    return higher


def promoted(
    values: Iterable[Value], promotes: str, default: DType = dtypes.float32
) -> tuple[DType, DType]:
    """(common dtype of the arguments, dtype of the result) under a promotion kind.

    The kinds are torch's ELEMENTWISE_TYPE_PROMOTION_KIND in lower case. The common
    dtype is what the arguments are converted to; computing widens it to its opmath.
    """
    common = result_type(values, default)
    if promotes == "int_to_float" and common.kind in ("bool", "int"):
        common = default
    elif promotes == "bool_to_long" and common.kind == "bool":
        common = dtypes.int64
    if promotes == "always_bool":
        return common, dtypes.bool_
    if promotes == "complex_to_float":
        return common, common.real
    return common, common
