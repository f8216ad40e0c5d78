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
from fuser.rounding import rounded
from fuser.values import (
    NUMBER_DTYPES,
    Number,
    Tensor,
    Undefined,
    Value,
    number,
    promoted,
    result_type,
)

_ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div", "pow"})
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


def takes(row: Primitive, args: Sequence[Value], default: DType) -> bool:
    """Whether the row has a meaning of its own for what the tensors have in common.

    It has none for some integers and complex numbers, for which an operator of that
    name may well have a value (`floor` of an integer).
    """
    operands = [a for a in args if isinstance(a, Tensor | Number)]
    tensors = [a for a in operands if isinstance(a, Tensor)]
    if row.rule in ("select", "logical") or len(operands) != len(args) or not tensors:
        return True
    if all(t.dtype.kind in row.kinds for t in tensors):
        return True
    common, _ = promoted(operands, row.promotes, default)
    return common.kind == "bool" or common.kind in row.kinds


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


def as_operands(
    row: Primitive, operator: str, args: Sequence[Value], default: DType
) -> Sequence[Value]:
    """The arguments of a row that is called as the operator of that base name."""
    if row.rule in ("select", "logical") or row.promotes == "keep":
        return args
    common, _ = promoted(args, row.promotes, default)
    return [
        as_operand(operator, a, common) if isinstance(a, Tensor | Number) else a
        for a in args
    ]


def as_operand(operator: str, value: Tensor | Number, common: DType) -> Tensor | Number:
    """The value as a half type holds it, where the operator brings it to one.

    PyTorch converts all operands before it computes, but that arithmetic takes a
    number, and a tensor without dimensions, as it is.
    """
    if not common.is_half or (isinstance(value, Tensor) and value.dtype == common):
        return value
    exact = operator.rstrip("_") in _ARITHMETIC
    if exact and (isinstance(value, Number) or value.zero_dim):
        return value
    if isinstance(value, Tensor):
        node = ir.cast(ir.cast(value.node, common), common.opmath)
        return Tensor(node, common, value.zero_dim)
    if value.constant is not None:
        return number(rounded(value.constant, common))
    return Number(ir.cast(ir.cast(value.node, common), NUMBER_DTYPES["float"]))


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
    nodes = [convert(a.node, common.opmath) for a in operands]
    if row.rule == "complex":
        result = result.complex
    elif row.rule == "real":
        result = result.real
    return Tensor(primitive(row.name, *test, *nodes), result, flat)
