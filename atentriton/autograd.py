"""THE Function: every differentiable call of a program goes through it, at any order.

Comes in: a `Call`, which is a routine with its numbers, the way its values are
computed, and tensors. Goes out: the routine's outputs, whose reverse and forward
derivatives are again calls of routines, derived by the compiler, made by `call`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from atentriton import gate, launch
from atentriton.derivations import Derivation, Recipe
from atentriton.programs import Routine
from atentriton.sites import MISS, RoutineSites

Compute = Callable[[Sequence[Tensor]], Sequence[Tensor]]


class Call:
    """A routine, and the numbers of one call: what its derivatives need to know."""

    __slots__ = ("numbers", "routine")

    def __init__(self, routine: Routine, numbers: Sequence[Any]) -> None:
        self.routine = routine
        self.numbers = numbers


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
        if saving.reads:
            ctx.save_for_backward(
                *[
                    (tensors if kind == "input" else outputs)[i]
                    for kind, i in saving.reads
                ]
            )
        if not all(routine.differentiable):
            passing = zip(outputs, routine.differentiable, strict=True)
            ctx.mark_non_differentiable(*(o for o, able in passing if not able))
        if forward_mode():  # let go once `jvp` has run, if it runs at all
            ctx.save_for_forward(*tensors, *outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        call_: Call = ctx.call
        results: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        defined = tuple([c is not None for c in cotangents])
        if not any(defined) or not any(ctx.saving.needed):
            return tuple(results)
        recipe: Recipe = ctx.saving.recipe(defined)
        like = next(c for c in cotangents if c is not None)
        if recipe.filled:
            dtypes = call_.routine.dtypes
            cotangents = tuple(
                like.new_zeros(like.shape, dtype=d) if c is None else c
                for c, d in zip(cotangents, dtypes, strict=True)
            )
        pool: tuple[Any, ...] = (*cotangents, *ctx.saved_tensors)
        computed: Sequence[Tensor] = ()
        if recipe.routine is not None:
            numbers = call_.numbers
            computed = call(
                recipe.routine,
                [pool[i] for i in recipe.tensors],
                [numbers[i] for i in recipe.numbers],
            )
        for i, output, place in recipe.results:
            shape = ctx.shapes[i]
            if output is not None:
                gradient = computed[output]
            elif place is not None:
                gradient = pool[place]
            else:
                dtype = call_.routine.input_dtypes[i]
                gradient = like.new_zeros(shape, dtype=dtype)
            if gradient.shape != shape:
                gradient = gradient.sum_to_size(shape)
            results[i + 2] = gradient
        return tuple(results)

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, *tangents: Tensor | None) -> Any:
        call: Call = ctx.call
        routine = call.routine
        saved = ctx.saved_tensors
        inputs, outputs = saved[: len(tangents)], saved[len(tangents) :]
        defined = tuple(
            t is not None and able
            for t, able in zip(tangents, routine.able, strict=True)
        )
        derivation = routine.jvp(defined)
        values: dict[Any, Any] = {}
        tangents = tuple(
            t if t is None or t.dtype == dtype else t.to(dtype)
            for t, dtype in zip(tangents, routine.input_dtypes, strict=True)
        )
        for kind, tensors in (
            ("tangent", tangents),
            ("input", inputs),
            ("output", outputs),
        ):
            for i, tensor in enumerate(tensors):
                values[kind, i] = tensor
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


_apply = super(torch.autograd.Function, Fused).apply  # type: ignore[misc]
"""Without torch.autograd.Function.apply, which binds arguments by inspect.signature."""


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
    return [
        None if r is None else computed[r] if isinstance(r, int) else values[r]
        for r in derivation.results
    ]


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
    run = launch.plan_for(routine, tensors).run
    if not records(routine, tensors):
        return run
    single = routine.single
    guarded = bool(routine.refusals)

    def recorded(tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Any:
        def compute(given: Sequence[Tensor]) -> Sequence[Tensor]:
            found = run(given, numbers)
            return (found,) if single else found

        call = Call(routine, numbers)
        if not guarded:
            return _apply(call, compute, *tensors)
        found = apply(call, compute, tensors)
        return found[0] if single else tuple(found)

    return recorded


def apply(call: Call, compute: Compute, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The outputs of the call, with their place in the graph of derivatives."""
    if call.routine.refusals:
        tensors = _refuse(call.routine.refusals, tensors)
    found = at_one_level(lambda: _apply(call, compute, *tensors))
    return (found,) if call.routine.single else found


def at_one_level(apply: Callable[[], Any]) -> Any:
    """What a Function's own `apply` gives, also where a functorch transform is active.

    The dispatcher has by then brought the call to one level of the transforms.
    """
    if not _are_functorch_transforms_active():
        return apply()
    with enable_single_level_autograd_function():
        return apply()


def below_autograd(compute: Callable[[], Any]) -> Any:
    """What `compute` gives when it dispatches below autograd.

    A functorch transform has its other levels further down: there gradients and
    tangents are recorded again, though Function.forward has just turned both off.
    """
    with ExitStack() as stack:
        if _are_functorch_transforms_active():
            stack.enter_context(torch.enable_grad())
            stack.enter_context(forward_ad._set_fwd_grad_enabled(True))
        stack.enter_context(torch._C._AutoDispatchBelowAutograd())
        return compute()


class Refusal(torch.autograd.Function):
    """The identity, without a derivative: the node raises if its gradient is needed.

    Whether it is, only the engine knows; Function.backward of the operator would have
    to raise even where the gradient of another input is all that is asked for.
    """

    @staticmethod
    def forward(message: str, tensor: Tensor) -> Tensor:
        return below_autograd(lambda: torch.ops.aten.alias(tensor))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.message = inputs[0]

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        raise NotImplementedError(ctx.message)

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor) -> Tensor:
        return tangent.view_as(tangent)


_refusal = super(torch.autograd.Function, Refusal).apply  # type: ignore[misc]


def _refuse(
    refusals: Sequence[tuple[int, str]], tensors: Sequence[Tensor]
) -> Sequence[Tensor]:
    tensors = list(tensors)
    for i, message in refusals:
        tensor = tensors[i]
        if tensor.requires_grad and torch.is_grad_enabled():
            tensors[i] = at_one_level(lambda t=tensor, m=message: _refusal(m, t))
    return tensors


def forward_mode() -> bool:
    """Whether tangents may be asked for."""
    return forward_ad._current_level >= 0 or _are_functorch_transforms_active()
