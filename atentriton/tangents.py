"""Forward mode on direct calls: values and tangents by one kernel.

Comes in: a routine and tensors that have tangents. Goes out: its outputs together with
their tangents, where no other derivative is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from atentriton import gate, launch
from atentriton.programs import Routine

Tangents = Sequence[Tensor | None]


def alone(routine: Routine, tensors: Sequence[Tensor]) -> Tangents | None:
    """The tangents of the tensors, where theirs are all derivatives that are asked for.

    None where there is none, or where more is recorded of the call, or of them.
    """
    if forward_ad._current_level < 0 or routine.like is not None:
        return None
    tangents = [forward_ad.unpack_dual(t).tangent for t in tensors]
    there = [(x, t) for x, t in zip(tensors, tangents, strict=True) if t is not None]
    if not there or not any(moved(routine, tangents)):
        return None
    if torch.is_grad_enabled() and any(
        x.requires_grad for x in (*tensors, *(t for _, t in there))
    ):
        return None
    for x, t in there:
        if t.dtype != x.dtype or t.stride() != x.stride() or not gate.plain(t):
            return None
        if t.is_conj() or t.is_neg():
            return None
    return tangents


def jointly(
    routine: Routine,
    tensors: Sequence[Tensor],
    tangents: Tangents,
    numbers: Sequence[Any],
) -> tuple[Sequence[Tensor], Tangents]:
    """The outputs of a call and their tangents, None where zero, by one kernel."""
    derivation = routine.joint(moved(routine, tangents))
    values = by_source(tangent=tangents, input=tensors)
    assert derivation.routine is not None
    given: list[Any] = [values[s] for s in derivation.sources]
    chosen = [numbers[i] for i in derivation.numbers]
    computed = launch.plan_for(derivation.routine, given).run(given, chosen)
    if derivation.routine.single:
        computed = (computed,)
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
