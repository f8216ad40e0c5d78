"""THE Function: every differentiable call of a program goes through it, at any order.

Comes in: a `Call`, which is a routine with its numbers, the way its values are
computed, and tensors. Goes out: the routine's outputs, whose reverse and forward
derivatives are again calls of routines, derived by the compiler, made by `call`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from atentriton import gate, launch
from atentriton.derivations import Derivation, Recipe, Saving
from atentriton.layouts import broadcast
from atentriton.levels import applying, at_one_level, forward_mode, refuse, untraced
from atentriton.programs import Routine
from atentriton.sites import MISS, RoutineSites
from atentriton.summing import summing
from atentriton.tangents import alone, by_source, jointly, moved

Compute = Callable[[Sequence[Tensor]], Sequence[Tensor]]


class Call:
    """A routine, and the numbers of one call: what its derivatives need to know.

    `tangents` are those of the outputs, where they were computed with the values.
    """

    __slots__ = ("numbers", "routine", "tangents")

    def __init__(self, routine: Routine, numbers: Sequence[Any]) -> None:
        self.routine = routine
        self.numbers = numbers
        self.tangents: Sequence[Tensor | None] | None = None


class Fused(torch.autograd.Function):
    """A call of a routine; use `apply`, never `Fused.apply`.

    `compute` gives all outputs, in a sequence, from the tensors. It may know of tensors
    and is not kept.
    """

    @staticmethod
    def forward(call: Call, compute: Compute, *tensors: Tensor) -> Any:
        outputs = compute(tensors)
        return outputs[0] if call.routine.single else tuple(outputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        call, _, *tensors = inputs
        routine: Routine = call.routine
        outputs = (output,) if routine.single else output
        ctx.set_materialize_grads(False)
        ctx.call = call
        ctx.shapes = [t.shape for t in tensors]
        saving = ctx.saving = routine.saving(ctx.needs_input_grad[2:])
        _saver(routine, saving)(ctx, tensors, output)
        if forward_mode():  # let go once `jvp` has run, if it runs at all
            ctx.save_for_forward(*tensors, *outputs)

    @staticmethod
    @untraced
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        call_: Call = ctx.call
        given = call_.routine, ctx.saving, ctx.shapes, call_.numbers
        return backward(ctx, cotangents, *given)

    @staticmethod
    @untraced
    def jvp(ctx: Any, _: None, __: None, *tangents: Tensor | None) -> Any:
        call: Call = ctx.call
        routine = call.routine
        saved = ctx.saved_tensors
        inputs, outputs = saved[: len(tangents)], saved[len(tangents) :]
        found, call.tangents = call.tangents, None
        if found is None:
            tangents = tuple(
                t if t is None or t.dtype == dtype else t.to(dtype)
                for t, dtype in zip(tangents, routine.input_dtypes, strict=True)
            )
            derivation = routine.jvp(moved(routine, tangents))
            values = by_source(tangent=tangents, input=inputs, output=outputs)
            found = evaluate(derivation, values, call.numbers)
        results: list[Tensor | None] = []
        for output, tangent, able in zip(
            outputs, found, routine.differentiable, strict=True
        ):
            if not able:
                results.append(None)
            elif tangent is None:
                results.append(torch.zeros_like(output))
            elif tangent.shape != output.shape:
                results.append(tangent.expand(output.shape))
            else:
                results.append(tangent)
        return results[0] if routine.single else tuple(results)


_apply = applying(Fused)
"""Without torch.autograd.Function.apply, which binds arguments by inspect.signature."""


class Recorded(torch.autograd.Function):
    """The same for direct calls, whose tensors are known to look alike.

    No transform is active there, and no forward-mode level: without `setup_context` a
    call takes two thirds of the time. What the look of the tensors decides once and for
    all is in a `Record`.
    """

    @staticmethod
    def forward(
        ctx: Any, record: Record, numbers: Sequence[Any], *tensors: Tensor
    ) -> Any:
        output = record.run(tensors, numbers)
        ctx.set_materialize_grads(False)
        ctx.record = record
        ctx.numbers = numbers
        record.save(ctx, tensors, output)
        return output

    @staticmethod
    @untraced
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        record: Record = ctx.record
        for cotangent in cotangents:
            if cotangent is None:
                given = record.routine, record.saving, record.shapes, ctx.numbers
                return backward(ctx, cotangents, *given)
        return record.whole(cotangents + ctx.saved_tensors, ctx.numbers)


class Record:
    """A routine on tensors that look alike: what a call runs, saves and derives."""

    __slots__ = ("_whole", "routine", "run", "save", "saving", "shapes")

    def __init__(
        self, routine: Routine, run: launch.Run, tensors: Sequence[Tensor]
    ) -> None:
        self.routine = routine
        self.run = run
        self.shapes = tuple(t.shape for t in tensors)
        self.saving = routine.saving(tuple(t.requires_grad for t in tensors))
        self.save = _saver(routine, self.saving)
        self._whole: Callable[[Any, Any], tuple[Tensor | None, ...]] | None = None

    def __call__(self, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Any:
        """The outputs of a call, with their place in the graph of derivatives."""
        return _apply_recorded(self, numbers, *tensors)

    def whole(
        self, pool: Sequence[Any], numbers: Sequence[Any]
    ) -> tuple[Tensor | None, ...]:
        """The backward pass where all cotangents are there, from them and the saved."""
        if self._whole is None:
            recipe = self.saving.recipe((True,) * len(self.routine.dtypes))
            general = partial(gradients, recipe, self.shapes)
            self._whole = (
                _quick(recipe, self.shapes)
                or summing(recipe, self.shapes, general)
                or general
            )
        return self._whole(pool, numbers)


def _quick(
    recipe: Recipe, shapes: Sequence[torch.Size]
) -> Callable[[Any, Any], tuple[Tensor | None, ...]] | None:
    """`gradients` where every gradient is computed, and none has to be reduced."""
    routine = recipe.routine
    if routine is None or recipe.numbers:
        return None
    shape = broadcast(shapes)
    for i, output, _ in recipe.results:
        if output is None or shapes[i] != shape:
            return None
    picks = recipe.tensors
    sites = routine.sites = routine.sites or RoutineSites()
    outputs = [output for _, output, _ in recipe.results]
    if routine.single and len(outputs) == 1:
        ((i, _, _),) = recipe.results
        before: tuple[None, ...] = (None,) * (2 + i)
        after: tuple[None, ...] = (None,) * (len(shapes) - 1 - i)

        def one(pool: Sequence[Any], _: Any) -> tuple[Tensor | None, ...]:
            given = [pool[i] for i in picks]
            found = sites.call(given, ())
            if found is MISS:
                (found,) = call(routine, given, ())
            return (*before, found, *after)

        return one
    everything = [i for i, _, _ in recipe.results] == list(range(len(shapes)))
    if routine.single or not everything or outputs != list(range(len(outputs))):
        return None

    def all_(pool: Sequence[Any], _: Any) -> tuple[Tensor | None, ...]:
        given = [pool[i] for i in picks]
        found = sites.call(given, ())
        if found is MISS:
            found = call(routine, given, ())
        return (None, None, *found)

    return all_


def _saver(routine: Routine, saving: Saving) -> Callable[[Any, Any, Any], None]:
    """What keeps in a context what `saving` reads of the tensors and the output(s)."""
    reads = saving.reads
    passive = [i for i, able in enumerate(routine.differentiable) if not able]
    if not reads and not passive:
        return lambda ctx, tensors, output: None
    inputs = [i for kind, i in reads if kind == "input"]
    if not passive and len(inputs) == len(reads):
        if inputs == list(range(len(routine.input_dtypes))):
            return lambda ctx, tensors, output: ctx.save_for_backward(*tensors)
        return lambda ctx, tensors, output: ctx.save_for_backward(
            *[tensors[i] for i in inputs]
        )

    def save(ctx: Any, tensors: Sequence[Tensor], output: Any) -> None:
        outputs = (output,) if routine.single else output
        ctx.save_for_backward(
            *[(tensors if kind == "input" else outputs)[i] for kind, i in reads]
        )
        if passive:
            ctx.mark_non_differentiable(*[outputs[i] for i in passive])

    return save


_apply_recorded = applying(Recorded)


def backward(
    ctx: Any,
    cotangents: Sequence[Tensor | None],
    routine: Routine,
    saving: Saving,
    shapes: Sequence[torch.Size],
    numbers: Sequence[Any],
) -> tuple[Tensor | None, ...]:
    """The gradients from those cotangents that are there; the others are zero."""
    defined = tuple([c is not None for c in cotangents])
    if not any(defined) or not any(saving.needed):
        return (None,) * len(ctx.needs_input_grad)
    recipe = saving.recipe(defined)
    if recipe.filled:
        like = next(c for c in cotangents if c is not None)
        cotangents = [
            like.new_zeros(like.shape, dtype=d) if c is None else c
            for c, d in zip(cotangents, routine.dtypes, strict=True)
        ]
    pool = (*cotangents, *ctx.saved_tensors)
    return gradients(recipe, shapes, pool, numbers)


def gradients(
    recipe: Recipe,
    shapes: Sequence[torch.Size],
    pool: Sequence[Any],
    numbers: Sequence[Any],
) -> tuple[Tensor | None, ...]:
    """The gradients of all inputs, after two Nones for what is no tensor.

    `pool` has the cotangents, then what was saved; `shapes` are those of the inputs.
    """
    computed: Any = ()
    routine = recipe.routine
    if routine is not None:
        given = [pool[i] for i in recipe.tensors]
        if numbers:
            numbers = [numbers[i] for i in recipe.numbers]
        computed = call(routine, given, numbers)
    return recipe.gradients(shapes, pool, computed)


def evaluate(
    derivation: Derivation, values: dict[Any, Any], numbers: Sequence[Any]
) -> list[Tensor | None]:
    """The derivatives, None where zero; `values` has the tensors by source."""
    computed: Sequence[Tensor] = ()
    if derivation.routine is not None:
        computed = call(
            derivation.routine,
            [values[s] for s in derivation.sources],
            [numbers[i] for i in derivation.numbers],
        )
    return derivation.picked(computed, values)


def call(
    routine: Routine, tensors: Sequence[Tensor], numbers: Sequence[Any]
) -> Sequence[Tensor]:
    """The outputs of a routine, differentiably: directly, or through the dispatcher."""
    found = immediate(routine, tensors, numbers)
    if found is MISS:
        from atentriton import registry  # which needs this module

        return registry.derived(routine.lineage, tensors, numbers)
    return (found,) if routine.single else found


def immediate(
    routine: Routine, tensors: Sequence[Tensor], numbers: Sequence[Any]
) -> Any:
    """The same where nothing asks for the dispatcher, else MISS; one output alone."""
    known = routine.sites
    if known is None:
        known = routine.sites = RoutineSites()
    found = known.call(tensors, numbers)
    if found is not MISS or not gate.direct(tensors):
        return found
    settled = [gate.settled(t) for t in tensors]
    run = runner(routine, settled)
    if all(s is t for s, t in zip(settled, tensors, strict=True)):
        known.add(tensors, run)
    return run(settled, numbers)


def records(routine: Routine, tensors: Sequence[Tensor]) -> bool:
    """Whether a direct call has to leave a trace for a derivative."""
    if not gate.differentiates(tensors):
        return False
    able = [t for t, able in zip(tensors, routine.able, strict=True) if able]
    return any(routine.differentiable) and gate.differentiates(able)


def runner(routine: Routine, tensors: Sequence[Tensor]) -> launch.Run:
    """What makes direct calls of the routine on tensors that look like these."""
    recording = records(routine, tensors)
    if not (recording and (routine.refusals or forward_mode())):
        run = launch.plan_for(routine, tensors).run
        return Record(routine, run, tensors) if recording else run
    single = routine.single

    def recorded(tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Any:
        made = Call(routine, numbers)
        tangents = alone(routine, tensors)

        def compute(given: Sequence[Tensor]) -> Sequence[Tensor]:
            if tangents is None:
                return _launched(routine, given, numbers)
            found, made.tangents = jointly(routine, given, tangents, numbers, _launched)
            return found

        found = apply(made, compute, tensors)
        return found[0] if single else tuple(found)

    return recorded


def _launched(
    routine: Routine, tensors: Sequence[Tensor], numbers: Sequence[Any]
) -> Sequence[Tensor]:
    found = launch.plan_for(routine, tensors).run(tensors, numbers)
    return (found,) if routine.single else found


def apply(call: Call, compute: Compute, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The outputs of the call, with their place in the graph of derivatives."""
    if call.routine.refusals:
        tensors = refuse(call.routine.refusals, tensors)
    found = at_one_level(lambda: _apply(call, compute, *tensors))
    return (found,) if call.routine.single else found
