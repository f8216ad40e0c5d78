"""Running a program as a C kernel on tensors, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from atentriton.layouts import walk
from atentriton.native import NativeKernel, load
from atentriton.specs import TO_TORCH
from fuser.program import Program
from fuser.schedule import schedule


def run(
    program: Program,
    tensors: Sequence[Tensor],
    numbers: Sequence[bool | int | float] = (),
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """The program's outputs: new and contiguous, or `out`, of any strides.

    `tensors` broadcast together. Complex numbers are given as two. ZeroDivisionError
    where the kernel reports one.
    """
    shape = torch.broadcast_shapes(*(t.shape for t in (*tensors, *(out or ()))))
    if out is None:
        out = [torch.empty(shape, dtype=TO_TORCH[o.dtype]) for o in program.outputs]
    operands = [t.expand(shape) for t in (*tensors, *out)]
    space = walk(tuple(shape), [t.stride() for t in operands])
    kernel = load(schedule(program, space.layout))
    if call(kernel, operands, numbers, space.sizes, space.strides):
        raise ZeroDivisionError(program.name)
    return list(out)


def call(
    kernel: NativeKernel,
    operands: Sequence[Tensor],
    numbers: Sequence[bool | int | float],
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
) -> int:
    return kernel([t.data_ptr() for t in operands], numbers, sizes, strides)
