"""One pointwise part of a formula over whole tensors: what it comes to.

Comes in: the part's tree, whose names are its leaves, and the values of these. Goes
out: the part's value, by one program where a leaf is a tensor, and otherwise in
Python's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from atentriton import autograd, compiling, programs, specs
from fuser import syntax
from fuser.errors import FormulaError
from fuser.ir import Static
from fuser.specs import ScalarSpec, Spec, TensorSpec
from fuser.syntax import Expr, unparse

CONJUGATE = frozenset({"conj", "resolve_conj"})


def computed(tree: Expr, leaves: Mapping[str, Any]) -> Any:
    if any(isinstance(v, Tensor) for v in leaves.values()):
        return _run(tree, leaves)
    return _number(tree, leaves)


def _run(tree: Expr, leaves: Mapping[str, Any]) -> Tensor:
    """The part as one program on its leaves."""
    kinds = {name: _spec(value) for name, value in leaves.items()}
    routine = programs.of_formula(unparse(tree), kinds, programs.default_dtype())
    tensors = [v for v in leaves.values() if isinstance(v, Tensor)]
    same = compiling.bare(routine.program.outputs[0])
    if same is not None:
        tensor = leaves[str(same.attrs)]
        if all(tensor.shape == t.shape for t in tensors):
            return tensor
    numbers = [v for n, v in leaves.items() if isinstance(kinds[n], ScalarSpec)]
    return autograd.call(routine, tensors, numbers)[0]


def _spec(value: Any) -> Spec:
    if isinstance(value, Tensor):
        return TensorSpec(specs.dtype_of(value.dtype), value.dim() == 0)
    if isinstance(value, torch.dtype):
        return Static(specs.dtype_of(value))
    if value is None or isinstance(value, str | bool):
        return Static(value)
    if type(value) in (int, float) and value == 1:
        return Static(value)  # nothing has to be multiplied by it
    return ScalarSpec(specs.kind_of(value))


def _number(tree: Expr, leaves: Mapping[str, Any]) -> Any:
    """A part without tensors: numbers, as Python computes with them."""
    match tree:
        case syntax.Paren(inner=inner):
            return _number(inner, leaves)
        case syntax.Literal(value=value):
            return value
        case syntax.Name(id=name):
            return leaves[name]
        case syntax.Unary(op=op, operand=operand):
            return _UNARY[op](_number(operand, leaves))
        case syntax.Binary(op=op, left=left, right=right):
            return _BINARY[op](_number(left, leaves), _number(right, leaves))
        case syntax.Call(function=function, args=(argument,)) if function in CONJUGATE:
            value = _number(argument, leaves)
            return value.conjugate() if isinstance(value, complex) else value
        case _:
            raise FormulaError(
                f"{unparse(tree)} is not computed with numbers", tree.span
            )


def _divided(a: Any, b: Any) -> Any:
    """The quotient as C++ has it: sizes divided by sizes are whole."""
    if isinstance(a, int) and isinstance(b, int):
        return int(a / b)
    return a / b


_UNARY: dict[str, Callable[[Any], Any]] = {
    "-": lambda a: -a,
    "+": lambda a: a,
    "!": lambda a: not a,
    "*": lambda a: a,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divided,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "&&": lambda a, b: a and b,
    "||": lambda a, b: a or b,
}
