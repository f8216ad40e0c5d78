"""Derivatives of bounded loops.

Comes in: an iterate node with tangents of its arguments, or an item with its cotangent.
Goes out: the same loop with the tangents carried along as further state. A loop works
on one element, so the reverse derivative is the forward one for each argument in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fuser import ir
from fuser.build import primitive
from fuser.ir import Loop, Node

if TYPE_CHECKING:
    from fuser.derive import Deriver


def push_forward(
    deriver: Deriver, whole: Node, given: Sequence[Node | None]
) -> dict[int, Node]:
    """The tangents of the loop's items, by index, given those of its arguments."""
    loop = whole.attrs
    assert isinstance(loop, Loop)
    count = len(loop.step)
    state, captured = whole.args[:count], whole.args[count:]
    moving = _moving(deriver, loop, whole.args, given)
    # The new state is the old one, then the moving tangents; what is captured follows.
    # It is renumbered first: its old numbers are the tangents' new ones.
    shift = len(moving)
    params = [
        ir.param(i if i < count else i + shift, a.dtype)
        for i, a in enumerate(whole.args)
    ]
    renumbered = {
        ir.param(i, a.dtype): params[i] for i, a in enumerate(whole.args) if i >= count
    }
    body = loop.with_roots(ir.substitute(loop.roots, renumbered))
    carried = [i for i in range(len(captured)) if given[count + i] is not None]
    tangents = {
        params[i]: ir.param(count + j, params[i].dtype) for j, i in enumerate(moving)
    }
    for j, i in enumerate(carried):
        place = count + shift + len(captured) + j
        tangents[params[count + i]] = ir.param(place, captured[i].dtype)
    derived = deriver.jvp(body.step, tangents)
    steps = [derived[i] or ir.const(0, params[i].dtype) for i in moving]
    starts = [given[i] or ir.const(0, state[i].dtype) for i in moving]
    extra = [t for i in carried if (t := given[count + i]) is not None]
    items = ir.iterate(
        (*state, *starts),
        (*captured, *extra),
        Loop((*body.step, *steps), body.proceed, loop.limit),
    )
    return {i: items[count + j] for j, i in enumerate(moving)}


def pull_back(
    deriver: Deriver, item: Node, cotangent: Node, active: set[Node]
) -> list[tuple[Node, Node]]:
    """(argument, its cotangent) for each active argument of the item's loop."""
    (whole,) = item.args
    index = item.attrs
    assert isinstance(index, int)
    if item.dtype.is_complex:
        raise NotImplementedError("reverse mode through a loop over complex numbers")
    parts: list[tuple[Node, Node]] = []
    for place, arg in enumerate(whole.args):
        if arg not in active or not arg.dtype.is_differentiable:
            continue
        one_hot = [
            ir.const(1, a.dtype) if i == place else None
            for i, a in enumerate(whole.args)
        ]
        slope = push_forward(deriver, whole, one_hot).get(index)
        if slope is not None:
            parts.append((arg, primitive("mul", cotangent, slope)))
    return parts


def _moving(
    deriver: Deriver, loop: Loop, args: Sequence[Node], given: Sequence[Node | None]
) -> list[int]:
    """The state that has a tangent at the start, or gets one from another."""
    count = len(loop.step)
    params = [ir.param(i, a.dtype) for i, a in enumerate(args)]
    hot = {params[i] for i, g in enumerate(given) if g is not None}
    while True:
        before = len(hot)
        for i, root in enumerate(loop.step):
            reached = any(n in hot for n in ir.topological([root]))
            if reached and args[i].dtype.is_differentiable:
                hot.add(params[i])
        if len(hot) == before:
            return [i for i in range(count) if params[i] in hot]
