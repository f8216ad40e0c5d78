"""Views of what a graph computes, taken of the arguments of the computation instead.

Comes in: a graph of ATen operators. Goes out: the same graph, where a view between two
elementwise operators, as in `torch.sin(x).t() * y`, stands before the first: sin of
x.t(). Nothing then comes between the two, and they can be one kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node, map_arg

from atentriton.graphs.regions import (
    ATEN,
    CONSTANT,
    is_view,
    mutates,
    shape_of,
    value_of,
    why_not,
)

# Views that exist of every tensor, and those that need one without gaps.
ALWAYS = frozenset(
    (
        *(ATEN.permute.default, ATEN.transpose.int, ATEN.t.default),
        *(ATEN.numpy_T.default, ATEN.movedim.int, ATEN.movedim.intlist),
        *(ATEN.swapaxes.default, ATEN.swapdims.default, ATEN.mT.default),
        *(ATEN.unsqueeze.default, ATEN.squeeze.default),
        *(ATEN.squeeze.dim, ATEN.squeeze.dims),
        *(ATEN.select.int, ATEN.slice.Tensor, ATEN.narrow.default),
    )
)
CONTIGUOUS = frozenset(
    (
        *(ATEN.view.default, ATEN.reshape.default, ATEN._unsafe_view.default),
        *(ATEN.flatten.using_ints, ATEN.unflatten.int, ATEN.view_as.default),
    )
)


def lift(graph: Graph) -> None:
    """Move views in place, those first that come first."""
    barrier, barriers = 0, dict[Node, int]()
    for node in graph.nodes:
        barrier += mutates(node)
        barriers[node] = barrier
    written = {s for n in graph.nodes if mutates(n) for s in n.all_input_nodes}
    for node in list(graph.nodes):
        if node.target not in ALWAYS and node.target not in CONTIGUOUS:
            continue
        if node in written or not all(_computes(u) for u in node.users):
            continue
        source = node.args[0]
        assert isinstance(source, Node)
        tree = _tree(source, node)
        if tree is not None and barriers[tree[0]] == barriers[node]:
            _move(graph, node, source, set(tree))


def _computes(node: Node) -> bool:
    return why_not(node) == "" and not is_view(node) and node.target not in CONSTANT


def _tree(source: Node, view: Node) -> list[Node] | None:
    """All that the source is computed from by elementwise operators, in order.

    None where something of it is needed for another reason than the view, or where a
    view of what it starts with is not the same as the view of the result.
    """
    shape = shape_of(source)
    found: dict[Node, None] = {}
    stack = [source]
    users = {view}
    while stack:
        node = stack.pop()
        if not _computes(node) or shape_of(node) != shape or set(node.users) - users:
            return None
        found[node] = None
        users.add(node)
        for given in node.all_input_nodes:
            value = value_of(given)
            if not isinstance(value, Tensor) or value.dim() == 0 or given in found:
                continue
            if _computes(given) and shape_of(given) == shape:
                if set(given.users) <= users:
                    stack.append(given)
                    continue
                if any(u not in users and _computes(u) for u in given.users):
                    return None  # it would be one kernel with what uses it
            if shape_of(given) != shape:
                return None
            if view.target in CONTIGUOUS and not value.is_contiguous():
                return None
    order = {n: i for i, n in enumerate(source.graph.nodes)}
    return sorted(found, key=order.__getitem__)


def _move(graph: Graph, view: Node, source: Node, tree: set[Node]) -> None:
    """Make the tree anew, right before the view, on views of its arguments."""
    made: dict[Node, Node] = {}

    def moved(node: Node) -> Node:
        if node in made:
            return made[node]
        value: Any = value_of(node)
        if not isinstance(value, Tensor) or (node not in tree and value.dim() == 0):
            return node
        if node in tree:
            args = map_arg(node.args, moved)
            kwargs = map_arg(node.kwargs, moved)
            target: Any = node.target
        else:
            args, kwargs, target = (node, *view.args[1:]), view.kwargs, view.target
        new = graph.create_node("call_function", target, args, kwargs)
        new.meta = {k: v for k, v in node.meta.items() if k == "stack_trace"}
        fake: Any = value
        with fake.fake_mode, torch.no_grad():
            new.meta["val"] = target(
                *map_arg(args, value_of), **map_arg(kwargs, value_of)
            )
        made[node] = new
        return new

    with graph.inserting_before(view):
        result = moved(source)
    view.replace_all_uses_with(result)
    graph.erase_node(view)
    for node in reversed(list(graph.nodes)):
        if node in tree:
            graph.erase_node(node)
