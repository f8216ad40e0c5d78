"""Graphs evaluated by PyTorch and by mpmath, to derive them there as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mpmath
import torch
from torch import Tensor

from fuser import ir
from fuser.derive import Deriver
from fuser.interpret import interpret
from fuser.ir import Node
from fuser.lower import Lowering
from fuser.optable import PRIMITIVES
from fuser.pipeline import default_compiler
from fuser.program import Output, Program


def deriver() -> Deriver:
    """Derives graphs by the packaged formulas, everything computed anew."""
    compiler = default_compiler()
    return Deriver(compiler.entries, Lowering(compiler.functions, compiler.opaque))


def expanded(roots: Sequence[Node]) -> tuple[Node, ...]:
    """The roots without calls."""
    outputs = tuple(Output(f"out{i}", n, n.dtype) for i, n in enumerate(roots))
    return default_compiler().expand(Program("graph", (), (), outputs)).roots


def interpreted(
    roots: Sequence[Node | None], names: Mapping[str, Tensor]
) -> list[Tensor]:
    """The roots, by the interpreter, for each element; a missing one is zero.

    The tensors have one dimension and are equally long.
    """
    closed = expanded([n for n in roots if n is not None])
    columns = {name: tensor.tolist() for name, tensor in names.items()}
    count = min((len(c) for c in columns.values()), default=1)
    lines = [
        interpret(closed, {name: column[i] for name, column in columns.items()})
        for i in range(count)
    ]
    found = iter(zip(*lines, strict=True))
    return [
        torch.zeros(count, dtype=torch.float64)
        if n is None
        else torch.tensor(next(found), dtype=getattr(torch, n.dtype.name))
        for n in roots
    ]


def in_torch(roots: Sequence[Node], names: Mapping[str, Tensor]) -> list[Tensor]:
    """The roots by PyTorch's operators, with autograd."""

    def visit(node: Node, args: tuple[Tensor, ...]) -> Tensor:
        dtype = getattr(torch, node.dtype.name)
        match node.op:
            case "input" | "scalar":
                return names[str(node.attrs)]
            case "const":
                return torch.tensor(ir.value_of(node), dtype=dtype)
            case "cast":
                return args[0].to(dtype)
            case _:
                return getattr(torch, PRIMITIVES[node.op].torch)(*args)

    values = ir.fold(roots, visit)
    return [values[r] for r in roots]


_MPMATH: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "pow": lambda a, b: a**b,
    "atan2": mpmath.atan2,
    "rsqrt": lambda a: 1 / mpmath.sqrt(a),
    "exp2": lambda a: mpmath.mpf(2) ** a,
    "log2": lambda a: mpmath.log(a, 2),
}


def in_mpmath(root: Node, names: Mapping[str, Any]) -> Any:
    """The root in the precision that mpmath has."""

    def visit(node: Node, args: tuple[Any, ...]) -> Any:
        match node.op:
            case "input":
                return names[str(node.attrs)]
            case "const":
                return mpmath.mpf(ir.value_of(node))
            case _:
                function = _MPMATH.get(node.op) or getattr(mpmath, node.op)
                return function(*args)

    return ir.fold([root], visit)[root]
