"""What formulas ask of tensors without reading an element: sizes, strides, dtypes.

Comes in: the tree of a formula; a tensor, or its `Geometry`, which stays where the
tensor need not be kept. Goes out: which names the formula reads, and of which it asks
no more than that; the answers, `QUESTIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuser import syntax
from fuser.syntax import Expr


@dataclass(frozen=True, slots=True)
class Geometry:
    """What may be asked of a tensor without keeping it alive."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensor: Tensor) -> Geometry:
        strides = tensor.stride() if tensor.layout is torch.strided else ()
        return Geometry(tuple(tensor.shape), tuple(strides), tensor.dtype)

    @property
    def layout(self) -> torch.layout:
        sparse = len(self.strides) < len(self.sizes)
        return torch.sparse_coo if sparse else torch.strided


def geometry_of(value: Any) -> Any:
    """The geometry of a tensor, or of each in a list; anything else as it is."""
    if isinstance(value, list | tuple):
        return [geometry_of(v) for v in value]
    return Geometry.of(value) if isinstance(value, Tensor) else value


def _sizes(geometry: Geometry | None) -> list[int] | None:
    return None if geometry is None else list(geometry.sizes)


def _size(geometry: Any, dim: int | None = None) -> int:
    """The size along `dim`; of a list, the number of its items."""
    return len(geometry) if dim is None else geometry.sizes[dim]


QUESTIONS: dict[str, Callable[..., Any]] = {
    "sizes": _sizes,
    "sym_sizes": _sizes,
    "strides": lambda g: list(g.strides),
    "sym_strides": lambda g: list(g.strides),
    "size": _size,
    "sym_size": _size,
    "dim": lambda g: len(g.sizes),
    "numel": lambda g: math.prod(g.sizes),
    "sym_numel": lambda g: math.prod(g.sizes),
    "scalar_type": lambda g: g.dtype,
    "options": lambda g: g.dtype,
    "dtype": lambda g: g.dtype,
    "is_complex": lambda g: g.dtype.is_complex,
    "layout": lambda g: g.layout,
    "sym_blocksize": lambda g: None,
    "TensorGeometry": lambda g: g,
    "defined": lambda g: g is not None,
    "has_value": lambda g: g is not None,
    "to_args_sizes": lambda gs: [list(g.sizes) for g in gs],
    "to_args_scalartypes": lambda gs: [g.dtype for g in gs],
}
"""What is asked of a tensor's geometry, or a list's, and never of its elements."""


def plain(function: str) -> str:
    """The name without what says that sizes may be symbolic, which changes nothing."""
    return function.removesuffix("_symint")


def reads(expr: Expr) -> tuple[frozenset[str], frozenset[str]]:
    """The names whose elements the formula reads, and those of mere geometry."""
    asked: set[str] = set()
    within: list[Expr] = [expr]
    elements: set[str] = set()
    while within:
        node = within.pop()
        question = question_in(node)
        if question is not None and isinstance(question[1], syntax.Name):
            asked.add(question[1].id)
            within.extend(question[2])
            continue
        if isinstance(node, syntax.Name) and not node.namespace:
            elements.add(node.id)
        within.extend(syntax.children(node))
    return frozenset(elements), frozenset(asked - elements)


def question_in(expr: Expr) -> tuple[str, Expr, Sequence[Expr]] | None:
    """What is asked, of what, with which arguments, if the expression is a question."""
    match expr:
        case syntax.Method(receiver=asked, name=name, args=args):
            pass
        case syntax.Call(function=name, args=(asked, *args)):
            pass
        case _:
            return None
    name = plain(name)
    return (name, syntax.bare(asked), args) if name in QUESTIONS else None
