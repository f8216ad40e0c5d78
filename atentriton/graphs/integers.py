"""Which whole numbers among the arguments of a function a graph can leave open.

Comes in: a graph in which all are open, or one in which none is. Goes out: those that
decide more than a number in elementwise arithmetic, such as a size, a dimension, how
often a loop runs, or code that is better for one value: a power with a small exponent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import SymInt
from torch._ops import OpOverload
from torch.fx import Node
from torch.utils._pytree import tree_flatten

from atentriton.graphs.regions import SYMBOLIC, is_symbolic, value_of, why_not
from atentriton.graphs.trace import Traced

# The types of an operator's arguments for which a number is one factor among others.
ARITHMETIC = frozenset(("number", "Optional[number]", "Tensor", "Optional[Tensor]"))


def deciding(traced: Traced) -> frozenset[int]:
    """The places of open whole numbers that had better be settled."""
    return frozenset(
        i
        for i, holder in enumerate(_holders(traced))
        if isinstance(value_of(holder), SymInt)
        and (i in traced.asked or not _only_a_number(holder))
    )


def _only_a_number(holder: Node) -> bool:
    """Whether all that is made of a number are numbers, and elements of tensors."""
    stack = [holder]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        for user in node.users:
            if user in seen or user.op == "output":
                continue
            seen.add(user)
            if is_symbolic(user):
                stack.append(user)
            elif why_not(user) or not _arithmetic(user, node):
                return False
    return True


def _arithmetic(user: Node, number: Node) -> bool:
    """Whether the operator takes the number as one, wherever it takes it."""
    target = user.target
    if not isinstance(target, OpOverload):
        return False
    arguments = target._schema.arguments
    given: Iterator[tuple[Any, Any]] = zip(arguments, user.args, strict=False)
    named = {a.name: a for a in arguments}
    pairs = [*given, *((named[k], v) for k, v in user.kwargs.items())]
    if any(isinstance(v, (list, tuple)) and number in v for _, v in pairs):
        return False
    return all(
        str(a.type) in ARITHMETIC and a.name != "exponent"
        for a, value in pairs
        if value is number
    )


def alike(open_: Traced, settled: Traced) -> bool:
    """Whether two graphs compute the same for the numbers that they were traced with:
    code that asks for the type of a number takes a symbol for something else."""
    twins = dict(zip(_holders(open_), _holders(settled), strict=True))
    one, other = _computing(open_), _computing(settled)
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        given, expected = (tree_flatten((n.args, n.kwargs)) for n in (a, b))
        if a.target != b.target or given[1] != expected[1]:
            return False
        for x, y in zip(given[0], expected[0], strict=True):
            if isinstance(x, Node) and not is_symbolic(x):
                if twins.get(x) is not y:
                    return False
            elif _number(x) != _number(y):
                return False
        twins[a] = b
    return True


def _holders(traced: Traced) -> list[Node]:
    return [n for n in traced.module.graph.nodes if n.op == "placeholder"]


def _computing(traced: Traced) -> list[Node]:
    """All nodes but arguments and numbers, in order."""
    nodes = traced.module.graph.nodes
    return [n for n in nodes if n.op != "placeholder" and not is_symbolic(n)]


def _number(given: Any) -> Any:
    """What a number was when the graph was made; anything else is itself."""
    if not isinstance(given, Node) or not is_symbolic(given):
        return given
    value = value_of(given)
    return value.node.hint if isinstance(value, SYMBOLIC) else value
