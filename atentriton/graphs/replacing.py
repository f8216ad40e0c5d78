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
from atentriton.graphs.composing import Kernel, Unfit
from atentriton.graphs.lifting import lift
from atentriton.graphs.looks import is_open
from atentriton.graphs.regions import CONSTANT, SAME, Region
from atentriton.graphs.tidying import tidy
from atentriton.programs import Routine


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
        tensors, numbers = given[: self.tensors], fitting(given[self.tensors :])
        found = autograd.call(self.routine, tensors, numbers)
        return found[0] if self.routine.single else tuple(found)


def fitting(numbers: Sequence[Any]) -> Sequence[Any]:
    """The numbers; OverflowError, as PyTorch has it, for one that no kernel takes."""
    for number in numbers:
        if type(number) is int and not is_open(number):
            raise OverflowError("int too big to convert")
    return numbers


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
        """The one kernel that the graph is; None where it is more, or another."""
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
        others = [n for n in graph.nodes if n is not node and n not in items]
        if not all(computes_nothing(n) and n.op != "get_attr" for n in others):
            return None
        given = node.args[: call.tensors], node.args[call.tensors :]
        return Single(call.routine, *given, tuple(items[r] for r in results))


def computes_nothing(node: Node) -> bool:
    """Whether the node computes no elements, and does nothing else either."""
    if node.op != "call_function":
        return True
    if regions.mutates(node):
        return False
    return regions.is_symbolic(node) or regions.is_view(node)


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
    tidy(graph, module)
    lift(graph)
    refused: dict[Node, str] = {}
    while True:
        found = regions.find(graph, refused)
        try:
            plans = [plan for r in found.items if (plan := _plan(r)) is not None]
        except Unfit as error:
            refused[error.node] = str(error)
        else:
            break
    new: dict[Node, Node] = {}
    for plan in plans:
        _replace(graph, plan, new)
    _sort(graph)
    graph.eliminate_dead_code()
    graph.lint()
    reasons = {n.name: reason for n, reason in found.reasons.items()}
    made = tuple(kernel for plan in plans for kernel in plan.kernels)
    return Rewritten(GraphModule(module, graph), made, reasons)


@dataclass(frozen=True)
class _Plan:
    """A region, what computes it, and which of its nodes PyTorch computes, too."""

    region: Region
    kernels: list[Kernel]
    staying: set[Node]


def _plan(region: Region) -> _Plan | None:
    inside = set(region.nodes)
    wanted: set[Node] = set()
    staying: set[Node] = set()
    pending = [n for n in region.nodes if any(u not in inside for u in n.users)]
    while pending:
        node = pending.pop()
        if node in staying or node in wanted:
            continue
        if _stays(node, region):
            staying.add(node)
            pending += [n for n in node.all_input_nodes if n in inside]
            continue
        wanted.add(node)
        if not composing.computable(node, region):
            pending += [n for n in region.nodes if n.target in SAME]
    results = [n for n in region.nodes if n in wanted]
    if not results:
        return None
    return _Plan(region, composing.kernels(region, results), staying)


def _replace(graph: Graph, plan: _Plan, new: dict[Node, Node]) -> None:
    """Put calls in; `new` says what stands for the nodes replaced so far."""
    replaced = set(plan.region.nodes) - plan.staying
    for kernel in plan.kernels:
        given = [new.get(n, n) for n in (*kernel.tensors, *kernel.numbers)]
        with graph.inserting_after(plan.region.nodes[-1]):
            call = Call(kernel.routine, len(kernel.tensors))
            node = graph.call_function(call, tuple(given))
        for old, item in zip(kernel.results, _items(graph, node, kernel), strict=True):
            new[old] = item
            old.replace_all_uses_with(item, lambda user: user not in replaced)


def _stays(node: Node, region: Region) -> bool:
    """Whether PyTorch makes the node's value where it is needed outside.

    A view has to be memory of what it views.
    """
    if node.target in CONSTANT or regions.is_view(node):
        return True
    return not any(composing.computable(node, region, e) for e in (False, True))


def _items(graph: Graph, call: Node, kernel: Kernel) -> list[Node]:
    """The results of the call, one by one."""
    values: list[Any] = [n.meta["val"] for n in kernel.results]
    if len(values) == 1:
        call.meta["val"] = values[0]
        return [call]
    call.meta["val"] = tuple(values)
    items: list[Node] = []
    for i, value in enumerate(values):
        with graph.inserting_after(call):
            item = graph.call_function(operator.getitem, (call, i))
        item.meta["val"] = value
        items.append(item)
    return items


def _sort(graph: Graph) -> None:
    """Bring the nodes in an order in which each comes after what it needs.

    The old order is kept where it can be; nodes that write stay where they are among
    all others, since no region reaches across one, and so do those that draw random
    numbers among themselves.
    """
    place = {n: i for i, n in enumerate(graph.nodes)}
    drawn = regions.drawn_before(graph)
    done: set[Node] = set()
    order: list[Node] = []
    for root in sorted(place, key=place.__getitem__):
        stack = [root]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            needed = [*node.all_input_nodes, *filter(None, [drawn.get(node)])]
            missing = [s for s in needed if s not in done]
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
