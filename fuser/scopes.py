"""What the names in an operator's formulas stand for, at one node of a graph.

Comes in: a node, and its tangents where the formula is a forward one. Goes out: a value
for each argument and result that the operator's signature names.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from fuser import ir
from fuser.formulas import Entry
from fuser.functions import default_value
from fuser.ir import CallTarget, Node, Static
from fuser.lower import Lowering
from fuser.signatures import Argument
from fuser.values import Number, Tensor, Tuple, Undefined, Value, number


class Scopes:
    """`saved` maps a node to what stands for it where a formula names a result."""

    def __init__(self, lowering: Lowering, saved: Mapping[Node, Node]) -> None:
        self.lowering = lowering
        self.saved = saved

    def names(self, entry: Entry, node: Node) -> dict[str, Value]:
        """What the arguments' and the results' names stand for."""
        names = arguments_of(entry.signature.arguments, node)
        for output, name in enumerate(entry.signature.result_names):
            names.setdefault(name, Tensor.of(self.result(node, output)))
        return names

    def forward_names(
        self, entry: Entry, node: Node, given: Sequence[Node | None]
    ) -> dict[str, Value]:
        """The names, and `x_p`, `x_t` of each tensor x that is an argument.

        In an operator that works in place the first argument holds the result when the
        formula is evaluated; what it held before is `original_x_p`.
        """
        names = self.names(entry, node)
        scope = dict(names)
        for name, place in places_of(entry, node).items():
            primal, tangent = node.args[place], given[place]
            scope[f"{name}_p"] = scope[f"original_{name}_p"] = names[name]
            scope[f"{name}_t"] = scope[f"original_{name}_t"] = (
                Undefined(primal.dtype) if tangent is None else Tensor.of(tangent)
            )
        if entry.inplace:
            first = entry.signature.arguments[0].name
            scope[f"{first}_p"] = names[entry.signature.result_names[0]]
        return scope

    def result(self, node: Node, output: int) -> Node:
        """The operator's output of that number, saved or as it is computed."""
        target = node.attrs
        if isinstance(target, CallTarget) and target.output != output:
            node = self._sibling(node, target, output)
        return self.saved.get(node, node)

    def _sibling(self, node: Node, target: CallTarget, output: int) -> Node:
        function = self.lowering.functions.by_name[target.name]
        bound = arguments_of(function.signature.arguments, node)
        value = self.lowering.call(function, bound)
        assert isinstance(value, Tuple)
        item = value.items[output]
        assert isinstance(item, Tensor)
        sibling = replace(target, output=output)
        return ir.call(sibling, item.node.dtype, node.args)


def arguments_of(arguments: Sequence[Argument], node: Node) -> dict[str, Value]:
    """The arguments of a call or a primitive, by the signature's names."""
    args = iter(node.args)
    seen = node.attrs.seen if isinstance(node.attrs, CallTarget) else None
    names: dict[str, Value] = {}
    static = _static_of(node, len(arguments))
    for argument, known in zip(arguments, static, strict=True):
        given = next(args, None) if known is None else None
        if known is not None:
            names[argument.name] = _known(known)
        elif given is None:  # of a primitive: what its ATen operator has besides
            names[argument.name] = (
                default_value(argument) if argument.default else Static(None)
            )
        elif argument.is_tensor:
            names[argument.name] = Tensor(given, seen or given.dtype)
        else:
            names[argument.name] = Number(given)
    return names


def places_of(entry: Entry, node: Node) -> dict[str, int]:
    """The position in node.args of each Tensor argument that is there."""
    arguments = entry.signature.arguments
    static = _static_of(node, len(arguments))
    held = [a for a, s in zip(arguments, static, strict=True) if s is None]
    return {
        argument.name: place
        for place, argument in enumerate(held[: len(node.args)])
        if argument.is_tensor
    }


def output_of(node: Node) -> int:
    """Which output of its operator the node is."""
    return node.attrs.output if isinstance(node.attrs, CallTarget) else 0


def _static_of(node: Node, count: int) -> tuple[Static | None, ...]:
    if isinstance(node.attrs, CallTarget):
        return node.attrs.arguments
    return (None,) * count


def _known(static: Static) -> Value:
    value = static.value
    if isinstance(value, bool | int | float | complex):
        return number(value)
    if isinstance(value, tuple):
        items = cast("tuple[Hashable, ...]", value)
        return Tuple(tuple(_known(Static(item)) for item in items))
    return static
