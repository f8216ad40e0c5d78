"""The interpreter: a graph evaluated on single numbers, in Python.

Comes in: roots, and Python numbers for their inputs and scalars. Goes out: Python
numbers, each operation rounded to its node's dtype. Slow, simple, and independent of
every target: what the tests hold the printers against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuser import ir
from fuser.ir import Loop, Node, Number
from fuser.optable import PRIMITIVES
from fuser.rounding import rounded


def interpret(roots: Sequence[Node], names: Mapping[str, Number]) -> tuple[Number, ...]:
    """The values of the roots; `names` gives each input's and scalar's number.

    ValueError for a call node, which has to be expanded first; KeyError for a name that
    is not given; ZeroDivisionError for an integer divided by zero.
    """
    order = ir.topological(roots)
    return _evaluate(order, roots, names, ())


def _evaluate(
    order: Sequence[Node],
    roots: Sequence[Node],
    names: Mapping[str, Number],
    params: Sequence[Number],
) -> tuple[Number, ...]:
    """The values of the roots, all of whose nodes stand in `order`."""
    values: dict[Node, Number] = {}
    loops: dict[Node, tuple[Number, ...]] = {}
    for node in order:
        match node.op:
            case "input" | "scalar":
                value = names[str(node.attrs)]
            case "const":
                value = ir.value_of(node)
            case "param":
                value = params[_index(node)]
            case "cast":
                value = values[node.args[0]]
            case "iterate":
                loops[node] = _run(node, [values[a] for a in node.args], names)
                continue
            case "item":
                value = loops[node.args[0]][_index(node)]
            case "call":
                raise ValueError(f"{ir.label(node)} must be expanded first")
            case _:
                row = PRIMITIVES[node.op]
                value = row.python(*(values[a] for a in node.args))
        values[node] = rounded(value, node.dtype)
    return tuple(values[r] for r in roots)


def _run(
    node: Node, args: Sequence[Number], names: Mapping[str, Number]
) -> tuple[Number, ...]:
    """The final state of the loop."""
    loop = node.attrs
    assert isinstance(loop, Loop)
    count = len(loop.step)
    state, captured = tuple(args[:count]), tuple(args[count:])
    body = ir.topological(loop.step)
    guard = () if loop.proceed is None else (loop.proceed,)
    test = ir.topological(guard)
    for _ in range(loop.limit):
        params = (*state, *captured)
        if not all(_evaluate(test, guard, names, params)):
            break
        state = _evaluate(body, loop.step, names, params)
    return state


def _index(node: Node) -> int:
    assert isinstance(node.attrs, int)
    return node.attrs
