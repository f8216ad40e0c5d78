"""A region as programs: one for each shape that its results have.

Comes in: a region of a graph, and which of its nodes are needed outside. Goes out: a
`Kernel` for each shape: a routine, and the nodes that it takes and gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch.fx import Node

from atentriton import programs
from atentriton.graphs.regions import CONSTANT, SAME, Region, operator_of, value_of
from atentriton.programs import Routine, compiler
from atentriton.specs import FROM_TORCH
from fuser.compose import Composition
from fuser.dtypes import Kind
from fuser.errors import FormulaError
from fuser.ir import Static
from fuser.specs import TensorSpec
from fuser.values import Tuple, Value, number

Shape = tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """`routine` on the tensors and numbers of `tensors` and `numbers` gives `results`."""

    routine: Routine
    tensors: tuple[Node, ...]
    numbers: tuple[Node, ...]
    results: tuple[Node, ...]


def shape_of(node: Node) -> Shape:
    """The shape of the node's value, sizes as text: equal if they are always equal."""
    return tuple(str(size) for size in value_of(node).shape)


def kernels(region: Region, results: Sequence[Node]) -> list[Kernel]:
    """What computes `results` of the region, grouped by shape."""
    shapes: dict[Shape, list[Node]] = {}
    for node in results:
        shapes.setdefault(shape_of(node), []).append(node)
    return [_Composer(region).kernel(nodes) for nodes in shapes.values()]


def computable(node: Node, region: Region) -> bool:
    """Whether the node's shape is that to which what it is computed from broadcasts."""
    inside = set(region.nodes)
    leaves: list[Node] = []
    seen = {node}
    stack = [node]
    while stack:
        for source in stack.pop().all_input_nodes:
            if source in seen or not isinstance(value_of(source), Tensor):
                continue
            seen.add(source)
            if source in inside and source.target not in CONSTANT:
                stack.append(source)
            elif source not in inside:
                leaves.append(source)
    return bool(leaves) and _broadcast(map(shape_of, leaves)) == shape_of(node)


def _broadcast(shapes: Any) -> Shape:
    found: list[str] = []
    for shape in shapes:
        shape = list(shape)
        width = max(len(shape), len(found))
        shape = ["1"] * (width - len(shape)) + shape
        found = ["1"] * (width - len(found)) + found
        found = [a if b == "1" else b for a, b in zip(found, shape, strict=True)]
    return tuple(found)


class _Composer:
    """Calls the operators of a region, in order, on values."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.composition = Composition(compiler(), programs.default_dtype())
        self.values: dict[Node, Value] = {}
        self.named: dict[str, Node] = {}

    def kernel(self, results: Sequence[Node]) -> Kernel:
        needed = self._needed(results)
        for node in self.region.nodes:
            if node in needed:
                self.values[node] = self._computed(node)
        name = "_".join(dict.fromkeys(self.composition.calls)) or "region"
        program = self.composition.program(
            _shortened(name), [self.values[n] for n in results]
        )
        tensors = tuple(self.named[str(n.attrs)] for n in program.inputs)
        numbers = tuple(self.named[str(n.attrs)] for n in program.scalars)
        return Kernel(programs.adopt(program), tensors, numbers, tuple(results))

    def _needed(self, results: Sequence[Node]) -> set[Node]:
        inside = set(self.region.nodes)
        found: set[Node] = set()
        stack = list(results)
        while stack:
            node = stack.pop()
            if node in inside and node not in found:
                found.add(node)
                stack += node.all_input_nodes
        return found

    def _computed(self, node: Node) -> Value:
        if node.target in SAME:
            return self._value(node.args[0])
        if node.target in CONSTANT:
            return self._constant(node)
        name = operator_of(node)
        signature = compiler().operator(name).signature
        given: dict[str, Any] = dict(
            zip((a.name for a in signature.arguments), node.args, strict=False)
        )
        given |= node.kwargs
        bound = {k: self._value(v) for k, v in given.items() if v is not None}
        return self.composition.apply(name, bound)[0]

    def _constant(self, node: Node) -> Value:
        fill: Any = {"ones_like": 1, "zeros_like": 0}.get(operator_of(node))
        if fill is None:
            fill = node.args[1] if len(node.args) > 1 else node.kwargs["fill_value"]
        dtype = FROM_TORCH[value_of(node).dtype]
        if isinstance(fill, Node):
            return self.composition.converted(self._value(fill), dtype)
        return self.composition.constant(fill, dtype)

    def _value(self, given: Any) -> Value:
        """What a node's argument stands for."""
        if isinstance(given, Node):
            if given not in self.values:
                self.values[given] = self._outer(given)
            return self.values[given]
        if isinstance(given, (bool, int, float, complex)):
            return number(given)
        if isinstance(given, (list, tuple)):
            return Tuple(tuple(map(self._value, given)))
        if isinstance(given, torch.dtype):
            return Static(FROM_TORCH[given])
        if given is None or isinstance(given, str):
            return Static(given)
        return Static(None)  # about memory and place, which `why_not` has looked at

    def _outer(self, node: Node) -> Value:
        """Something that the region is given."""
        name = node.name if node.name.isidentifier() else f"n{len(self.named)}"
        self.named[name] = node
        value = value_of(node)
        if isinstance(value, Tensor):
            spec = TensorSpec(FROM_TORCH[value.dtype], value.dim() == 0)
            return self.composition.tensor(name, spec)
        return self.composition.number(name, _kind(value))


def _kind(value: Any) -> Kind:
    for types, kind in (
        ((bool, SymBool), "bool"),
        ((int, SymInt), "int"),
        ((float, SymFloat), "float"),
        ((complex,), "complex"),
    ):
        if isinstance(value, types):
            return kind  # type: ignore[return-value]
    raise FormulaError(f"a region takes no {type(value).__name__}")


def _shortened(name: str, most: int = 60) -> str:
    clean = "".join(c if c.isalnum() else "_" for c in name)
    return clean if len(clean) <= most else clean[: most - 4] + "_etc"
