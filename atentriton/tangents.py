"""Forward mode: values and tangents by one kernel.

Comes in: a routine and tensors that have tangents, on a direct call or at the level of
torch.func.jvp. Goes out: its outputs together with their tangents, where no other
derivative is asked for there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _is_fwd_grad_enabled, _len_torch_dispatch_stack
from torch.autograd import forward_ad

from atentriton import gate
from atentriton.levels import batched_at, jvp_is_next
from atentriton.programs import Routine

Tangents = Sequence[Tensor | None]
Run = Callable[[Routine, Sequence[Tensor], Sequence[Any]], Sequence[Tensor]]


def alone(routine: Routine, tensors: Sequence[Tensor]) -> Tangents | None:
    """The tangents of the tensors, where theirs are all derivatives that are asked for.

    None where there is none, or where more is recorded of the call, or of them.
    """
    tangents = _tangents(routine, tensors)
    if tangents is None:
        return None
    there = [t for t in tangents if t is not None]
    if torch.is_grad_enabled() and any(x.requires_grad for x in (*tensors, *there)):
        return None
    if any(not gate.plain(t) or t.is_conj() or t.is_neg() for t in there):
        return None
    return tangents


def at_level(routine: Routine, tensors: Sequence[Tensor]) -> Tangents | None:
    """The tangents at the level of torch.func.jvp that the dispatcher has come to.

    What levels further out ask for they get from the joint program, as from any other.
    None where there is none, or where values would be computed for each tangent of a
    batch, as in jacfwd. While a graph is recorded the two are left apart, so that
    torch.func.linearize can evaluate what does not depend on tangents once.
    """
    if not jvp_is_next() or _len_torch_dispatch_stack():
        return None
    tangents = _tangents(routine, tensors)
    if tangents is None:
        return None
    batches = {level for x in tensors for level in batched_at(x)}
    if any(not batches.issuperset(batched_at(t)) for t in tangents if t is not None):
        return None
    return tangents


def _tangents(routine: Routine, tensors: Sequence[Tensor]) -> Tangents | None:
    """The tangents of the tensors, None where there is none that a kernel could take
    beside what it moves."""
    if forward_ad._current_level < 0 or not _is_fwd_grad_enabled():
        return None
    tangents = [forward_ad.unpack_dual(t).tangent for t in tensors]
    if not any(moved(routine, tangents)):
        return None
    for x, t in zip(tensors, tangents, strict=True):
        if t is not None and (t.dtype != x.dtype or t.stride() != x.stride()):
            return None
    return tangents


def jointly(
    routine: Routine,
    tensors: Sequence[Tensor],
    tangents: Tangents,
    numbers: Sequence[Any],
    run: Run,
) -> tuple[Sequence[Tensor], Tangents]:
    """The outputs of a call and their tangents, None where zero, by one run."""
    derivation = routine.joint(moved(routine, tangents))
    values = by_source(tangent=tangents, input=tensors)
    assert derivation.routine is not None
    given: list[Any] = [values[s] for s in derivation.sources]
    chosen = [numbers[i] for i in derivation.numbers]
    computed = run(derivation.routine, given, chosen)
    found = derivation.picked(computed, values)
    own = len(routine.dtypes)
    return computed[:own], found[own:]


def moved(routine: Routine, tangents: Tangents) -> tuple[bool, ...]:
    """Which inputs are moved, of those that can be."""
    pairs = zip(tangents, routine.able, strict=True)
    return tuple(t is not None and able for t, able in pairs)


def by_source(**tensors: Tangents) -> dict[Any, Tensor | None]:
    """The tensors by their source."""
    return {(kind, i): t for kind, ts in tensors.items() for i, t in enumerate(ts)}
