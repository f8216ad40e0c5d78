"""A graph made simpler before regions are looked for.

Comes in: a graph of ATen operators. Goes out: the same graph, without views that change
nothing; with in-place operators on what the graph itself has made turned into
functional ones, which can be part of a kernel and need no order among them; and with
operators that PyTorch keeps whole before autograd (`to`, `dropout`) as what they do.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node

from atentriton.graphs.regions import ATEN, is_view, mutates, shape_of, value_of


def tidy(graph: Graph, module: GraphModule) -> None:
    """Apply all of it, in place; `module` has the graph's constants."""
    for node in list(graph.nodes):
        if node.op == "get_attr":
            _keep_constant(graph, node, module)
    for node in list(graph.nodes):
        for rewrite in (_conversion, _broadcast, _renamed, _random, _dropout):
            made = rewrite(node)
            if made is not None:
                node.replace_all_uses_with(made, lambda user, m=made: user is not m)
                graph.erase_node(node)
                break
    modes = _grad_modes(graph)
    for node in list(graph.nodes):
        functional = _functional(node, modes)
        if functional is not None:
            made = _make_functional(graph, node, functional)
            modes[made] = modes.get(made.prev, True)


def _keep_constant(graph: Graph, node: Node, module: GraphModule) -> None:
    """Mark what was written as a number of no dimensions in the function itself.

    PyTorch makes a copy of it for each call; nobody can tell unless it is written to.
    """
    chain = [node]
    for wanted in (
        (ATEN.lift_fresh_copy.default, ATEN.lift_fresh.default),
        (ATEN.detach_.default, ATEN.detach.default),
    ):
        users = list(chain[-1].users)
        if len(users) == 1 and users[0].target in wanted:
            chain.append(users[0])
    last = chain[-1]
    kept = getattr(module, str(node.target), None)
    if len(chain) == 1 or not isinstance(kept, Tensor) or kept.dim() > 0:
        return
    if any(mutates(u) or is_view(u) or u.op == "output" for u in last.users):
        return
    node.meta["constant"] = kept
    last.replace_all_uses_with(node)
    for old in reversed(chain[1:]):
        graph.erase_node(old)


def _before(
    node: Node,
    target: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    value: Any = None,
) -> Node:
    """A call right before the node, of the same value where none is given."""
    with node.graph.inserting_before(node):
        made = node.graph.call_function(target, args, kwargs)
    made.meta = dict(node.meta)
    if value is not None:
        made.meta["val"] = value
    return made


_CONVERSIONS = ("aten::to", "aten::type_as")


