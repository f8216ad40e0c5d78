"""Operators on matrices: torch's products, with derivatives by the formulas.

Comes in: entries whose values no pointwise formula gives. Goes out: operators that run
torch's own one and whose derivatives, of any order and in both modes, are the entry's
formulas, evaluated by `evaluate`: products through torch again, pointwise parts fused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C import _is_any_autocast_enabled

from atentriton import binding, catalogue, gate, levels, programs
from atentriton.evaluate import ZERO, Evaluator, Geometry, reads
from atentriton.registry import DEFINING, LIBRARY, NAMESPACE, Binder
from fuser.errors import DerivativeNotImplemented
from fuser.formulas import Entry
from fuser.syntax import Expr, NotImplementedValue


class Rule:
    """An entry's formulas, and what each reads."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.arguments = [a.name for a in entry.signature.arguments]
        self.result = entry.signature.result_names[0]
        self.gradients = {n: f for f in entry.gradients for n in f.names}
        self.forward = next((f for f in entry.forwards if self.result in f.names), None)

    @cache  # noqa: B019 - rules live as long as the process
    def reads(self, wanted: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
        """Names whose elements, and names whose shapes, these gradients need."""
        elements: set[str] = set()
        shapes: set[str] = set()
        for name in wanted:
            formula = self.gradients[name]
            if formula.expr is not None:
                found = reads(formula.expr)
                elements |= found[0]
                shapes |= found[1]
        return frozenset(elements), frozenset(shapes - elements)


class Product(torch.autograd.Function):
    """A matrix operator; arguments come one by one, in the order of the signature."""

    @staticmethod
    def forward(rule: Rule, compute: Callable[[Sequence[Any]], Tensor], *values: Any):
        return compute(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        rule, _, *values = inputs
        ctx.set_materialize_grads(False)
        ctx.rule = rule
        named = dict(zip(rule.arguments, values, strict=True))
        named[rule.result] = output
        needed = zip(rule.arguments, ctx.needs_input_grad[2:], strict=True)
        ctx.wanted = tuple(n for n, n_needed in needed if n_needed)
        elements, shapes = rule.reads(ctx.wanted)
        tensors = {n: v for n, v in named.items() if isinstance(v, Tensor)}
        ctx.saved_names = [n for n in tensors if n in elements]
        ctx.save_for_backward(*[tensors[n] for n in ctx.saved_names])
        ctx.known = {n: v for n, v in named.items() if n not in tensors}
        ctx.known |= {n: Geometry.of(tensors[n]) for n in tensors if n in shapes}
        ctx.shapes = {n: tensors[n].shape for n in ctx.wanted}
        if levels.forward_mode():
            ctx.save_for_forward(*tensors.values())
            ctx.tensor_names = list(tensors)

    @staticmethod
    @levels.untraced
    def backward(ctx: Any, cotangent: Tensor | None) -> tuple[Any, ...]:
        rule: Rule = ctx.rule
        results: dict[str, Tensor] = {}
        if cotangent is not None:
            names = {
                **ctx.known,
                **dict(zip(ctx.saved_names, ctx.saved_tensors, strict=True)),
                "grad": cotangent,
            }
            for name in ctx.wanted:
                formula = rule.gradients[name]
                if isinstance(formula.body, NotImplementedValue):
                    message = formula.body.message
                    raise DerivativeNotImplemented(rule.entry.name, name, message)
                results[name] = _gradient(formula.expr, names, ctx.shapes[name])
        return None, None, *(results.get(n) for n in rule.arguments)

    @staticmethod
    @levels.untraced
    def jvp(ctx: Any, _: None, __: None, *tangents: Tensor | None) -> Tensor:
        rule: Rule = ctx.rule
        if rule.forward is None or rule.forward.expr is None:
            raise NotImplementedError(
                f"Trying to use forward AD with {rule.entry.name} that does not "
                "support it because derivatives.yaml has no forward formula for it."
            )
        tensors = dict(zip(ctx.tensor_names, ctx.saved_tensors, strict=True))
        names: dict[str, Any] = {**ctx.known, **tensors}
        for name, tangent in zip(rule.arguments, tangents, strict=True):
            if name in tensors:
                names[f"{name}_p"] = tensors[name]
                names[f"{name}_t"] = ZERO if tangent is None else tangent
        output = tensors[rule.result]
        found = Evaluator(names).value(rule.forward.expr)
        if found is ZERO:
            return torch.zeros_like(output)
        return found if found.shape == output.shape else found.expand(output.shape)


def _gradient(expr: Expr | None, names: Mapping[str, Any], shape: torch.Size) -> Tensor:
    assert expr is not None
    found = Evaluator(names).value(expr)
    return found if found.shape == shape else found.sum_to_size(shape)


_apply = super(torch.autograd.Function, Product).apply  # type: ignore[misc]


class Matrix:
    """A matrix operator of the registry."""

    def __init__(self, name: str) -> None:
        entry = programs.compiler().entries[name]
        self.name = name
        self.signature = entry.signature
        self.rule = Rule(entry)
        self.torch = catalogue.aten(name)
        self.binder = Binder(self.signature)
        LIBRARY.define(str(self.signature))
        for key in ("CPU", "CUDA"):
            LIBRARY.impl(name, self.torch, key)
        LIBRARY.impl(name, self.autograd, "Autograd")
        for key in ("FuncTorchBatched", "Batched", "AutocastCPU", "AutocastCUDA"):
            LIBRARY.impl(name, self.by_torch, key)
        for key in ("Conjugate", "Negative"):  # torch's products know them
            LIBRARY.impl(name, torch.library.fallthrough_kernel, key)
        qualified = f"{NAMESPACE}::{name}"
        torch.library.register_fake(qualified, self.torch, lib=LIBRARY)
        self.overload = self.binder.overload

    def autograd(self, /, *args: Any, **kwargs: Any) -> Tensor:
        """The kernel that records derivatives, and goes on below."""
        values = self.binder.bind(args, kwargs)

        def compute(given: Sequence[Any]) -> Tensor:
            return levels.below_autograd(lambda: self.binder.redispatch(given))

        if not gate.records(v for v in values if isinstance(v, Tensor)):
            return compute(values)
        return levels.at_one_level(lambda: _apply(self.rule, compute, *values))

    def by_torch(self, /, *args: Any, **kwargs: Any) -> Tensor:
        """The kernel for batches and under autocast: torch's rules of how to batch and
        to cast, and so torch's derivative below them."""
        return self.torch(*args, **kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Tensor:
        values = binding.bind(self.signature, args, kwargs)
        tensors = [v for v in values if isinstance(v, Tensor)]
        if not gate.direct(tensors) or _is_any_autocast_enabled():
            return self.binder.redispatch(values)
        if not gate.differentiates(tensors):
            return self.binder.redispatch(values, self.torch)

        def compute(given: Sequence[Any]) -> Tensor:
            return self.binder.redispatch(given, self.torch)

        return _apply(self.rule, compute, *values)


_made: dict[str, Matrix] = {}


def make(name: str) -> Matrix:
    """The matrix operator of that full name, registered once."""
    with DEFINING:
        if name not in _made:
            _made[name] = Matrix(name)
        return _made[name]


@cache
def by_base(base: str) -> Matrix | None:
    """The matrix operator that formulas call by that name, if it is one."""
    if base not in programs.compiler().entries:
        return None
    verdict = catalogue.verdict_on(base)
    return make(base) if verdict is not None and verdict.kind == "matrix" else None
