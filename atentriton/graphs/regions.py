"""Which nodes of a graph of ATen operators make one kernel.

Comes in: a graph, its nodes with fake values. Goes out: `Region`s: sets of elementwise
nodes that are connected and convex (no path leaves a region and comes back), and for
every other node the reason why it is in none. Nodes that write to memory are barriers:
no region reaches across one. Random operators keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Graph, Node

from atentriton.programs import compiler
from atentriton.specs import FROM_TORCH

ATEN = torch.ops.aten
# The value of another tensor, in another shape: nothing is computed.
SAME = frozenset((ATEN.expand.default, ATEN.expand_as.default))
# The same number everywhere: the number, or where in the arguments it stands.
FILLED = {
    **dict.fromkeys((ATEN.ones_like.default, ATEN.ones.default), 1),
    **dict.fromkeys((ATEN.zeros_like.default, ATEN.zeros.default), 0),
    ATEN.new_ones.default: 1,
    ATEN.new_zeros.default: 0,
}
FILLED_WITH = {
    ATEN.scalar_tensor.default: 0,
    ATEN.full.default: 1,
    ATEN.full_like.default: 1,
    ATEN.new_full.default: 2,
}
CONSTANT = FILLED.keys() | FILLED_WITH.keys()
SYMBOLIC = (SymInt, SymFloat, SymBool)

Shape = tuple[str, ...]


@dataclass
class Region:
    """Nodes that become one kernel, in the order of the graph."""

    nodes: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Regions:
    """`reasons` says why an operator is in no region."""

    items: tuple[Region, ...]
    reasons: dict[Node, str]


def operator_of(node: Node) -> str:
    """The full name of the ATen operator that the node calls; empty for others."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return ""
    if target.namespace != "aten":
        return ""
    return str(target).removeprefix("aten.").removesuffix(".default")


def value_of(node: Node) -> Any:
    return node.meta.get("val")


def shape_of(node: Node) -> Shape:
    """The shape of the node's value, sizes as text: equal if they are always equal."""
    return tuple(map(_size, value_of(node).shape))


def _size(size: Any) -> str:
    text = str(size)
    if not isinstance(size, SymInt):
        return text
    for guard in size.node.shape_env.guards:
        if isinstance(guard.expr, sympy.Eq) and text == str(guard.expr.lhs):
            text = str(guard.expr.rhs)
    return text


def is_symbolic(node: Node) -> bool:
    """Whether the node is a number that sizes or arguments decide."""
    return isinstance(value_of(node), (*SYMBOLIC, int, float, bool))


def is_view(node: Node) -> bool:
    """Whether what the node gives is, or may be, memory of its arguments."""
    target = node.target
    return isinstance(target, OpOverload) and any(
        r.alias_info for r in target._schema.returns
    )


def why_not(node: Node) -> str:
    """Why the node is no part of any region; nothing where it can be."""
    if node.op != "call_function":
        return "is no operator"
    name = operator_of(node)
    if not name:
        return f"{node.target} is no ATen operator"
    value = value_of(node)
    values = value if isinstance(value, (tuple, list)) else (value,)
    if not all(isinstance(v, Tensor) for v in values):
        return f"{name} gives no tensor"
    device = values[0].device
    for tensor in (*values, *(value_of(n) for n in node.all_input_nodes)):
        if isinstance(tensor, Tensor) and (reason := _unfit(tensor, device)):
            return f"{name}: {reason}"
    if node.target in CONSTANT or node.target in SAME:
        return ""
    if mutates(node):
        return f"{name} writes to memory"
    known = compiler()
    try:
        function = known.operator(name).function
    except KeyError:
        return f"{name} is not elementwise"
    if function is None or function.promotes is None:
        return f"{name} is not elementwise"
    if len(values) > 1:
        return f"{name} has several results"
    if node.kwargs.get("memory_format") not in (None, torch.preserve_format):
        return f"{name} lays memory out anew"
    if _reduces(node, [a.name for a in function.signature.arguments]):
        return f"{name} reduces"
    return ""


def _reduces(node: Node, names: Sequence[str]) -> bool:
    """Whether a loss is asked for a mean, its default, or a sum."""
    if "reduction" not in names:
        return False
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    reduction: Any = given.get("reduction", 1)
    return reduction != 0


def _unfit(tensor: Tensor, device: torch.device) -> str:
    if tensor.device != device:
        return f"a tensor on {tensor.device} meets one on {device}"
    if tensor.layout is not torch.strided:
        return f"a tensor has the layout {tensor.layout}"
    if tensor.dtype not in FROM_TORCH:
        return f"there are no kernels for {tensor.dtype}"
    return ""


def mutates(node: Node) -> bool:
    """Whether the operator writes to an argument, or does more than compute."""
    target = node.target
    if isinstance(target, OpOverload):
        return target._schema.is_mutable
    if isinstance(target, HigherOrderOperator):
        return True
    return node.op == "call_function" and node.is_impure()


def drawn_before(graph: Graph) -> dict[Node, Node]:
    """Of each node that draws random numbers, the one that draws before it."""
    found: dict[Node, Node] = {}
    last: Node | None = None
    for node in graph.nodes:
        target = node.target
        if (
            isinstance(target, OpOverload)
            and torch.Tag.nondeterministic_seeded in target.tags
        ):
            if last is not None:
                found[node] = last
            last = node
    return found


