"""Constant folding: a primitive of constants is a constant.

Comes in: a node. Goes out: the constant it equals, or the node itself. Values are
worked out by the op table's Python column in double precision and rounded to the node's
dtype.
"""

from __future__ import annotations

from fuser import ir
from fuser.ir import Node
from fuser.optable import PRIMITIVES
from fuser.rounding import rounded

# What complex numbers do part by part, in Python and in complex.yaml alike.
_BY_PARTS = frozenset({"add", "sub", "conj", "eq", "ne"})


def fold_number(node: Node) -> Node:
    """The constant, where all arguments are constants; else the node."""
    if not node.args or node.op not in PRIMITIVES:
        return node
    if any(a.op != "const" for a in node.args):
        return node
    complex_ = node.dtype.is_complex or node.args[-1].dtype.is_complex
    if complex_ and node.op not in _BY_PARTS:
        return node  # folded by its parts, which have the conventions of complex.yaml
    values = [rounded(ir.value_of(a), a.dtype) for a in node.args]
    if node.op in ("idiv", "imod") and values[1] == 0:
        return node  # an error at run time, and never hidden
    return ir.const(
        rounded(PRIMITIVES[node.op].python(*values), node.dtype), node.dtype
    )
