"""Calls of a fused function that look like an earlier one, run at once.

Comes in: a call that has been traced, and what became of it. Goes out: an `Attempt`
that repeats it for arguments that look the same, if it is one kernel's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils import _pytree as pytree

from atentriton import autograd, gate
from atentriton.graphs.looks import BOUNDS, autocast_now, is_open
from atentriton.graphs.replacing import Rewritten, Single, evaluate, fitting
from atentriton.graphs.trace import Traced
from atentriton.sites import MISS, PLAIN, Attempt, guards


@dataclass(frozen=True)
class Made:
    """A trace, what became of it, and the structure of the function's results."""

    traced: Traced
    rewritten: Rewritten
    tree: Any


def attempt_of(
    made: Made, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any]
) -> Attempt | None:
    """What repeats a call that looks like this one, where it is one kernel's."""
    given = (*args, *kwargs.values())
    single = made.rewritten.single
    if single is None or made.traced.asked or len(given) != len(leaves):
        return None
    if any(a is not b for a, b in zip(given, leaves, strict=True)):
        return None
    if not all(is_open(v) or type(v) in PLAIN for v in given):
        return None
    tensors = [v for v in given if isinstance(v, Tensor)]
    if not gate.direct(tensors) or any(t.is_conj() or t.is_neg() for t in tensors):
        return None
    return _quick(made, single, given)


def _quick(made: Made, single: Single, given: Sequence[Any]) -> Attempt | None:
    graph = made.rewritten.module.graph
    holders = [n for n in graph.nodes if n.op == "placeholder"]
    opened = [i for i, v in enumerate(given) if is_open(v)]
    places = dict(zip(holders, opened, strict=True))
    values = {n: given[i] for n, i in places.items()}
    taken = [evaluate(n, values) for n in single.tensors]
    run = autograd.runner(single.routine, taken)
    # What depends on sizes alone is fixed here: the guards compare sizes.
    numbers = [
        n if _needs_number(n, places, given) else evaluate(n, values)
        for n in single.numbers
    ]
    at = [i for i, v in enumerate(given) if isinstance(v, Tensor)]
    check = guards([given[i] for i in at])
    settled = {opened[i] for i in made.traced.fixed}
    varying = [
        (i, type(given[i]), *BOUNDS[type(given[i])])
        for i in opened
        if not isinstance(given[i], Tensor) and i not in settled
    ]
    still = settled.union(i for i in range(len(given)) if i not in opened)
    fixed = [(i, given[i], type(given[i])) for i in sorted(still)]
    cast, default = autocast_now(), torch.get_default_dtype()
    sought = [*single.tensors, *(n for n in numbers if isinstance(n, Node))]
    direct = all(n in places for n in sought)
    picks = [places[n] for n in single.tensors if n in places]
    scalars = [(places.get(n), n) for n in numbers]
    shape = _shaper(single, made.tree)

    def attempt(args: Sequence[Any]) -> Any:
        for i, value, kind in fixed:
            if type(args[i]) is not kind or args[i] != value:
                return MISS
        for i, kind, low, high in varying:
            if type(args[i]) is not kind or not low < args[i] < high:
                return MISS
        if torch.get_default_dtype() is not default or autocast_now() != cast:
            return MISS
        if not check(*[args[i] for i in at]):
            return MISS
        if direct:
            tensors = [args[i] for i in picks]
            values = [v if i is None else args[i] for i, v in scalars]
        else:
            now = {n: args[i] for n, i in places.items()}
            tensors = [evaluate(n, now) for n in single.tensors]
            values = fitting([evaluate(n, now) for n in numbers])
        found = run(tensors, values)
        return found if shape is None else shape(found)

    return attempt


def _needs_number(node: Node, places: dict[Node, int], given: Sequence[Any]) -> bool:
    """Whether a number is one that is given, or computed from one."""
    stack = [node]
    while stack:
        current = stack.pop()
        if current in places and not isinstance(given[places[current]], Tensor):
            return True
        stack += current.all_input_nodes
    return False


def _shaper(single: Single, tree: Any) -> Callable[[Any], Any] | None:
    """How the routine's results become those of the function; None: as they are."""
    if single.routine.single:
        if tree == pytree.tree_structure(0):
            return None
        return lambda found: pytree.tree_unflatten([found] * len(single.picks), tree)
    picks = single.picks
    if tree == pytree.tree_structure(picks) and picks == tuple(range(len(picks))):
        return None
    return lambda found: pytree.tree_unflatten([found[i] for i in picks], tree)
