"""What a compiler is told of an argument: its kind, never its size or its value.

Comes in: nothing. Goes out: the specs that key every specialisation. Two calls whose
arguments have equal specs share their programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from fuser import ir
from fuser.dtypes import DType, Kind
from fuser.ir import Node, Static
from fuser.signatures import Argument
from fuser.values import NUMBER_DTYPES, Number, Tensor, Tuple, Value, number


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor: its dtype, and whether it has no dimensions."""

    dtype: DType
    zero_dim: bool = False

    def __str__(self) -> str:
        return f"{self.dtype} 0d" if self.zero_dim else self.dtype.name


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A number given at run time, of that Python type."""

    kind: Kind

    def __str__(self) -> str:
        return f"<{self.kind}>"


Spec = TensorSpec | ScalarSpec | Static
"""A `Static` argument (None, a string, an int that shapes the code) is its own spec."""


def text_of(spec: Spec) -> str:
    """The spec as it is written in a lineage."""
    return repr(spec.value) if isinstance(spec, Static) else str(spec)


def value_of(argument: Argument, spec: Spec) -> Value:
    """What the argument's name stands for in the operator's formula."""
    name = argument.name
    if isinstance(spec, TensorSpec):
        stored = ir.input_(name, spec.dtype)
        return Tensor(ir.cast(stored, spec.dtype.opmath), spec.dtype, spec.zero_dim)
    if isinstance(spec, ScalarSpec):
        return Number(ir.scalar(name, NUMBER_DTYPES[spec.kind]))
    return _static(spec.value)


def _static(value: object) -> Value:
    if isinstance(value, bool | int | float | complex):
        return number(value)
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        return Tuple(tuple(_static(item) for item in items))
    assert value is None or isinstance(value, str | DType)
    return Static(value)


def tensors(arguments: Sequence[Argument], specs: Sequence[Spec]) -> tuple[Node, ...]:
    """The input nodes of the tensor arguments."""
    return tuple(
        ir.input_(a.name, s.dtype)
        for a, s in zip(arguments, specs, strict=True)
        if isinstance(s, TensorSpec)
    )


def scalars(arguments: Sequence[Argument], specs: Sequence[Spec]) -> tuple[Node, ...]:
    """The scalar nodes of the numbers given at run time."""
    return tuple(
        ir.scalar(a.name, NUMBER_DTYPES[s.kind])
        for a, s in zip(arguments, specs, strict=True)
        if isinstance(s, ScalarSpec)
    )
