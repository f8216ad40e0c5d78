"""The reference: a program evaluated with PyTorch's own operators.

Comes in: a `Program` without call nodes, tensors and numbers. Goes out: the outputs as
new tensors. It is the oracle that kernels are checked against, and what runs where
there is no compiler. Complex values may be left in the graph, or have been taken apart;
constants are exact in float64; half types widen and round where the graph says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from atentriton.specs import TO_TORCH
from fuser import ir
from fuser.dtypes import DType
from fuser.ir import Loop, Node, Number
from fuser.optable import PRIMITIVES
from fuser.program import Program

Values = dict[Node, Tensor]


@torch.no_grad()
def evaluate(
    program: Program, tensors: Sequence[Tensor], scalars: Sequence[Number] = ()
) -> list[Tensor]:
    """The outputs of the program, one new contiguous tensor each.

    `tensors` are the values of `program.inputs`, of those dtypes, on one device, of
    shapes that broadcast; `scalars` those of `program.scalars`. Every output has the
    shape that the tensors broadcast to. ValueError for a wrong number or dtype of
    arguments and for a program that still has a call in it; RuntimeError, as PyTorch
    raises it, for an integer division by zero on a CPU.
    """
    _check(program, tensors, scalars)
    device = tensors[0].device if tensors else torch.device("cpu")
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    leaves: Values = dict(zip(program.inputs, tensors, strict=True))
    for node, number in zip(program.scalars, scalars, strict=True):
        leaves[node] = _number(number, node.dtype, device)
    found = _Evaluation(program.name, device).run(program.roots, leaves)
    return [
        torch.empty(shape, dtype=TO_TORCH[o.dtype], device=device).copy_(
            _cast(value, o.dtype)
        )
        for o, value in zip(program.outputs, found, strict=True)
    ]


def _check(
    program: Program, tensors: Sequence[Tensor], scalars: Sequence[Number]
) -> None:
    for kind, wanted, given in (
        ("tensors", program.inputs, tensors),
        ("numbers", program.scalars, scalars),
    ):
        if len(wanted) != len(given):
            raise ValueError(
                f"{program.name} takes {len(wanted)} {kind}, {len(given)} were given"
            )
    for node, tensor in zip(program.inputs, tensors, strict=True):
        if tensor.dtype != TO_TORCH[node.dtype]:
            raise ValueError(
                f"{program.name}: {node.attrs} is {node.dtype}, got {tensor.dtype}"
            )


class _Evaluation:
    """Values of nodes on one device; `name` is the program's, for messages."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = name
        self.device = device

    def run(
        self,
        roots: Sequence[Node],
        leaves: Mapping[Node, Tensor],
        in_loop: bool = False,
    ) -> list[Tensor]:
        """The values of the roots; a value is let go after its last use."""
        order = ir.topological(roots)
        uses = dict.fromkeys(order, 0)
        for node in (*roots, *(a for n in order for a in n.args)):
            uses[node] += 1
        values: Values = {}
        loops: dict[Node, list[Tensor]] = {}
        for node in order:
            if node in leaves:
                values[node] = leaves[node]
            elif node.op == "iterate":
                loops[node] = self.loop(node, [values[a] for a in node.args])
            elif node.op == "item":
                assert isinstance(node.attrs, int)
                values[node] = loops[node.args[0]][node.attrs]
            else:
                args = [values[a] for a in node.args]
                values[node] = self.operation(node, args, in_loop)
            for arg in node.args:
                uses[arg] -= 1
                if uses[arg] == 0:
                    values.pop(arg, None)
                    loops.pop(arg, None)
        return [values[r] for r in roots]

    def operation(self, node: Node, args: list[Tensor], in_loop: bool) -> Tensor:
        if node.op == "const":
            return _number(ir.value_of(node), node.dtype, self.device)
        if node.op == "cast":
            return _cast(args[0], node.dtype)
        if node.op in ("idiv", "imod"):
            return _divide(node.op, args[0], args[1], in_loop)
        if node.op not in PRIMITIVES:
            raise ValueError(
                f'{self.name} cannot be evaluated: "{ir.label(node)}" is left in it; '
                "calls have to be expanded first"
            )
        function: Callable[..., Tensor] = getattr(torch, PRIMITIVES[node.op].torch)
        return function(*args)

    def loop(self, node: Node, args: list[Tensor]) -> list[Tensor]:
        """The final state of an iterate node, all of one shape."""
        loop = node.attrs
        assert isinstance(loop, Loop)
        count = len(loop.step)
        shape = torch.broadcast_shapes(*(a.shape for a in args))
        state = [a.expand(shape) for a in args[:count]]
        wanted = loop.step if loop.proceed is None else (loop.proceed, *loop.step)
        params = list(ir.leaves(wanted, "param"))
        for _ in range(loop.limit):
            values = [*state, *args[count:]]
            leaves = {p: values[_index(p)] for p in params}
            found = self.run(wanted, leaves, in_loop=True)
            if loop.proceed is None:
                state = [f.expand(shape) for f in found]
                continue
            going, *after = found
            if not bool(going.any()):
                break
            state = [
                torch.where(going, a, s) for a, s in zip(after, state, strict=True)
            ]
        return state


def _index(node: Node) -> int:
    assert isinstance(node.attrs, int)
    return node.attrs


def _number(value: Number, dtype: DType, device: torch.device) -> Tensor:
    return torch.full((), value, dtype=TO_TORCH[dtype], device=device)


def _cast(value: Tensor, dtype: DType) -> Tensor:
    """The value in the dtype; of a complex one, for a real dtype, the real part."""
    if value.is_complex() and not dtype.is_complex:
        value = value.real
    return value.to(TO_TORCH[dtype])


def _divide(op: str, a: Tensor, b: Tensor, in_loop: bool) -> Tensor:
    """C's quotient or remainder; a round of a loop may divide by zero, and gets 0."""
    zero = b == 0
    if in_loop:
        b = torch.where(zero, 1, b)
    result = (
        torch.div(a, b, rounding_mode="trunc") if op == "idiv" else torch.fmod(a, b)
    )
    return torch.where(zero, 0, result) if in_loop else result
