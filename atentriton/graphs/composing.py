"""A region as programs: one for each shape that its results have.

Comes in: a region of a graph, and which of its nodes are needed outside. Goes out: a
`Kernel` for each shape: a routine, and the nodes that it takes and gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

from atentriton import programs
from atentriton.graphs.regions import (
    CONSTANT,
    FILLED,
    FILLED_WITH,
    SAME,
    Region,
    Shape,
    operator_of,
    shape_of,
    value_of,
)
from atentriton.layouts import LIKE, Like, output_strides
from atentriton.programs import Routine, compiler
from atentriton.specs import FROM_TORCH
from fuser.compose import Composition
from fuser.dtypes import Kind
from fuser.errors import FormulaError
from fuser.ir import Static
from fuser.program import Program
from fuser.specs import TensorSpec
from fuser.values import Tuple, Value, number


@dataclass(frozen=True)
class Step:
    """A node of a region, and its arguments."""

    node: Node
    given: dict[str, Any]


@dataclass(frozen=True)
class Kernel:
    """`routine`, on what `tensors` and `numbers` are at run time, gives `results`.

    `steps` are what it computes, and `users` are those of the results, as they were
    before the graph was changed.
    """

    routine: Routine
    tensors: tuple[Node, ...]
    numbers: tuple[Node, ...]
    results: tuple[Node, ...]
    steps: tuple[Step, ...]
    users: dict[Node, tuple[Node, ...]]


class Unfit(Exception):
    """A node cannot be part of a kernel after all."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(f"{operator_of(node)}: {reason}")
        self.node = node


def kernels(region: Region, results: Sequence[Node]) -> list[Kernel]:
    """What computes `results` of the region, grouped by shape and order in memory.

    Unfit, with the node, where one of the region does what no kernel can.
    """
    alike: dict[Any, list[Node]] = {}
    for node in results:
        alike.setdefault((shape_of(node), _order(node)), []).append(node)
    made: list[Kernel] = []
    for nodes in alike.values():
        composer = _Composer(region)
        if not all(computable(n, region) for n in nodes):
            composer.given = {n for n in region.nodes if n.target in SAME}
        made.append(composer.kernel(nodes))
    return made


def hints(sizes: Iterable[Any]) -> tuple[int, ...]:
    """Sizes or strides as they were when the graph was made, -1 where unknown."""
    return tuple(
        int(s)
        if not isinstance(s, SymInt)
        else -1
        if s.node.hint is None
        else s.node.hint
        for s in sizes
    )


def _order(node: Node) -> tuple[int, ...]:
    """The strides of the node's value, but for dimensions without a length."""
    value = value_of(node)
    sizes, strides = hints(value.shape), hints(value.stride())
    return tuple(0 if n == 1 else s for n, s in zip(sizes, strides, strict=True))


