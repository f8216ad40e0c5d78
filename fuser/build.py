"""Typed construction of primitive nodes.

Comes in: a row's name and nodes. Goes out: the node, with the dtype the row's rule
gives it; TypeError for arguments the row does not take. Nothing is simplified here.
"""

from __future__ import annotations

from fuser import dtypes, ir
from fuser.dtypes import DType
from fuser.ir import Node
from fuser.optable import PRIMITIVES, Primitive

# On bool, arithmetic and bitwise operators are logical ones.
_LOGICAL = {
    "add": "logical_or",
    "mul": "logical_and",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
    "ne": "logical_xor",
}


def primitive(name: str, *args: Node) -> Node:
    """The row `name` applied to nodes of one dtype (`where`: a bool and two of one)."""
    operands = args[1:] if name == "where" else args
    dtype = operands[0].dtype
    if dtype.kind == "bool":
        if name == "eq":
            return primitive("logical_not", primitive("logical_xor", *args))
        name = _LOGICAL.get(name, name)
    if dtype.kind != "complex" and name in ("conj", "real"):
        return args[0]
    row = PRIMITIVES[name]
    check(row, args)
    return ir.make(name, result_dtype(row, dtype), args)


def result_dtype(row: Primitive, dtype: DType) -> DType:
    """The dtype of the row's result on arguments of `dtype`."""
    match row.rule:
        case "same" | "select":
            return dtype
        case "bool" | "logical":
            return dtypes.bool_
        case "real":
            return dtype.real
        case "complex":
            return dtype.complex


def check(row: Primitive, args: tuple[Node, ...]) -> None:
    """TypeError where the arguments are not what the row takes."""
    if len(args) != row.arity:
        raise TypeError(f"{row.name} takes {row.arity} arguments, not {len(args)}")
    operands = args
    if row.rule == "select":
        if args[0].dtype != dtypes.bool_:
            raise TypeError(f"{row.name} selects by a bool, not by {args[0].dtype}")
        operands = args[1:]
    if len({a.dtype for a in operands}) != 1:
        shown = ", ".join(a.dtype.name for a in operands)
        raise TypeError(f"{row.name} takes arguments of one dtype, not {shown}")
    if operands[0].dtype.kind not in row.kinds:
        kinds = ", ".join(sorted(row.kinds))
        raise TypeError(f"{row.name} takes {kinds}, not {operands[0].dtype}")


def truth(node: Node) -> Node:
    """Whether the value is not zero, as a bool (NaN is true)."""
    if node.dtype == dtypes.bool_:
        return node
    return primitive("ne", node, ir.const(0, node.dtype))


def convert(node: Node, dtype: DType) -> Node:
    """A cast that says what C++ means: to bool by comparing with zero."""
    return truth(node) if dtype == dtypes.bool_ else ir.cast(node, dtype)
