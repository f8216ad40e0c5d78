"""Backward passes whose gradients are sums over broadcast dimensions.

Comes in: a recipe of gradients, some of a smaller shape than the cotangent. Goes out: a
function that adds them up in the kernel itself. Where the gradients are to be derived
again, or the kernel cannot, the longer way is taken: whole gradients, summed after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from atentriton import gate, sums
from atentriton.derivations import Recipe
from atentriton.layouts import broadcast
from atentriton.sites import MISS, RoutineSites

Gradients = tuple[Tensor | None, ...]
Pass = Callable[[Sequence[Any], Sequence[Any]], Gradients]


def summing(
    recipe: Recipe, shapes: Sequence[torch.Size], otherwise: Pass
) -> Pass | None:
    """The pass for inputs of those shapes; None where nothing has to be summed."""
    routine = recipe.routine
    computed = [(i, o) for i, o, _ in recipe.results if o is not None]
    whole = broadcast(shapes)
    if routine is None or len({o for _, o in computed}) != len(computed):
        return None
    if all(shapes[i] == whole for i, _ in computed):
        return None
    targets: list[Any] = [tuple(whole)] * len(routine.dtypes)
    for i, output in computed:
        targets[output] = tuple(shapes[i])
    sites = RoutineSites()
    picks, places, single = recipe.tensors, recipe.numbers, routine.single

    def pass_(pool: Sequence[Any], numbers: Sequence[Any]) -> Gradients:
        given = [pool[i] for i in picks]
        own = [numbers[i] for i in places]
        found = sites.call(given, own)
        if found is MISS:
            run = None
            if gate.direct(given) and not gate.differentiates(given):
                settled = not any(t.is_conj() or t.is_neg() for t in given)
                run = sums.summing(routine, given, targets) if settled else None
            if run is None:
                return otherwise(pool, numbers)
            sites.add(given, run)
            found = run(given, own)
        return recipe.gradients(shapes, pool, (found,) if single else found)

    return pass_
