"""Programs whose outputs are added up to smaller shapes as they are computed.

Comes in: a routine, tensors, and the shape of each output. Goes out: a `Run`, if the
routine is one kernel. What a kernel adds up by itself, it leaves in a buffer with one
place for each of those who add at the same time; the buffer is summed after. In C these
are threads, and sums are float64; in Triton they are tiles, and sums are float32, or
float64 of float64. The order of additions depends on how many there are, and on nothing
else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from atentriton import targets
from atentriton.decisions import asked
from atentriton.launch import Run, tell
from atentriton.layouts import (
    Shape,
    Strides,
    Walk,
    broadcast,
    check_one_device,
    contiguous_strides,
    expanded_strides,
    tiled,
    walk,
)
from atentriton.pieces import Piece, pieces_of
from atentriton.programs import Routine
from atentriton.specs import TO_TORCH
from fuser.dtypes import float32


class Adding(Protocol):
    """A kernel some of whose outputs are sums, and the buffers it leaves them in."""

    @property
    def launch(self) -> targets.Launch:
        """What computes the elements."""
        ...

    def buffer(self, output: int) -> Tensor:
        """A new buffer for the sum with that number among the outputs."""
        ...

    def total(self, output: int, buffer: Tensor) -> Tensor:
        """What is in the buffer, added up, in the shape of the result."""
        ...


class ByThreads:
    """In C: every thread adds to a result of its own."""

    def __init__(self, piece: Piece, space: Walk, shapes: Sequence[Shape]) -> None:
        self.launch = targets.NativeLaunch(piece.summing(space.layout.summed), space)
        self.shapes = shapes

    def buffer(self, output: int) -> Tensor:
        shape = (self.launch.threads(), *self.shapes[output])
        return torch.zeros(shape, dtype=torch.float64)

    def total(self, output: int, buffer: Tensor) -> Tensor:
        return buffer.sum(0)


class ByTiles:
    """In Triton: every tile has a place, or one for each of its rows or columns."""

    def __init__(
        self, piece: Piece, space: Walk, shapes: Sequence[Shape], device: torch.device
    ) -> None:
        tile = space.layout.tile
        assert tile is not None
        wide = piece.summing(space.layout.summed, float32)
        self.launch = targets.TritonLaunch(wide, space)
        cut = self.launch.cut()
        self.device, self.shapes = device, shapes
        self.dtypes = [TO_TORCH[kind] for _, kind in wide.outline.outputs]
        first = len(space.sizes) - 1 - tile.dims
        outside, inside = space.sizes[:first], space.sizes[first:-1]
        # Of each sum: the buffer, the dimensions to add up, the order of those left.
        self.buffers: list[tuple[Shape, list[int], list[int]]] = []
        for (steps, _), down in zip(space.sums, tile.down, strict=True):
            middle, rest = ((cut.heights,), (0,)) if down else (inside, steps[first:-1])
            last = cut.widths if steps[-1] == 0 else space.sizes[-1]
            steps = (*steps[:first], *rest, steps[-1])
            gone = [d for d, step in enumerate(steps) if step == 0]
            kept = [step for step in steps if step]
            order = sorted(range(len(kept)), key=lambda d: -kept[d])
            self.buffers.append(((*outside, *middle, last), gone, order))

    def buffer(self, output: int) -> Tensor:
        shape, dtype = self.buffers[output][0], self.dtypes[output]
        return torch.empty(shape, dtype=dtype, device=self.device)

    def total(self, output: int, buffer: Tensor) -> Tensor:
        shape, gone, order = self.buffers[output]
        if all(shape[d] == 1 for d in gone):
            found = buffer.view([n for d, n in enumerate(shape) if d not in gone])
        else:
            found = buffer.sum(gone)
        return found.permute(order).reshape(self.shapes[output])


def summing(
    routine: Routine, tensors: Sequence[Tensor], shapes: Sequence[Shape]
) -> Run | None:
    """What runs the routine and sums its outputs to `shapes` as it goes.

    None where only full results can be had: where that is not one kernel, the outputs
    are complex, or a tile would have nothing to add up.
    """
    space = broadcast([t.shape for t in tensors])
    device = check_one_device(tensors)
    if 0 in space or any(d.is_complex for d in routine.dtypes):
        return None
    pieces = pieces_of(routine)
    if len(pieces.items) != 1 or any(t.device != device for t in tensors):
        return None
    (piece,) = pieces.items
    summed = tuple(tuple(s) != space for s in shapes)
    strides = routine.strides(space, tensors)
    steps = [expanded_strides(space, t.shape, t.stride()) for t in tensors]
    steps = [steps[i] for i in piece.reads]
    for shape, sum_ in zip(shapes, summed, strict=True):
        whole = contiguous_strides(shape) if sum_ else strides
        steps.append(expanded_strides(space, shape, whole))
    adding = _adding(piece, walk(space, steps, summed), shapes, device)
    if adding is None:
        return None
    if asked():
        tell(routine, [adding.launch], tensors, space, shapes)
    return _runner(routine, adding, summed, (space, strides), device)


def _adding(
    piece: Piece, space: Walk, shapes: Sequence[Shape], device: torch.device
) -> Adding | None:
    """The kernel on that device; None where it has none that adds up."""
    target = targets.of_device(device)
    if target is targets.NativeLaunch:
        return ByThreads(piece, space, shapes)
    if target is targets.TritonLaunch and (by_tiles := tiled(space)) is not None:
        return ByTiles(piece, by_tiles, shapes, device)
    return None


def _runner(
    routine: Routine,
    adding: Adding,
    summed: Sequence[bool],
    whole: tuple[Shape, Strides],
    device: torch.device,
) -> Run:
    """Calls that allocate, launch and add up."""
    launch, single = adding.launch, routine.single
    make = [
        partial(adding.buffer, i)
        if sum_
        else partial(torch.empty_strided, *whole, dtype=dtype, device=device)
        for i, (sum_, dtype) in enumerate(zip(summed, routine.dtypes, strict=True))
    ]

    def run(tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Any:
        outs = [one() for one in make]
        launch((*tensors, *outs), numbers)
        for i, (sum_, dtype) in enumerate(zip(summed, routine.dtypes, strict=True)):
            if sum_:
                outs[i] = adding.total(i, outs[i]).to(dtype)
        return outs[0] if single else tuple(outs)

    return run
