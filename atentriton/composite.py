"""Operators whose values torch computes, with derivatives by the formulas.

Comes in: entries whose values no pointwise formula gives. Goes out: operators that run
torch's own one and whose derivatives, of any order and in both modes, are the entry's
formulas, evaluated by `rule`: products, sums and the like through torch again,
pointwise parts fused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C import _is_any_autocast_enabled

from atentriton import binding, catalogue, gate, levels, programs
from atentriton.questions import geometry_of
from atentriton.registry import DEFINING, LIBRARY, NAMESPACE, Binder, functional
from atentriton.rule import Rule, fitted

Compute = Callable[[Sequence[Any]], Any]


class Arguments:
    """Arguments of a call one after the other, the items of lists among them.

    `lengths` has the number of a list's items, None for what is no list; it is None
    itself where there are none.
    """

    def __init__(self, values: Sequence[Any] | None = None) -> None:
        self.lengths = values and [len(v) if _has_tensors(v) else None for v in values]

    def flat(self, values: Sequence[Any]) -> Sequence[Any]:
        if self.lengths is None:
            return values
        found: list[Any] = []
        for value, length in zip(values, self.lengths, strict=True):
            found.extend((value,) if length is None else value)
        return found

    def grouped(self, flat: Sequence[Any]) -> Sequence[Any]:
        """An item for each argument, a list where it is one."""
        if self.lengths is None:
            return flat
        items = iter(flat)
        return [
            next(items) if n is None else [next(items) for _ in range(n)]
            for n in self.lengths
        ]


SINGLE = Arguments()
"""No argument is a list of tensors."""


class Applied(torch.autograd.Function):
    """An operator; arguments come one by one, in the order of the signature."""

    @staticmethod
    def forward(
        operator: Composite, compute: Compute, arguments: Arguments, *flat: Any
    ) -> Any:
        found = compute(arguments.grouped(flat))
        return found if isinstance(found, Tensor) else tuple(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        operator, _, arguments, *flat = inputs
        rule: Rule = operator.rule
        outputs = (output,) if isinstance(output, Tensor) else output
        ctx.set_materialize_grads(False)
        inert = [o for o, able in zip(outputs, rule.outputs, strict=True) if not able]
        ctx.mark_non_differentiable(*inert)
        ctx.operator, ctx.arguments = operator, arguments
        values = dict(zip(rule.arguments, arguments.grouped(flat), strict=True))
        needed = arguments.grouped(ctx.needs_input_grad[3:])
        ctx.wanted = tuple(
            name
            for name, asked in zip(rule.arguments, needed, strict=True)
            if name in rule.gradients
            and (any(asked) if isinstance(asked, list) else asked)
        )
        elements, shapes = rule.reads(ctx.wanted)
        results = dict(zip(rule.results, outputs, strict=True))
        named = {**values, **results}
        ctx.kept = Kept({n: named[n] for n in elements if n in named})
        ctx.save_for_backward(*ctx.kept.tensors)
        ctx.known = {n: geometry_of(named[n]) for n in shapes if n in named}
        ctx.shapes = {n: _shape(values[n]) for n in ctx.wanted}
        if levels.forward_mode():
            ctx.every = Kept(named)
            ctx.save_for_forward(*ctx.every.tensors)

    @staticmethod
    @levels.untraced
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Any, ...]:
        rule: Rule = ctx.operator.rule
        names = {**ctx.known, **ctx.kept.restored(ctx.saved_tensors)}
        found = rule.pullback(names, cotangents, ctx.wanted)
        lengths = ctx.arguments.lengths or [None] * len(rule.arguments)
        grouped = [
            _gradient(found.get(name), ctx.shapes.get(name), length)
            for name, length in zip(rule.arguments, lengths, strict=True)
        ]
        return None, None, None, *ctx.arguments.flat(grouped)

    @staticmethod
    @levels.untraced
    def jvp(ctx: Any, _: None, __: None, ___: None, *flat: Tensor | None) -> Any:
        rule: Rule = ctx.operator.rule
        again: Compute = ctx.operator.binder.redispatch
        with levels.further_out(ctx.saved_tensors) as (tensors, transformed):
            named = ctx.every.restored(tensors)
            outputs = [named.pop(name) for name in rule.results]
            if transformed:  # an output does not know its tangents further out
                outputs = _listed(again([named[n] for n in rule.arguments]))
            tangents = rule.tangents(named, ctx.arguments.grouped(flat))
            found = rule.pushforward(named, tangents, outputs, again)
        return found[0] if len(found) == 1 else tuple(found)


class Kept:
    """Values by name, with their tensors apart, to be saved."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.tensors: list[Tensor] = []
        self.values = {name: self._without(value) for name, value in values.items()}

    def _without(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return _Place(len(self.tensors) - 1)
        if isinstance(value, list | tuple):
            return [self._without(v) for v in value]
        return value

    def restored(self, tensors: Sequence[Tensor]) -> dict[str, Any]:
        """The values, with these as their tensors."""

        def whole(value: Any) -> Any:
            if isinstance(value, _Place):
                return tensors[value.index]
            return [whole(v) for v in value] if isinstance(value, list) else value

        return {name: whole(value) for name, value in self.values.items()}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor lies among those that are saved."""

    index: int


def _listed(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else list(found)


def _has_tensors(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value)


def _shape(value: Any) -> Any:
    return [v.shape for v in value] if isinstance(value, list) else value.shape


def _gradient(value: Any, shape: Any, length: int | None) -> Any:
    """The gradient in the shape of its argument; a list for a list of `length`."""
    if length is not None:
        values = [None] * length if value is None else value
        shapes = [None] * length if shape is None else shape
        return [_gradient(v, s, None) for v, s in zip(values, shapes, strict=True)]
    return None if value is None or shape is None else fitted(value, shape)


apply = levels.applying(Applied)


class Composite:
    """An operator of the registry; one in place is registered as a functional one."""

    def __init__(self, name: str) -> None:
        entry = programs.compiler().entries[name]
        self.name = name
        self.signature = functional(entry.signature)
        self.rule = Rule(entry)
        self.torch = catalogue.aten(name)
        if entry.inplace:
            self.torch = _on_a_copy(self.torch)
        self.binder = Binder(self.signature)
        self.listed = any(a.is_tensor and a.is_list for a in self.signature.arguments)
        LIBRARY.define(str(self.signature))
        own = self.signature.name
        for key in ("CPU", "CUDA", "SparseCPU", "SparseCUDA"):
            LIBRARY.impl(own, self.torch, key)
        LIBRARY.impl(own, self.autograd, "Autograd")
        for key in ("FuncTorchBatched", "Batched", "AutocastCPU", "AutocastCUDA"):
            LIBRARY.impl(own, self.by_torch, key)
        for key in ("Conjugate", "Negative"):  # torch's own operators know them
            LIBRARY.impl(own, torch.library.fallthrough_kernel, key)
        qualified = f"{NAMESPACE}::{own}"
        torch.library.register_fake(qualified, self.torch, lib=LIBRARY)
        self.overload = self.binder.overload

    def autograd(self, /, *args: Any, **kwargs: Any) -> Any:
        """The kernel that records derivatives, and goes on below."""
        values = self.binder.bind(args, kwargs)

        def compute(given: Sequence[Any]) -> Any:
            return levels.below_autograd(lambda: self.binder.redispatch(given))

        arguments = Arguments(values) if self.listed else SINGLE
        flat = arguments.flat(values)
        if not gate.records(v for v in flat if isinstance(v, Tensor)):
            return compute(values)
        return levels.at_one_level(lambda: apply(self, compute, arguments, *flat))

    def by_torch(self, /, *args: Any, **kwargs: Any) -> Any:
        """The kernel for batches and under autocast: torch's rules of how to batch and
        to cast, and so torch's derivative below them."""
        return self.torch(*args, **kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        values = binding.bind(self.signature, args, kwargs)
        arguments = Arguments(values) if self.listed else SINGLE
        flat = arguments.flat(values)
        tensors = [v for v in flat if isinstance(v, Tensor)]
        if not gate.direct(tensors) or _is_any_autocast_enabled():
            return self.binder.redispatch(values)
        if not gate.differentiates(tensors):
            return self.binder.redispatch(values, self.torch)

        def compute(given: Sequence[Any]) -> Any:
            return self.binder.redispatch(given, self.torch)

        return apply(self, compute, arguments, *flat)


def _on_a_copy(operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What an operator in place makes of its first argument, written elsewhere."""

    def compute(target: Tensor, /, *args: Any, **kwargs: Any) -> Tensor:
        return operator(target.clone(), *args, **kwargs)

    return compute


_made: dict[str, Composite] = {}


def make(name: str) -> Composite:
    """The operator of that full name, registered once."""
    with DEFINING:
        if name not in _made:
            _made[name] = Composite(name)
        return _made[name]


@cache
def by_base(base: str) -> Composite | None:
    """The product of matrices that formulas call by that name, if it is one."""
    if base not in programs.compiler().entries:
        return None
    verdict = catalogue.verdict_on(base)
    return make(base) if verdict is not None and verdict.kind == "matrix" else None
