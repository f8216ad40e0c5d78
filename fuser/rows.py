"""A primitive applied to the values of a formula.

Comes in: a row of the op table; tensors, numbers or absent tensors. Goes out: a value,
its arguments promoted as the row's ATen operator promotes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuser import dtypes, ir
from fuser.build import convert, primitive, truth
from fuser.dtypes import DType, Kind
from fuser.errors import FormulaError, Span
from fuser.fold import fold_number
from fuser.ir import Node, Static
from fuser.optable import Primitive
from fuser.values import (
    NUMBER_DTYPES,
    Number,
    Tensor,
    Undefined,
    Value,
    promoted,
    result_type,
)

_LINEAR = frozenset({"neg", "conj", "real", "imag"})


def apply_row(
    row: Primitive, args: Sequence[Value], default: DType, span: Span
) -> Value:
    """The row of as many values as it takes; FormulaError for what it does not take.

    An absent tensor is a zero, and stays absent where the row is linear in it.
    """
    zero = linear_in_absent(row.name, args)
    if zero is not None:
        return zero
    others = args[1:] if row.rule == "select" else args
    operands = [_operand(row, present(a, others, default), span) for a in args]
    try:
        if all(isinstance(a, Number) for a in operands):
            return _of_numbers(row, [a.node for a in operands])
        return _of_tensors(row, operands, default)
    except TypeError as error:
        raise FormulaError(str(error), span) from None


def linear_in_absent(name: str, args: Sequence[Value]) -> Value | None:
    """The value of a linear operator of that name where arguments are absent, without
    making zeros for them; None where it cannot be had so."""
    absent = [a for a in args if isinstance(a, Undefined)]
    if not absent:
        return None
    first = args[0]
    if name in _LINEAR or name == "mul":
        return absent[0]
    if name == "div" and isinstance(first, Undefined):
        return first
    if name in ("add", "sub") and len(absent) == len(args):
        return first
    if name == "add" and len(args) == 2:
        return args[1] if isinstance(first, Undefined) else first
    if name == "sub" and len(args) == 2:
        return first if isinstance(args[1], Undefined) else _negative(args[1])
    return None


def present(value: Value, others: Iterable[Value], default: DType) -> Value:
    """The value; for an absent tensor zeros of its dtype, or of that of the others."""
    if not isinstance(value, Undefined):
        return value
    beside = [o for o in others if isinstance(o, Tensor)]
    dtype = value.dtype or (result_type(beside, default) if beside else default)
    return Tensor(ir.const(0, dtype.opmath), dtype)


def zero_dim(values: Iterable[Value]) -> bool:
    """Whether none of the values is a tensor that has dimensions."""
    return all(v.zero_dim for v in values if isinstance(v, Tensor))


def _negative(value: Value) -> Value | None:
    match value:
        case Tensor(node, dtype, flat) if dtype.kind != "bool":
            return Tensor(primitive("neg", node), dtype, flat)
        case Number(node) if node.dtype.kind != "bool":
            return Number(fold_number(primitive("neg", node)))
        case _:
            return None


def _operand(row: Primitive, value: Value, span: Span) -> Tensor | Number:
    if isinstance(value, Tensor | Number):
        return value
    shown = f"{value.value!r}" if isinstance(value, Static) else "a list"
    raise FormulaError(f"{row.name} cannot take {shown}", span, "a tensor or a number")


def _of_numbers(row: Primitive, nodes: Sequence[Node]) -> Value:
    """C++ arithmetic on numbers, in double precision or 64-bit integers."""
    test: list[Node] = []
    if row.rule == "select":
        test, nodes = [truth(nodes[0])], nodes[1:]
    kinds: list[Kind] = [n.dtype.kind for n in nodes]
    common = NUMBER_DTYPES[max(kinds, key=dtypes.KINDS.index)]
    if row.rule == "logical":
        common = dtypes.bool_
    elif common.kind in ("bool", "int") and (
        row.promotes == "int_to_float" or common.kind not in row.kinds
    ):
        common = dtypes.float64 if "float" in row.kinds else common
    operands = [convert(n, common) for n in nodes]
    return Number(fold_number(primitive(row.name, *test, *operands)))


def _of_tensors(
    row: Primitive, args: Sequence[Tensor | Number], default: DType
) -> Tensor:
    """The row of tensors and numbers, promoted."""
    flat = zero_dim(args)
    if row.rule == "logical":
        nodes = [truth(a.node) for a in args]
        return Tensor(primitive(row.name, *nodes), dtypes.bool_, flat)
    test = [truth(args[0].node)] if row.rule == "select" else []
    operands = args[len(test) :]
    common, result = promoted(operands, row.promotes, default)
    if common.kind == "bool" and row.name == "sub":
        raise TypeError("a bool cannot be subtracted; use logical_xor")
    nodes = [_converted(row, a, common) for a in operands]
    if row.rule == "complex":
        result = result.complex
    elif row.rule == "real":
        result = result.real
    return Tensor(primitive(row.name, *test, *nodes), result, flat)


def _converted(row: Primitive, operand: Tensor | Number, common: DType) -> Node:
    """The operand in the type that is computed in.

    A number is compared as a half tensor would hold it; arithmetic takes it as it is.
    """
    node = convert(operand.node, common.opmath)
    if common.is_half and row.promotes == "always_bool" and isinstance(operand, Number):
        node = ir.cast(ir.cast(node, common), common.opmath)
    return node
