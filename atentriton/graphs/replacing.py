"""A graph with a call in place of each of its regions.

Comes in: a graph module of ATen operators. Goes out: `Rewritten`: the same function, in
which a region is one call, differentiable to any order and in both modes, and an
account of the regions for those who ask.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch.fx import Graph, GraphModule, Node

from atentriton import autograd
from atentriton.graphs import composing, regions
from atentriton.graphs.composing import Kernel
from atentriton.graphs.regions import CONSTANT, SAME, Region
from atentriton.graphs.tidying import tidy
from atentriton.programs import Routine
from fuser.errors import FormulaError


class Call:
    """A region in a rewritten graph: its routine on tensors, then numbers."""

    def __init__(self, routine: Routine, tensors: int) -> None:
        self.routine = routine
        self.tensors = tensors
        self.__name__ = self.__qualname__ = routine.program.name
        self.__module__ = __name__

    def __repr__(self) -> str:
        return f"<region {self.routine.lineage}>"

    def __call__(self, *given: Any) -> Any:
        tensors, numbers = given[: self.tensors], given[self.tensors :]
        found = autograd.call(self.routine, tensors, numbers)
        return found[0] if self.routine.single else tuple(found)


@dataclass(frozen=True)
class Single:
    """A graph that is one kernel, besides views and numbers.

    `tensors` and `numbers` are nodes that `evaluate` finds; `picks` says which results
    of the routine the results of the graph are.
    """

    routine: Routine
    tensors: tuple[Node, ...]
    numbers: tuple[Node, ...]
    picks: tuple[int, ...]


@dataclass(frozen=True)
class Rewritten:
    """`module` computes what the graph did; `kernels` are the regions' in order.

    `reasons` says of what is in no region why, by the name of the node.
    """

    module: GraphModule
    kernels: tuple[Kernel, ...]
    reasons: dict[str, str]

    @cached_property
    def single(self) -> Single | None:
        """The one kernel that the graph is; None where it is more, or something else."""
        graph = self.module.graph
        calls = [n for n in graph.nodes if isinstance(n.target, Call)]
        (output,) = (n for n in graph.nodes if n.op == "output")
        results = output.args[0]
        if len(calls) != 1 or not isinstance(results, (list, tuple)):
            return None
        (node,) = calls
        call: Any = node.target
        items = {node: 0} if call.routine.single else {}
        items |= {u: int(u.args[1]) for u in node.users if u.target is operator.getitem}
        if any(r not in items for r in results):
            return None
        given = node.args[: call.tensors], node.args[call.tensors :]
        if any(n in items for n in _ancestors(node.all_input_nodes)):
            return None
        return Single(call.routine, *given, tuple(items[r] for r in results))


def _ancestors(nodes: Sequence[Node]) -> set[Node]:
    found: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def evaluate(node: Any, given: Mapping[Node, Any]) -> Any:
    """The value of a node of views and numbers, from those of the placeholders."""
    if isinstance(node, (list, tuple)):
        return [evaluate(n, given) for n in node]
    if not isinstance(node, Node):
        return node
    if node in given:
        return given[node]
    args = [evaluate(a, given) for a in node.args]
    function: Any = node.target
    return function(*args, **{k: evaluate(v, given) for k, v in node.kwargs.items()})


def rewrite(module: GraphModule) -> Rewritten:
    """The graph module with its regions replaced; the given one is not changed."""
    graph = Graph()
    copied: dict[Node, Node] = {}
    result = graph.graph_copy(module.graph, copied)
    if result is not None:
        graph.output(result)
    tidy(graph)
    found = regions.find(graph)
    made: list[Kernel] = []
    for region in found.items:
        made += _replace(graph, region)
    _sort(graph)
    graph.eliminate_dead_code()
    graph.lint()
    reasons = {n.name: reason for n, reason in found.reasons.items()}
    return Rewritten(GraphModule(module, graph), tuple(made), reasons)


def _replace(graph: Graph, region: Region) -> list[Kernel]:
    inside = set(region.nodes)
    wanted: dict[Node, None] = {}
    staying: set[Node] = set()
    pending = [n for n in region.nodes if any(u not in inside for u in n.users)]
    while pending:
        node = pending.pop()
        if _stays(node, region):
            if node not in staying:
                staying.add(node)
                pending += [n for n in node.all_input_nodes if n in inside]
        else:
            wanted[node] = None
    results = [n for n in region.nodes if n in wanted]
    if not results:
        return []
    try:
        kernels = composing.kernels(region, results)
    except FormulaError:
        return []
    last = region.nodes[-1]
    for kernel in kernels:
        with graph.inserting_after(last):
            call = Call(kernel.routine, len(kernel.tensors))
            node = graph.call_function(call, (*kernel.tensors, *kernel.numbers))
        _users(graph, node, kernel, inside - staying)
    return kernels


def _stays(node: Node, region: Region) -> bool:
    """Whether PyTorch makes the node's value where it is needed outside."""
    if node.target in SAME or node.target in CONSTANT:
        return True
    return not composing.computable(node, region)


def _users(graph: Graph, call: Node, kernel: Kernel, replaced: set[Node]) -> None:
    """Let what is outside use the results of the call."""
    values: list[Any] = [n.meta["val"] for n in kernel.results]
    if len(kernel.results) == 1:
        call.meta["val"] = values[0]
        items = [call]
    else:
        call.meta["val"] = tuple(values)
        items = []
        for i, value in enumerate(values):
            with graph.inserting_after(call):
                item = graph.call_function(operator.getitem, (call, i))
            item.meta["val"] = value
            items.append(item)
    for old, new in zip(kernel.results, items, strict=True):
        old.replace_all_uses_with(
            new, lambda user: user not in replaced and user is not new
        )


def _sort(graph: Graph) -> None:
    """Bring the nodes in an order in which each comes after what it needs.

    The old order is kept where it can be; nodes that write stay where they are among
    all others, since no region reaches across one.
    """
    place = {n: i for i, n in enumerate(graph.nodes)}
    done: set[Node] = set()
    order: list[Node] = []
    for root in sorted(place, key=place.__getitem__):
        stack = [root]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            missing = [s for s in node.all_input_nodes if s not in done]
            if missing:
                stack += sorted(missing, key=place.__getitem__, reverse=True)
                continue
            done.add(node)
            order.append(node)
            stack.pop()
    anchor = graph._root
    for node in order:
        anchor.append(node)
        anchor = node
