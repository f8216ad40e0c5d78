"""The kernels of a routine, and how they are wired up.

Comes in: a routine. Goes out: its `Pieces`, in running order, from the record where one
is there. Then the programs of the pieces are made only if a kernel of theirs has to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from atentriton import outlines, programs
from atentriton.outlines import Outline, outline_of
from atentriton.programs import Routine
from atentriton.records import remembered
from atentriton.specs import TO_TORCH
from fuser import ir
from fuser.dtypes import DType, dtype, float64
from fuser.program import Output, Program


@dataclass(frozen=True, slots=True)
class Piece:
    """A program that is one kernel, and what it works on.

    Slots number the tensors of a call: inputs, then outputs, then intermediates.
    `name` stands for the piece in records; one of a routine of this process alone has
    none.
    """

    outline: Outline
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    numbers: tuple[int, ...]
    final: bool
    name: str | None
    make: Callable[[], Program] = field(compare=False, repr=False)

    @property
    def program(self) -> Program:
        """What the kernel computes."""
        return self.make()

    @property
    def operands(self) -> tuple[int, ...]:
        return (*self.reads, *self.writes)

    def summing(self, summed: Sequence[bool], wide: DType = float64) -> Piece:
        """The same with the marked outputs in `wide` or wider, to be added up."""
        kinds = [
            wide if sum_ and kind != float64 else kind
            for sum_, (_, kind) in zip(summed, self.outline.outputs, strict=True)
        ]
        names = [name for name, _ in self.outline.outputs]
        outputs = tuple(zip(names, kinds, strict=True))

        def make() -> Program:
            program = self.make()
            widened = [
                Output(o.name, ir.cast(o.node, kind), kind) if sum_ else o
                for o, kind, sum_ in zip(program.outputs, kinds, summed, strict=True)
            ]
            return replace(program, outputs=tuple(widened))

        mark = "".join("+" if s else "=" for s in summed) + f" {wide}"
        name = None if self.name is None else f"{self.name} {mark}"
        return replace(
            self, outline=replace(self.outline, outputs=outputs), name=name, make=make
        )


@dataclass(frozen=True, slots=True)
class Pieces:
    """The kernels of a routine in running order, and the dtypes of intermediates."""

    items: tuple[Piece, ...]
    kinds: tuple[DType, ...]

    @property
    def buffers(self) -> tuple[torch.dtype, ...]:
        return tuple(TO_TORCH[kind] for kind in self.kinds)

    def as_json(self) -> Any:
        items = [
            [p.outline.as_json(), p.reads, p.writes, p.numbers, p.final]
            for p in self.items
        ]
        return [items, [kind.name for kind in self.kinds]]


def pieces_of(routine: Routine) -> Pieces:
    """The kernels of the routine, wired up by the names of what they read and write."""
    if routine.steps is None:
        wire = partial(_wire, routine)
        if routine.recorded:
            read = partial(_from_json, routine)
            key = f"pieces {routine.lineage}"
            routine.steps = remembered(key, Pieces.as_json, read, wire)
        else:
            routine.steps = wire()
    return routine.steps


def _from_json(routine: Routine, found: Any) -> Pieces:
    items, kinds = found
    pieces: list[Piece] = []
    for i, (outline, *places, final) in enumerate(items):
        reads, writes, numbers = (tuple(map(int, at)) for at in places)
        make = partial(_made_again, routine, i)
        pieces.append(
            Piece(
                outlines.from_json(outline),
                reads,
                writes,
                numbers,
                bool(final),
                _name(routine, i),
                make,
            )
        )
    return Pieces(tuple(pieces), tuple(map(dtype, kinds)))


def _made_again(routine: Routine, i: int) -> Program:
    return _wire(routine).items[i].program


def _name(routine: Routine, i: int) -> str | None:
    return f"{routine.lineage} #{i}" if routine.recorded else None


def _wire(routine: Routine) -> Pieces:
    outline = routine.outline
    slots = {name: i for i, (name, _) in enumerate(outline.inputs)}
    first = len(slots)
    outputs = {name: first + i for i, (name, _) in enumerate(outline.outputs)}
    numbers = {name: i for i, (name, _) in enumerate(outline.scalars)}
    count = first + len(outputs)
    items: list[Piece] = []
    kinds: list[DType] = []
    for program in programs.compiler().kernels(routine.program):
        piece = outline_of(program)
        writes: list[int] = []
        for name, kind in piece.outputs:
            if name in outputs:
                writes.append(outputs[name])
                continue
            slots[name] = count + len(kinds)
            writes.append(slots[name])
            kinds.append(kind)
        items.append(
            Piece(
                piece,
                tuple(slots[name] for name, _ in piece.inputs),
                tuple(writes),
                tuple(numbers[name] for name, _ in piece.scalars),
                any(name in outputs for name, _ in piece.outputs),
                _name(routine, len(items)),
                partial(_itself, program),
            )
        )
    return Pieces(tuple(items), tuple(kinds))


def _itself(program: Program) -> Program:
    return program