def computable(node: Node, region: Region, expanded: bool = False) -> bool:
    """Whether the node's shape is that to which what it is computed from broadcasts.

    With `expanded`, tensors that PyTorch has expanded count among these.
    """
    inside = set(region.nodes)
    leaves: list[Node] = []
    seen = {node}
    stack = [node]
    while stack:
        for source in stack.pop().all_input_nodes:
            if source in seen or not isinstance(value_of(source), Tensor):
                continue
            seen.add(source)
            if "constant" in source.meta:
                continue
            if source in inside and source.target in CONSTANT:
                continue
            if source in inside and not (expanded and source.target in SAME):
                stack.append(source)
            else:
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
        self.given: set[Node] = set()  # nodes that are computed elsewhere
        self.values: dict[Node, Value] = {}
        self.named: dict[str, Node] = {}

    def kernel(self, results: Sequence[Node]) -> Kernel:
        needed = self._needed(results)
        for node in self.region.nodes:
            if node in needed and node not in self.given:
                try:
                    self.values[node] = self._computed(node)
                except (FormulaError, NotImplementedError) as error:
                    raise Unfit(node, str(error)) from error
        name = "_".join(dict.fromkeys(self.composition.calls)) or "region"
        program = self.composition.program(
            _shortened(name), [self.values[n] for n in results]
        )
        program, like = self._laid_out(program, results[0])
        tensors = tuple(self.named[str(n.attrs)] for n in program.inputs)
        numbers = tuple(self.named[str(n.attrs)] for n in program.scalars)
        return Kernel(
            programs.adopt(program, like),
            tensors,
            numbers,
            tuple(results),
            tuple(Step(n, _given(n)) for n in self.region.nodes if n in needed),
            {n: tuple(n.users) for n in results},
        )

    def _laid_out(self, program: Program, result: Node) -> tuple[Program, Like | None]:
        """The program with its inputs in such an order that results get the strides
        that the graph counts on: where inputs differ, the first ones decide, unless an
        operator has a rule of its own."""
        given = [self.named[str(n.attrs)] for n in program.inputs]
        if not given or _broadcast(map(shape_of, given)) != shape_of(result):
            raise Unfit(result, "its elements depend on no tensor of its shape")
        wanted = _order(result)
        shape = hints(value_of(result).shape)
        like = self._followed(given, result)
        if like is not None:  # PyTorch's fake tensors do not know all of these rules
            return program, like
        if 0 in shape or -1 in shape:
            return program, None
        for first in (None, *program.inputs):
            inputs = program.inputs
            if first is not None:
                inputs = (first, *(n for n in inputs if n is not first))
            tensors = [_like(self.named[str(n.attrs)]) for n in inputs]
            strides = output_strides(shape, tensors)
            found = (0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
            if tuple(found) == wanted:
                return replace(program, inputs=inputs), None
        raise Unfit(result, "its result is laid out in memory like no argument")

    def _followed(self, given: Sequence[Node], result: Node) -> Like | None:
        """How the layout of the result comes about, where one of the operators before
        it has a rule of its own; `given` are the nodes that the program takes."""
        inside = self._needed([result]) - self.given
        places = {n: i for i, n in enumerate(given)}
        leaves: dict[Node, set[int]] = {n: {i} for n, i in places.items()}
        steps: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        own = False
        for node in self.region.nodes:
            if node not in inside or node.target in CONSTANT:
                continue
            sources = [n for n in node.all_input_nodes if n in places]
            if node.target in SAME:
                if node.args[0] in places:
                    places[node] = places[node.args[0]]
                    leaves[node] = leaves[node.args[0]]
                continue
            if not sources:  # the same number everywhere
                continue
            following = sources
            rule = LIKE.get(operator_of(node))
            if rule is not None:
                own = True
                named = _given(node)
                following = [named[k] for k in rule if named.get(k) in places]
            leaves[node] = set[int]().union(*(leaves[n] for n in sources))
            places[node] = len(given) + len(steps)
            followed = tuple(places[n] for n in following)
            steps.append((tuple(sorted(leaves[node])), followed))
        if not own or places.get(result) != len(given) + len(steps) - 1:
            return None
        return _pruned(Like(steps[-1][1], tuple(steps[:-1])), len(given))

    def _needed(self, results: Sequence[Node]) -> set[Node]:
        inside = set(self.region.nodes)
        found: set[Node] = set()
        stack = list(results)
        while stack:
            node = stack.pop()
            if node in inside and node not in found:
                found.add(node)
                if node in self.given:
                    continue
                stack += node.all_input_nodes
        return found

    def _computed(self, node: Node) -> Value:
        if node.target in SAME:
            return self._value(node.args[0])
        if node.target in CONSTANT:
            return self._constant(node)
        given = _given(node).items()
        bound = {k: self._value(v) for k, v in given if v is not None}
        return self.composition.apply(operator_of(node), bound)[0]

    def _constant(self, node: Node) -> Value:
        value = value_of(node)
        target: Any = node.target
        fill: Any = FILLED.get(target)
        if fill is None:
            place = FILLED_WITH[target]
            known = len(node.args) > place
            fill = node.args[place] if known else node.kwargs["fill_value"]
        given = self._value(fill)
        made = self.composition.converted(given, FROM_TORCH[value.dtype])
        return replace(made, zero_dim=value.dim() == 0)

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
        value = value_of(node)
        if "constant" in node.meta:
            kept: Tensor = node.meta["constant"]
            given = number(kept.item())
            made = self.composition.converted(given, FROM_TORCH[kept.dtype])
            return replace(made, zero_dim=True)
        name = node.name if node.name.isidentifier() else f"n{len(self.named)}"
        self.named[name] = node
        if isinstance(value, Tensor):
            spec = TensorSpec(FROM_TORCH[value.dtype], value.dim() == 0)
            return self.composition.tensor(name, spec)
        return self.composition.number(name, _kind(value))


def _given(node: Node) -> dict[str, Any]:
    """The arguments of the operator that the node calls, by name."""
    target: Any = node.target
    names = [a.name for a in target._schema.arguments]
    return dict(zip(names, node.args, strict=False)) | node.kwargs


def _pruned(like: Like, count: int) -> Like:
    """The same without the steps that nothing follows; `count` inputs are before."""
    needed = set(like.followed)
    for i in reversed(range(len(like.steps))):
        if count + i in needed:
            needed.update(like.steps[i][1])
    kept = [i for i in range(len(like.steps)) if count + i in needed]
    new = {count + i: count + k for k, i in enumerate(kept)}

    def renumbered(places: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new.get(i, i) for i in places)

    steps = tuple((like.steps[i][0], renumbered(like.steps[i][1])) for i in kept)
    return Like(renumbered(like.followed), steps)


def _like(node: Node) -> Tensor:
    """A tensor without memory, with the sizes and strides of the node's value."""
    value = value_of(node)
    with _disable_current_modes():
        return torch.empty_strided(
            hints(value.shape), hints(value.stride()), device="meta"
        )


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
