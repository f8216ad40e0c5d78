"""Programs without their graphs: what running one needs to know of it.

Comes in: a program, or what a record says of one. Goes out: an `Outline`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fuser.dtypes import DType, dtype
from fuser.program import Program

Named = tuple[tuple[str, DType], ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The names and dtypes of a program's inputs, numbers and outputs, in order."""

    inputs: Named
    scalars: Named
    outputs: Named

    def as_json(self) -> Any:
        parts = (self.inputs, self.scalars, self.outputs)
        return [[[name, kind.name] for name, kind in part] for part in parts]


def outline_of(program: Program) -> Outline:
    """The outline of a program that is there."""
    return Outline(
        tuple((str(n.attrs), n.dtype) for n in program.inputs),
        tuple((str(n.attrs), n.dtype) for n in program.scalars),
        tuple((o.name, o.dtype) for o in program.outputs),
    )


def from_json(found: Any) -> Outline:
    """What `as_json` has written; ValueError or the like where it is something else."""
    inputs, scalars, outputs = map(_named, found)
    return Outline(inputs, scalars, outputs)


def _named(pairs: Iterable[Any]) -> Named:
    return tuple((str(name), dtype(kind)) for name, kind in pairs)
