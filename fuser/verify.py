"""The verifier: is a graph well formed?

Comes in: roots. Goes out: nothing, or GraphError naming the node and what is wrong with
it. It runs between the stages when ATENTRITON_VERIFY is set, and in the tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from fuser import dtypes, ir
from fuser.build import check, result_dtype
from fuser.dtypes import DType
from fuser.ir import CallTarget, Loop, Node
from fuser.optable import PRIMITIVES
from fuser.program import Program

_LEAVES = frozenset({"input", "scalar", "const", "param"})
_NUMBERS = frozenset({dtypes.bool_, dtypes.int64, dtypes.float64, dtypes.complex128})


class GraphError(TypeError):
    """A graph that no stage should have made."""


def checked(program: Program) -> Program:
    """The program, verified where ATENTRITON_VERIFY is set."""
    if os.environ.get("ATENTRITON_VERIFY"):
        verify(program.roots)
    return program


def verify(roots: Iterable[Node], params: tuple[DType, ...] | None = None) -> None:
    """Check every node; `params` are the dtypes of an enclosing loop's arguments."""
    for node in ir.topological(roots):
        if node.op != "cast":  # a half type is only stored
            for arg in node.args:
                _require(not arg.dtype.is_half, node, f"it works on {arg.dtype}")
        if node.op in _LEAVES:
            _leaf(node, params)
        elif node.op == "cast":
            _require(len(node.args) == 1, node, "a cast has one argument")
        elif node.op == "iterate":
            _iterate(node)
        elif node.op == "item":
            _item(node)
        elif node.op == "call":
            _require(isinstance(node.attrs, CallTarget), node, "a call has a target")
        else:
            _row(node)


def _leaf(node: Node, params: tuple[DType, ...] | None) -> None:
    _require(not node.args, node, "a leaf has no arguments")
    if params is not None:
        outside = node.op in ("input", "scalar")
        _require(not outside, node, "the body of a loop reads its params alone")
    if node.op == "param":
        _require(params is not None, node, "a param stands in the body of a loop")
        index = node.attrs
        _require(
            isinstance(index, int) and 0 <= index < len(params or ()),
            node,
            f"the loop has {len(params or ())} params",
        )
        if params is not None and isinstance(index, int):
            _require(params[index] == node.dtype, node, f"it is {params[index]} there")
    elif node.op == "scalar":
        _require(node.dtype in _NUMBERS, node, "a number is wide")


def _iterate(node: Node) -> None:
    loop = node.attrs
    if not isinstance(loop, Loop):
        raise GraphError(f"{node!r}: an iterate has a Loop")
    given = tuple(a.dtype for a in node.args)
    count = len(loop.step)
    _require(0 < count <= len(given), node, "a loop has a state")
    _require(loop.limit > 0, node, "a loop is bounded")
    for i, step in enumerate(loop.step):
        _require(step.dtype == given[i], node, f"state {i} changes its dtype")
    if loop.proceed is not None:
        _require(loop.proceed.dtype == dtypes.bool_, node, "proceed is a bool")
        verify([loop.proceed], given)
    verify(loop.step, given)


def _item(node: Node) -> None:
    whole, index = node.args[0], node.attrs
    _require(whole.op == "iterate", node, "an item belongs to an iterate")
    loop = whole.attrs
    assert isinstance(loop, Loop)
    _require(
        isinstance(index, int) and 0 <= index < len(loop.step), node, "no such state"
    )
    assert isinstance(index, int)
    _require(whole.args[index].dtype == node.dtype, node, "its dtype is the state's")


def _row(node: Node) -> None:
    row = PRIMITIVES.get(node.op)
    if row is None:
        raise GraphError(f"{node!r}: no row of the op table is called {node.op}")
    try:
        check(row, node.args)
    except TypeError as error:
        raise GraphError(f"{node!r}: {error}") from None
    expected = result_dtype(row, node.args[-1].dtype)
    _require(node.dtype == expected, node, f"its dtype should be {expected}")


def _require(condition: bool, node: Node, message: str) -> None:
    if not condition:
        raise GraphError(f"{node!r}: {message}")
