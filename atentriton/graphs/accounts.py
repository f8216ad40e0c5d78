"""What a rewritten graph comes to: its regions, the bytes they move, why they end.

Comes in: a rewritten graph. Goes out: an `Account` of each region, and the graph of
the regions in the language of Graphviz. Bytes are those of the sizes that the graph
was made with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from atentriton import programs
from atentriton.graphs.composing import Kernel, Step, hints
from atentriton.graphs.regions import operator_of, value_of
from atentriton.graphs.replacing import Call, Rewritten, computes_nothing
from atentriton.specs import specs_of
from fuser.errors import FormulaError


@dataclass(frozen=True)
class Account:
    """`operators` as one kernel that moves `read` and `written` bytes and keeps `saved`
    for a backward pass; the operators by themselves would move and keep `unfused`.

    `ends` says what uses the results, and why that is not in the region.
    """

    operators: tuple[str, ...]
    read: int
    written: int
    saved: int
    unfused: tuple[int, int, int]
    ends: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class FusedGraph:
    """A graph with regions ran; `name` is the function's."""

    name: str
    rewritten: Rewritten

    def __str__(self) -> str:
        regions = len(self.rewritten.kernels)
        return f"{self.name}: {regions} region{'' if regions == 1 else 's'}"

    @property
    def accounts(self) -> tuple[Account, ...]:
        return tuple(account(k, self.rewritten) for k in self.rewritten.kernels)

    @property
    def outside(self) -> dict[str, str]:
        """What computes something and is in no region, and why; by operator."""
        graph = self.rewritten.module.graph
        return {
            operator_of(n) or str(n.target): self.rewritten.reasons.get(n.name, "")
            for n in graph.nodes
            if not isinstance(n.target, Call) and not computes_nothing(n)
        }


def account(kernel: Kernel, rewritten: Rewritten) -> Account:
    """What the kernel saves over its operators one by one.

    It is counted as if all arguments needed a gradient.
    """
    able = tuple(value_of(n).dtype.is_floating_point for n in kernel.tensors)
    both = {"input": kernel.tensors, "output": kernel.results}
    kept = kernel.routine.saving(able).reads if any(able) else ()
    steps = [s for s in kernel.steps if not computes_nothing(s.node)]
    return Account(
        tuple(operator_of(s.node) for s in steps),
        _bytes(kernel.tensors),
        _bytes(kernel.results),
        _bytes(both[kind][i] for kind, i in kept),
        (
            sum(_bytes(n for n in _nodes(s)) for s in steps),
            _bytes(s.node for s in steps),
            _bytes(dict.fromkeys(n for s in steps for n in _saved(s))),
        ),
        tuple(dict.fromkeys(_ends(kernel, rewritten))),
    )


def _nodes(step: Step) -> list[Node]:
    return [v for v in step.given.values() if isinstance(v, Node)]


def _bytes(nodes: Iterable[Node]) -> int:
    total = 0
    for node in nodes:
        value = value_of(node)
        if isinstance(value, Tensor):
            sizes = hints(value.shape)
            total += value.dtype.itemsize * torch.Size(sizes).numel()
    return total


def _saved(step: Step) -> Iterator[Node]:
    """What the operator by itself keeps for its gradients."""
    name = operator_of(step.node)
    signature = programs.signature_of(name)
    given = [
        step.given.get(a.name, a.default.value if a.default else None)
        for a in signature.arguments
    ]
    values = [value_of(v) if isinstance(v, Node) else v for v in given]
    try:
        specs = specs_of(signature, values)
        routine = programs.routine(name, specs, programs.default_dtype())
    except (FormulaError, NotImplementedError):
        return
    inputs = [v for v in given if isinstance(v, Node) and _is_tensor(v)]
    able = tuple(value_of(n).dtype.is_floating_point for n in inputs)
    if any(able):
        for kind, i in routine.saving(able).reads:
            yield inputs[i] if kind == "input" else step.node


def _is_tensor(node: Node) -> bool:
    return isinstance(value_of(node), Tensor)


def _ends(kernel: Kernel, rewritten: Rewritten) -> Iterable[str]:
    inside = {s.node for s in kernel.steps}
    for user in (u for n in kernel.results for u in kernel.users[n]):
        if user in inside:
            continue
        if user.op == "output":
            yield "the function returns"
        else:
            reason = rewritten.reasons.get(user.name)
            yield reason or f"{operator_of(user)} is in another region"


def dot(rewritten: Rewritten) -> str:
    """The regions, and what is in none, as a digraph."""
    lines = ["digraph regions {", "  node [shape=box, fontname=monospace];"]
    for node in rewritten.module.graph.nodes:
        style = ""
        if isinstance(node.target, Call):
            label = "\\n".join(node.target.routine.program.formulas)
            style = ", style=filled, fillcolor=lightblue"
        elif node.op == "call_function":
            label = operator_of(node) or getattr(
                node.target, "__name__", str(node.target)
            )
        else:
            label = node.op if node.op == "output" else str(node.target)
            style = ", shape=plaintext"
        lines.append(f'  {node.name} [label="{label}"{style}];')
        lines += [f"  {s.name} -> {node.name};" for s in node.all_input_nodes]
    return "\n".join([*lines, "}"])
