"""How derivatives of a program are had: what is saved, what is run, what comes out.

Comes in: the compiler's derivations, by sources. Goes out: `Saving`, what a call keeps,
and `Recipe`, the same with positions in the tensors that a backward pass has at hand,
so that it only picks and runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from atentriton import outlines
from atentriton.outlines import Outline, outline_of
from fuser.program import Program

if TYPE_CHECKING:
    from atentriton.compiling import Reduced
    from atentriton.programs import Routine
    from fuser.pipeline import Source

Mask = tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Derivation:
    """How to get the derivatives of a routine.

    `results` has an item for each derivative asked for: the number of an output of
    `routine`, the source that it is equal to, or None for a zero. `sources` are the
    tensors that `routine` takes, relative to the routine that was derived, and
    `numbers` picks its numbers from that one's. `missing` has the message for each
    input, by its number, whose derivative is asked for and is not implemented.
    """

    routine: Routine | None
    sources: tuple[Source, ...]
    numbers: tuple[int, ...]
    results: tuple[int | Source | None, ...]
    missing: tuple[tuple[int, str], ...] = ()

    @property
    def reads(self) -> tuple[Source, ...]:
        """The inputs and outputs whose values are needed: what has to be saved."""
        used = [*self.sources, *(r for r in self.results if isinstance(r, tuple))]
        return tuple(dict.fromkeys(s for s in used if s[0] in ("input", "output")))

    def picked(
        self, computed: Sequence[Tensor], values: Mapping[Any, Tensor | None]
    ) -> list[Tensor | None]:
        """The results, from the routine's outputs and what is there, by its source."""
        return [
            None if r is None else computed[r] if isinstance(r, int) else values[r]
            for r in self.results
        ]


@dataclass(frozen=True, slots=True)
class Facts:
    """A derivation as it is recorded: of `program`, called `lineage`, its outline."""

    program: Program | Outline | None
    lineage: str
    sources: tuple[Source, ...]
    numbers: tuple[int, ...]
    results: tuple[int | Source | None, ...]
    missing: tuple[tuple[int, str], ...]

    def as_json(self) -> Any:
        outline = self.program
        if isinstance(outline, Program):
            outline = outline_of(outline)
        return {
            "outline": None if outline is None else outline.as_json(),
            "lineage": self.lineage,
            "sources": self.sources,
            "numbers": self.numbers,
            "results": self.results,
            "missing": self.missing,
        }


def facts_of(reduced: Reduced) -> Facts:
    """What there is to record of a derivative."""
    program = reduced.program
    return Facts(
        program,
        "" if program is None else program.lineage,
        reduced.sources,
        reduced.numbers,
        reduced.results,
        reduced.missing,
    )


def facts_from_json(found: Any) -> Facts:
    """What `Facts.as_json` has written."""
    outline = found["outline"]
    return Facts(
        None if outline is None else outlines.from_json(outline),
        str(found["lineage"]),
        tuple((str(kind), int(i)) for kind, i in found["sources"]),
        tuple(map(int, found["numbers"])),
        tuple(_result(r) for r in found["results"]),
        tuple((int(i), str(message)) for i, message in found["missing"]),
    )


def _result(found: Any) -> int | Source | None:
    if isinstance(found, list):
        kind, i = found
        return str(kind), int(i)
    return None if found is None else int(found)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A backward pass over its pool of tensors: all cotangents, then what was saved.

    `routine` runs on the `tensors` of the pool, with those `numbers` of the call.
    `results` are (number of the input, number of an output, place in the pool): its
    gradient is that output, or that tensor, or a zero of the input's dtype where both
    are None. `filled` says that absent cotangents have to be given as zeros.
    """

    routine: Routine | None
    tensors: tuple[int, ...]
    numbers: tuple[int, ...]
    results: tuple[tuple[int, int | None, int | None], ...]
    filled: bool
    dtypes: tuple[torch.dtype, ...]

    def gradients(
        self, shapes: Sequence[torch.Size], pool: Sequence[Any], computed: Sequence[Any]
    ) -> tuple[Tensor | None, ...]:
        """The gradients of inputs of those shapes, after two Nones for what is no
        tensor, given what the routine has computed."""
        results: list[Tensor | None] = [None] * (2 + len(shapes))
        for i, output, place in self.results:
            shape = shapes[i]
            if output is not None:
                gradient = computed[output]
            elif place is not None:
                gradient = pool[place]
            else:
                like = next(t for t in pool if t is not None)
                gradient = like.new_zeros((), dtype=self.dtypes[i]).expand(shape)
            if gradient.shape != shape:
                gradient = gradient.sum_to_size(shape)
            results[i + 2] = gradient
        return tuple(results)


@dataclass(frozen=True, slots=True)
class Saving:
    """What a call keeps for the gradients of the inputs marked in `needed`.

    `reads` are the inputs and outputs that are saved, `derive` gives the derivation for
    the cotangents that are there.
    """

    needed: Mask
    reads: tuple[Source, ...]
    differentiable: Mask
    dtypes: tuple[torch.dtype, ...]
    derive: Callable[[Mask], Derivation]
    recipes: dict[Mask, Recipe] = field(default_factory=dict)

    def recipe(self, defined: Mask) -> Recipe:
        """The backward pass where the cotangents marked in `defined` are there."""
        found = self.recipes.get(defined)
        if found is None:
            found = self.recipes[defined] = self._recipe(defined)
        return found

    def _recipe(self, defined: Mask) -> Recipe:
        derivation = self.derive(defined)
        filled = not set(derivation.reads) <= set(self.reads)
        if filled:  # without some cotangents other tensors would be read
            derivation = self.derive(self.differentiable)
        place = _places(len(defined), self.reads)
        refused = {i for i, _ in derivation.missing}
        wanted = [i for i, n in enumerate(self.needed) if n and i not in refused]
        results = tuple(
            (
                i,
                result if isinstance(result, int) else None,
                place[result] if isinstance(result, tuple) else None,
            )
            for i, result in zip(wanted, derivation.results, strict=True)
        )
        return Recipe(
            derivation.routine,
            tuple(place[s] for s in derivation.sources),
            derivation.numbers,
            results,
            filled,
            self.dtypes,
        )


def _places(outputs: int, reads: Sequence[Source]) -> dict[Source, int]:
    """Where in the pool each source is."""
    places: dict[Source, int] = {("cotangent", i): i for i in range(outputs)}
    places |= {source: outputs + i for i, source in enumerate(reads)}
    return places
