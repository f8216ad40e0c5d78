"""In-place operators: `ops.add_(x, y)`.

Comes in: an operator's functional values and the arguments, the first of which is
written to. Goes out: that tensor. Where a derivative is recorded, the result is
computed beside and copied in, so that views, leaf checks and derivatives of any order
are PyTorch's own; elsewhere the kernel writes to the tensor itself. Nothing is written
before everything has been checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from atentriton import gate, launch
from atentriton.layouts import check_fit, overlaps
from atentriton.programs import Routine

TYPE_NAMES: dict[torch.dtype, str] = {
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def run(
    routine: Routine,
    tensors: Sequence[Tensor],
    numbers: Sequence[Any],
    functional: Callable[[Sequence[Tensor]], Tensor],
) -> Tensor:
    """Write the routine's result over the first tensor, and return that.

    `functional` computes the result out of place where the dispatcher has to see it.
    RuntimeError in PyTorch's words for a result that cannot be cast to the tensor's
    dtype or does not have its shape, and for a tensor whose elements share memory.
    """
    target = tensors[0]
    check(routine, tensors)
    plain = gate.direct(tensors)
    if plain and not gate.differentiates(tensors):
        _overwrite(routine, [gate.settled(t) for t in tensors], target, numbers)
        return target
    given = [_kept(routine, tensors), *tensors[1:]]
    return target.copy_(functional(given))


def runner(routine: Routine, tensors: Sequence[Tensor]) -> launch.Run | None:
    """What writes directly for tensors that look like these; None where nothing may.

    The checks are made here, once, but for what the look does not tell: whether another
    of the tensors shares memory with the first.
    """
    target = tensors[0]
    plain = gate.direct(tensors) and not gate.differentiates(tensors)
    if not plain or any(t.is_conj() or t.is_neg() for t in tensors):
        return None
    check(routine, tensors)
    if routine.dtypes[0] != target.dtype or not target.numel():
        return None
    plan = launch.plan_for(routine, tensors, out=[target])
    if plan.buffers or plan.by_value:
        return None
    launches = plan.launches
    bump = torch.autograd.graph.increment_version

    def run(tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Tensor:
        target = tensors[0]
        if len(tensors) > 1:
            place = target.untyped_storage().data_ptr()
            for other in tensors[1:]:
                if other is not target and other.untyped_storage().data_ptr() == place:
                    _overwrite(routine, tensors, target, numbers)
                    return target
        slots = (*tensors, target)
        for step in launches:
            step(slots, numbers)
        bump(target)
        return target

    return run


def check(routine: Routine, tensors: Sequence[Tensor]) -> None:
    """Whether the result may be written over the first tensor at all."""
    target = tensors[0]
    result = routine.dtypes[0]
    if not torch.can_cast(result, target.dtype):
        raise RuntimeError(
            f"result type {TYPE_NAMES[result]} can't be cast to the desired output "
            f"type {TYPE_NAMES[target.dtype]}"
        )
    check_fit(target.shape, [tuple(t.shape) for t in tensors])
    if overlaps(target):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor "
            "refers to a single memory location. Please clone() the tensor before "
            "performing the operation."
        )


def _kept(routine: Routine, tensors: Sequence[Tensor]) -> Tensor:
    """The first tensor, or a copy where a derivative reads what is written over."""
    if not routine.derivable:
        return tensors[0]
    if torch._C._are_functorch_transforms_active():
        needed = routine.able
    else:
        needed = tuple(
            able and t.requires_grad
            for t, able in zip(tensors, routine.able, strict=True)
        )
    if not any(needed):
        return tensors[0]
    reads = routine.vjp(needed, routine.differentiable).reads
    return tensors[0].clone() if ("input", 0) in reads else tensors[0]


def _overwrite(
    routine: Routine, tensors: Sequence[Tensor], target: Tensor, numbers: Sequence[Any]
) -> None:
    """The kernel on the memory of `target`, or beside it where it could meet itself."""
    others = tensors[1:]
    for other in others:
        _refuse_partial_overlap(target, other)
    alone = tensors[0] is target and not any(_meets(target, t) for t in others)
    if alone and routine.dtypes[0] == target.dtype and target.numel():
        launch.run(routine, tensors, numbers, out=[target])
        torch.autograd.graph.increment_version([target])
    else:
        target.copy_(launch.run(routine, tensors, numbers)[0])


def _meets(target: Tensor, other: Tensor) -> bool:
    """Whether the two may share memory without being the same elements in order."""
    if other is target or other.numel() == 0:
        return False
    same = (
        other.data_ptr() == target.data_ptr()
        and other.shape == target.shape
        and other.stride() == target.stride()
    )
    if same:
        return False
    first, last = _extent(target)
    begin, end = _extent(other)
    return begin <= last and first <= end


def _extent(tensor: Tensor) -> tuple[int, int]:
    """The addresses of the first and the last byte."""
    reach = sum(
        (size - 1) * step
        for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )
    begin = tensor.data_ptr()
    return begin, begin + (reach + 1) * tensor.element_size() - 1


def _refuse_partial_overlap(target: Tensor, other: Tensor) -> None:
    """As PyTorch does, where both are dense and so share part of their elements."""
    if not _meets(target, other):
        return
    dense = all(torch.ops.aten.is_non_overlapping_and_dense(t) for t in (target, other))
    if dense:
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the "
            "written-to tensor refer to a single memory location. Please clone() the "
            "tensor before performing the operation."
        )
