"""Running a program on tensors: outputs, layouts, plans and kernels.

Comes in: a program (or its routine), tensors of the dtypes it was made for, and
numbers. Goes out: its outputs, with PyTorch's shape, strides and device. What a call
needs to know about shapes is worked out once and kept as a plan; no derivative is taken
here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

from atentriton import targets
from atentriton.decisions import Launched, happened, watch
from atentriton.layouts import (
    Shape,
    Strides,
    Walk,
    broadcast,
    check_one_device,
    expanded_strides,
    walk,
)
from atentriton.pieces import Piece, pieces_of
from atentriton.programs import Routine, adopt
from atentriton.settings import chosen
from fuser.program import Program

Run = targets.Run

# Plans kept for a routine; one that meets ever new shapes starts over.
MOST_PLANS = 512


@dataclass(frozen=True)
class Plan:
    """What a call does for given shapes, strides and device.

    `shape` and `strides` are those of every output, `dtypes` one for each; `buffers`
    are the shapes and dtypes of the intermediates. `by_value` are the slots of CPU
    tensors without dimensions that go along to another device.
    """

    device: torch.device
    shape: Shape
    strides: Strides
    dtypes: tuple[torch.dtype, ...]
    buffers: tuple[tuple[Shape, torch.dtype], ...]
    by_value: tuple[int, ...]
    launches: tuple[targets.Launch, ...]

    @cached_property
    def run(self) -> Run:
        """Makes calls by this plan; of a single output, that alone."""
        return runner(self)


def run(
    program: Program | Routine,
    tensors: Sequence[Tensor],
    scalars: Sequence[Any] = (),
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """The outputs of the program, one tensor each, of the inputs' broadcast shape.

    `tensors` have the dtypes of the program's inputs and no conjugate or negative bit;
    `scalars` are numbers in the order of its scalars. With `out`, the results are
    written there (of the broadcast shape, the outputs' dtypes, elements not shared).
    RuntimeError in PyTorch's words for shapes that do not broadcast, mixed devices and
    integer division by zero.
    """
    routine = program if isinstance(program, Routine) else adopt(program)
    plan = plan_for(routine, tensors, out)
    return execute(plan, tensors, scalars, out)


def plan_for(
    routine: Routine, tensors: Sequence[Tensor], out: Sequence[Tensor] | None = None
) -> Plan:
    """The plan for tensors of these dtypes, shapes, strides and devices."""
    found: list[Any] = [chosen.backend]
    for t in tensors:
        found += (t.dtype, t.shape, t.stride(), t.device)
    if out is not None:
        found.append("out")
        found += [t.stride() for t in out]
    key = tuple(found)
    plan = routine.plans.get(key)
    known = plan is not None
    if plan is None:
        if len(routine.plans) >= MOST_PLANS:
            routine.plans.clear()
        plan = routine.plans[key] = make_plan(routine, tensors, out)
    if watch.on or (chosen.log and not known):
        written = [plan.shape] * len(plan.dtypes)
        tell(routine, plan.launches, tensors, plan.shape, written)
    return plan


def tell(
    routine: Routine,
    launches: Sequence[targets.Launch],
    tensors: Sequence[Tensor],
    space: Shape,
    written: Sequence[Shape],
) -> None:
    """Say what is about to run on those tensors, and which shapes it writes."""
    sizes = zip(written, routine.dtypes, strict=True)
    happened(
        Launched(
            routine.lineage,
            len(launches),
            launches[0].target if launches else "no",
            math.prod(space),
            sum(t.numel() * t.element_size() for t in tensors),
            sum(math.prod(shape) * dtype.itemsize for shape, dtype in sizes),
            routine.program.formulas,
        )
    )


def execute(
    plan: Plan,
    tensors: Sequence[Tensor],
    scalars: Sequence[Any],
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """A call whose plan is known."""
    device = plan.device
    if out is None:
        out = [allocator(plan, d)() for d in plan.dtypes]
    slots = [*tensors, *out]
    for shape, dtype in plan.buffers:
        slots.append(torch.empty(shape, dtype=dtype, device=device))
    for slot in plan.by_value:
        slots[slot] = _by_value(slots[slot], device)
    for launch in plan.launches:
        launch(slots, scalars)
    return list(out)


def _by_value(tensor: Tensor, device: torch.device) -> Tensor:
    """A number on the CPU as a tensor elsewhere, without waiting for that device."""
    return torch.full((), tensor.item(), dtype=tensor.dtype, device=device)


def runner(plan: Plan) -> Run:
    """`execute` for one plan, as quick as can be: one output comes without its list."""
    single = len(plan.dtypes) == 1
    if len(plan.launches) != 1 or plan.buffers or plan.by_value:

        def run(tensors: Sequence[Tensor], scalars: Sequence[Any]) -> Any:
            outs = execute(plan, tensors, scalars)
            return outs[0] if single else tuple(outs)

        return run
    (launch,) = plan.launches
    allocate = [allocator(plan, dtype) for dtype in plan.dtypes]

    def run_one(tensors: Sequence[Tensor], scalars: Sequence[Any]) -> Any:
        outs = [make() for make in allocate]
        launch((*tensors, *outs), scalars)
        return outs[0] if single else tuple(outs)

    quick = getattr(launch, "quick", None)
    return run_one if quick is None else quick(allocate, run_one)


def allocator(plan: Plan, dtype: torch.dtype) -> Callable[[], Tensor]:
    """What makes one output of the plan, empty."""
    shape, strides, device = plan.shape, plan.strides, plan.device
    if device.type == "cpu":  # half the time of torch.empty_strided
        return partial(_empty_strided_cpu, shape, strides, dtype)
    return partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)


def make_plan(
    routine: Routine, tensors: Sequence[Tensor], out: Sequence[Tensor] | None
) -> Plan:
    """Everything about a call that its shapes, strides and device decide."""
    _check_dtypes(routine, tensors)
    if not tensors:
        raise ValueError(f"{routine.lineage} has no tensors, and so no shape")
    device = check_one_device(tensors)
    shape = broadcast([t.shape for t in tensors])
    strides = routine.strides(shape, tensors) if out is None else out[0].stride()
    if 0 in shape:
        return Plan(device, shape, strides, routine.dtypes, (), (), ())
    pieces = pieces_of(routine)
    count = len(tensors) + len(routine.dtypes)
    sizes = [tuple(t.shape) for t in tensors]
    steps = [tuple(t.stride()) for t in tensors]
    for i in range(len(routine.dtypes)):
        sizes.append(shape)
        steps.append(strides if out is None else tuple(out[i].stride()))
    buffers: list[tuple[Shape, torch.dtype]] = []
    kernels: list[tuple[Piece, Walk]] = []
    for piece in pieces.items:
        space = shape if piece.final else broadcast([sizes[s] for s in piece.reads])
        for slot in piece.writes:
            if slot >= count:  # intermediates are numbered in the order they are made
                like = torch.empty(space, device="meta")
                sizes.append(space)
                steps.append(tuple(like.stride()))
                buffers.append((space, pieces.buffers[slot - count]))
        moves = walk(
            space, [expanded_strides(space, sizes[s], steps[s]) for s in piece.operands]
        )
        kernels.append((piece, moves))
    by_value = tuple(i for i, t in enumerate(tensors) if t.device != device)
    return Plan(
        device,
        shape,
        strides,
        routine.dtypes,
        tuple(buffers),
        by_value,
        _built(targets.of_device(device), kernels),
    )


def _built(
    target: targets.Target, kernels: Sequence[tuple[Piece, Walk]]
) -> tuple[targets.Launch, ...]:
    """The launches, in order, made side by side: a compiler is a process of its own."""
    if len(kernels) < 2:
        return tuple(target(*kernel) for kernel in kernels)
    with ThreadPoolExecutor(min(len(kernels), os.cpu_count() or 1)) as threads:
        return tuple(threads.map(target, *zip(*kernels, strict=True)))


def _check_dtypes(routine: Routine, tensors: Sequence[Tensor]) -> None:
    """A kernel reads memory as the dtype it was made for: never take another."""
    given = tuple(t.dtype for t in tensors)
    if given != routine.input_dtypes:
        raise ValueError(
            f"{routine.lineage} takes tensors of {routine.input_dtypes}, not {given}"
        )