def find(graph: Graph, refused: Mapping[Node, str] | None = None) -> Regions:
    """The maximal regions of the graph; `refused` are known to be fit for none, and
    why."""
    reasons: dict[Node, str] = {}
    segment: dict[Node, int] = {}
    barriers = 0
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        if mutates(node):
            barriers += 1
        segment[node] = barriers
        reason = (refused or {}).get(node) or why_not(node)
        if reason:
            reasons[node] = reason
    merged = _merge([n for n in segment if n not in reasons], graph, segment)
    regions = [Region(nodes) for nodes in merged]
    return Regions(tuple(regions), reasons)


def _worth_it(nodes: Sequence[Node]) -> bool:
    """Constants and views by themselves are better left to PyTorch."""
    return any(n.target not in CONSTANT and not is_view(n) for n in nodes)


class _Groups:
    """Disjoint groups of nodes, and which of them come before which.

    Group g comes before h if something in h needs something in g, maybe by way of other
    nodes. A kernel runs as a whole: this order must have no cycle.
    """

    def __init__(self, graph: Graph) -> None:
        self.order = {n: i for i, n in enumerate(graph.nodes)}
        self.members: dict[int, list[Node]] = {}
        self._leader: list[int] = []
        self._before: dict[int, set[int]] = {}

    def new(self) -> int:
        group = len(self._leader)
        self._leader.append(group)
        self.members[group] = []
        self._before[group] = set()
        return group

    def find(self, group: int) -> int:
        while self._leader[group] != group:
            self._leader[group] = self._leader[self._leader[group]]
            group = self._leader[group]
        return group

    def earlier(self, groups: Iterable[int]) -> set[int]:
        """The groups, and all that come before them."""
        found: set[int] = set()
        stack = [self.find(g) for g in groups]
        while stack:
            group = stack.pop()
            if group not in found:
                found.add(group)
                stack += (self.find(b) for b in self._before[group])
        return found

    def all_before(self, group: int) -> set[int]:
        return self.earlier(self._before[group])

    def merge(self, into: int, other: int) -> None:
        self._leader[other] = into
        both = self.members[into] + self.members.pop(other)
        self.members[into] = sorted(both, key=self.order.__getitem__)
        self._before[into] |= self._before.pop(other)

    def add(self, group: int, node: Node, after: Iterable[int]) -> None:
        self.members[group].append(node)
        self._before[group] |= {self.find(g) for g in after}
        self._before[group].discard(group)


def _merge(
    fusible: Iterable[Node], graph: Graph, segment: dict[Node, int]
) -> list[list[Node]]:
    """Groups of nodes, none of which a path leaves and enters again.

    In the order of the graph each node joins the groups of its arguments, unless such a
    group also comes before something else that the node needs.
    """
    able = set(fusible)
    groups = _Groups(graph)
    group: dict[Node, int] = {}
    beyond: dict[Node, set[int]] = {}  # of a node in no group: those it comes after
    drawn = drawn_before(graph)
    for node in graph.nodes:
        sources = list(node.all_input_nodes)
        if node in drawn:
            sources.append(drawn[node])
        direct = list(
            dict.fromkeys(groups.find(group[s]) for s in sources if s in group)
        )
        passed = {g for s in sources for g in beyond.get(s, ())}
        if node not in able:
            beyond[node] = {groups.find(g) for g in passed} | set(direct)
            continue
        closed = groups.earlier(passed)
        for other in direct:
            closed |= groups.all_before(other)
        joined: int | None = None
        for other in direct:
            if other in closed or segment[groups.members[other][0]] != segment[node]:
                continue
            if joined is None:
                joined = other
            elif other not in groups.all_before(joined) and (
                joined not in groups.all_before(other)
            ):
                groups.merge(joined, other)
        if joined is None:
            joined = groups.new()
        group[node] = joined
        groups.add(joined, node, (*passed, *(groups.find(g) for g in direct)))
    for g, nodes in list(groups.members.items()):
        if not _worth_it(nodes):
            del groups.members[g]
    _merge_siblings(groups, segment)
    return [groups.members[g] for g in sorted(groups.members)]


def _merge_siblings(groups: _Groups, segment: dict[Node, int]) -> None:
    """Merge groups that read the same tensor, neither of which needs the other.

    Only those of one shape: others would be two kernels all the same.
    """
    readers: dict[tuple[Node, Shape], list[int]] = {}
    for g, nodes in groups.members.items():
        shape = shape_of(nodes[-1])
        for source in {s for n in nodes for s in n.all_input_nodes}:
            if source not in nodes and isinstance(value_of(source), Tensor):
                readers.setdefault((source, shape), []).append(g)
    for alike in readers.values():
        for other in alike[1:]:
            into, other = groups.find(alike[0]), groups.find(other)
            if into == other:
                continue
            one, two = (groups.members[g][0] for g in (into, other))
            if segment[one] != segment[two]:
                continue
            if other in groups.all_before(into) or into in groups.all_before(other):
                continue
            groups.merge(into, other)
