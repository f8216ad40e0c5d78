"""A graph made simpler before regions are looked for.

Comes in: a graph of ATen operators. Goes out: the same graph, without views that change
nothing, and with in-place operators on what the graph itself has made turned into
functional ones: these can be part of a kernel, and need no order among them.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, Node

from atentriton.graphs.regions import ATEN, value_of


def tidy(graph: Graph) -> None:
    """Apply all of it, in place."""
    for node in list(graph.nodes):
        if _changes_nothing(node):
            source = node.args[0]
            assert isinstance(source, Node)
            node.replace_all_uses_with(source)
            graph.erase_node(node)
    for node in list(graph.nodes):
        functional = _functional(node)
        if functional is not None:
            _make_functional(graph, node, functional)


def _changes_nothing(node: Node) -> bool:
    if node.target in (ATEN.alias.default, ATEN.lift_fresh_copy.default):
        return isinstance(node.args[0], Node)
    if node.target is ATEN.broadcast_tensors.default:
        return False
    if node.target is not ATEN.slice.Tensor:
        return False
    _, _, start, end, step = (
        *node.args,
        *(None, None, None, None, 1)[len(node.args) :],
    )
    return start in (None, 0) and end in (None, sys.maxsize) and step == 1


def _functional(node: Node) -> OpOverload | None:
    """The functional operator that may stand for an in-place one here."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return None
    base = target._schema.name.removeprefix("aten::")
    if target.namespace != "aten" or not base.endswith("_") or base.endswith("__"):
        return None
    packet = getattr(ATEN, base[:-1], None)
    if packet is None or target._overloadname not in packet.overloads():
        return None
    written = node.args[0] if node.args else None
    if not isinstance(written, Node) or not _made_here(written):
        return None
    if any(_aliases(user) for user in written.users if user is not node):
        return None
    return getattr(packet, target._overloadname)


def _made_here(node: Node) -> bool:
    """Whether the node's tensor is new: no view, no argument, no result of a write."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    return not any(r.alias_info for r in node.target._schema.returns)


def _aliases(node: Node) -> bool:
    """Whether what the node gives may share memory with what it is given."""
    if not isinstance(node.target, OpOverload):
        return node.op != "output"
    written = any(r.alias_info for r in node.target._schema.returns)
    return written and _functional_name(node) is None


def _functional_name(node: Node) -> str | None:
    name = str(node.target)
    return name if name.partition(".")[2].partition(".")[0].endswith("_") else None


def _make_functional(graph: Graph, node: Node, functional: OpOverload) -> None:
    written = node.args[0]
    assert isinstance(written, Node)
    wanted = value_of(node)
    with graph.inserting_before(node):
        made = graph.call_function(functional, node.args, node.kwargs)
        made.meta = dict(node.meta)
        dtypes = {
            value_of(n).dtype
            for n in node.all_input_nodes
            if isinstance(value_of(n), Tensor)
        }
        if dtypes != {wanted.dtype}:
            with wanted.fake_mode:
                made.meta["val"] = _run(functional, node)
            made_as = graph.call_function(
                ATEN._to_copy.default, (made,), {"dtype": wanted.dtype}
            )
            made_as.meta = dict(node.meta)
            made = made_as
    place = {n: i for i, n in enumerate(graph.nodes)}
    after = place[node]
    written.replace_all_uses_with(made, lambda user: place[user] > after)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _run(operator: OpOverload, node: Node) -> Any:
    def value(given: Any) -> Any:
        return value_of(given) if isinstance(given, Node) else given

    with torch.no_grad():
        args = [value(a) for a in node.args]
        return operator(*args, **{k: value(v) for k, v in node.kwargs.items()})