def _conversion(node: Node) -> Node | None:
    """What stands for a conversion or a view that changes nothing, or only a dtype."""
    target = node.target
    source = node.args[0] if node.args else None
    if not isinstance(source, Node) or not isinstance(value_of(source), Tensor):
        return None
    if target is ATEN.alias.default or _whole_slice(node):
        return source
    if not isinstance(target, OpOverload) or target._schema.name not in _CONVERSIONS:
        return None
    names = [a.name for a in target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    old, new = value_of(source), value_of(node)
    if old.device != new.device or old.layout != new.layout:
        return None
    if given.get("memory_format") not in (None, torch.preserve_format):
        return None
    if old.dtype == new.dtype:
        return None if given.get("copy") else source
    return _before(node, ATEN._to_copy.default, (source,), {"dtype": new.dtype})


def _whole_slice(node: Node) -> bool:
    if node.target is not ATEN.slice.Tensor:
        return False
    defaults = (None, None, None, None, 1)[len(node.args) :]
    given: Any = (*node.args, *defaults)
    _, _, start, end, step = given
    return start in (None, 0) and end in (None, sys.maxsize) and step == 1


_OTHER_NAMES = {
    f"__{sign}__.{kind}": f"bitwise_{sign}.{kind}"
    for sign in ("and", "or", "xor")
    for kind in ("Tensor", "Scalar")
}


def _renamed(node: Node) -> Node | None:
    """The same operator under the name that it has everywhere else."""
    name = _OTHER_NAMES.get(str(node.target).removeprefix("aten."))
    if name is None:
        return None
    base, _, overload = name.partition(".")
    return _before(node, getattr(getattr(ATEN, base), overload), node.args)


def _broadcast(node: Node) -> Node | None:
    """What comes out of `broadcast_tensors` as one expanded tensor each."""
    if node.target is not operator.getitem or not isinstance(node.args[0], Node):
        return None
    source: Any = node.args[0]
    place: Any = node.args[1]
    if source.target is not ATEN.broadcast_tensors.default:
        return None
    tensors: Any = source.args[0]
    same = [t for t in tensors if shape_of(t) == shape_of(node)]
    if tensors[place] in same or not same:
        return tensors[place] if same else None
    return _before(node, ATEN.expand_as.default, (tensors[place], same[0]))


def _random(node: Node) -> Node | None:
    """Random bits as a new tensor, where they are written to one that has no other use.

    The numbers drawn are the same.
    """
    if node.target is not ATEN.bernoulli_.float or node.kwargs:
        return None
    source = node.args[0]
    assert isinstance(source, Node)
    if source.target is not ATEN.empty_like.default or len(source.users) > 1:
        return None
    return _bits(node, source, *node.args[1:2])


def _bits(node: Node, like: Node, p: Any = 0.5) -> Node:
    value = value_of(like).detach()
    detached = _before(node, ATEN.detach.default, (like,), value=value)
    return _before(node, ATEN.bernoulli.p, (detached, p), value=value)


def _dropout(node: Node) -> Node | None:
    """Dropout as PyTorch has it on a CPU: a product with random bits."""
    if node.target is not ATEN.dropout.default:
        return None
    given: Any = node.args
    source, p, training = given
    value = value_of(source)
    if not training or p == 0:
        return source
    if p == 1 or value.device.type != "cpu" or value.dtype.is_complex:
        return None
    bits = _bits(node, _template(source), 1 - p)
    scaled = _before(node, ATEN.div.Scalar, (bits, 1 - p), value=value_of(bits))
    return _before(node, ATEN.mul.Tensor, (source, scaled))


def _template(node: Node) -> Node:
    """Of what the node is computed from, the first that looks like it.

    Random bits only need something of the same size: that need not be a tensor which
    a kernel would have to write for this alone.
    """
    while node.args and isinstance(node.args[0], Node):
        source = node.args[0]
        if mutates(node) or _look(value_of(source)) != _look(value_of(node)):
            break
        node = source
    return node


def _look(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return None
    sizes = [str(n) for n in (*value.shape, *value.stride())]
    return sizes, value.dtype, value.device


def _grad_modes(graph: Graph) -> dict[Node, bool]:
    """Whether each node runs where gradients are recorded as they are outside."""
    modes: dict[Node, bool] = {}
    recording = True
    for node in graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            recording = bool(node.args[0])
        modes[node] = recording
    return modes


def _functional(node: Node, modes: dict[Node, bool]) -> OpOverload | None:
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
    if modes[written] and not modes[node]:
        return None  # it keeps its gradient, as if nothing was written
    return getattr(packet, target._overloadname)


def _made_here(node: Node) -> bool:
    """Whether the node's tensor is new: no view, no argument, no result of a write."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    return not is_view(node)


def _aliases(node: Node) -> bool:
    """Whether what the node gives may share memory with what it is given."""
    if not isinstance(node.target, OpOverload):
        return node.op != "output"
    name = node.target._schema.name
    return is_view(node) and not (name.endswith("_") and not name.endswith("__"))


def _make_functional(graph: Graph, node: Node, functional: OpOverload) -> Node:
    written = node.args[0]
    assert isinstance(written, Node)
    wanted = value_of(node)
    made = _before(node, functional, node.args, node.kwargs)
    given = map(value_of, node.all_input_nodes)
    if {v.dtype for v in given if isinstance(v, Tensor)} != {wanted.dtype}:
        with wanted.fake_mode:
            made.meta["val"] = _run(functional, node)
        made = _before(node, ATEN._to_copy.default, (made,), {"dtype": wanted.dtype})
    place = {n: i for i, n in enumerate(graph.nodes)}
    after = place[node]
    written.replace_all_uses_with(made, lambda user: place[user] > after)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    return made


def _run(operator: OpOverload, node: Node) -> Any:
    def value(given: Any) -> Any:
        return value_of(given) if isinstance(given, Node) else given

    with torch.no_grad():
        args = [value(a) for a in node.args]
        return operator(*args, **{k: value(v) for k, v in node.kwargs.items()})
