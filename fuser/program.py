"""A program: a closed graph with named tensors in and named tensors out.

Comes in: nodes. Goes out: `Program`, the unit that is derived, scheduled, printed and
run. A program works on elements; its tensors broadcast together, and every output has
the shape they broadcast to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fuser import ir
from fuser.dtypes import DType
from fuser.ir import Node


@dataclass(frozen=True, slots=True)
class Output:
    """A result: its element is `node`, rounded to `dtype` when it is stored."""

    name: str
    node: Node
    dtype: DType


@dataclass(frozen=True, slots=True)
class Program:
    """`inputs` and `scalars` are input and scalar nodes, in the order of the arguments.

    `formulas` says, a line each, what the program computes and from which formula;
    `lineage` says how it came about (`acosh(float32).vjp(1, 1)`) and names it for good.
    `order` counts the derivations: 0 is an operator itself.
    """

    name: str
    inputs: tuple[Node, ...]
    scalars: tuple[Node, ...]
    outputs: tuple[Output, ...]
    formulas: tuple[str, ...] = ()
    lineage: str = ""
    order: int = 0

    @property
    def roots(self) -> tuple[Node, ...]:
        return tuple(o.node for o in self.outputs)

    @property
    def nodes(self) -> list[Node]:
        """All nodes, arguments before users."""
        return ir.topological(self.roots)

    def with_roots(self, roots: Iterable[Node]) -> Program:
        """The same program with other nodes for its outputs."""
        outputs = tuple(
            Output(o.name, node, o.dtype)
            for o, node in zip(self.outputs, roots, strict=True)
        )
        return replace(self, outputs=outputs)


def used(nodes: tuple[Node, ...], roots: Iterable[Node]) -> tuple[Node, ...]:
    """Those of the input or scalar nodes that the roots reach, in their order."""
    reached = set(ir.topological(roots))
    return tuple(n for n in nodes if n in reached)
