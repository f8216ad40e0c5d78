"""Operators evaluated by their formulas alone, one step after the other.

In: the name of an operator. Out: a callable like torch's own, with derivatives of any
order. Programs and their derivatives are those of the compiler; each node of a graph is
one of PyTorch's own operators, and nothing is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from atentriton import operators
from atentriton.reference import evaluate
from atentriton.specs import FROM_TORCH, specs_of, split
from fuser.pipeline import Derived, default_compiler
from fuser.program import Program

COMPILER = default_compiler()
Numbers = dict[str, Any]


def stepwise(name: str) -> ByFormulas:
    """The operator of that full name."""
    inplace = COMPILER.operator(name).signature.inplace
    return ByFormulasInPlace(name) if inplace else ByFormulas(name)


class ByFormulas(operators.Overload):
    """Takes every argument in the order of the signature, or by its name."""

    def __init__(self, name: str) -> None:
        signature = COMPILER.operator(name).signature
        operators.Overload.__init__(self, name, signature)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        arguments = self.signature.arguments
        values = [*args, *(kwargs[a.name] for a in arguments[len(args) :])]
        specs = specs_of(self.signature, values)
        default = FROM_TORCH[torch.get_default_dtype()]
        program = COMPILER.program(self.name, specs, default)
        tensors, numbers = split(self.signature, values)
        named = dict(zip((str(n.attrs) for n in program.scalars), numbers, strict=True))
        found = Step.apply(program, named, *tensors)
        return found[0] if len(found) == 1 else found


class ByFormulasInPlace(ByFormulas, operators.InPlace):
    """Writes over its first argument, which must not be a leaf."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return args[0].copy_(super().__call__(args[0].clone(), *args[1:], **kwargs))

    def _lines(self) -> list[str]:
        return []


class Step(torch.autograd.Function):
    """A program on its tensors; its derivatives are programs that run likewise."""

    @staticmethod
    def forward(program: Program, numbers: Numbers, *tensors: Tensor) -> Any:
        return _run(program, numbers, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.program, ctx.numbers, *tensors = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.save_for_forward(*tensors, *output)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*_without_gradient(ctx.program, output))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        program: Program = ctx.program
        wanted = list(ctx.needs_input_grad[2:])
        derived = COMPILER.vjp(program, wanted, [g is not None for g in grads])
        tensors = _arguments(ctx, derived, {"cotangent": grads})
        found = iter(Step.apply(derived.program, ctx.numbers, *tensors))
        whole = ctx.saved_tensors[-1].shape
        inputs = [
            next(found).broadcast_to(whole).sum_to_size(tensor.shape) if want else None
            for want, tensor in zip(wanted, ctx.saved_tensors, strict=False)
        ]
        return None, None, *inputs

    @staticmethod
    def jvp(ctx: Any, program: None, numbers: None, *tangents: Tensor | None) -> Any:
        derived = COMPILER.jvp(ctx.program, [t is not None for t in tangents])
        tensors = _arguments(ctx, derived, {"tangent": tangents})
        found = _run(derived.program, ctx.numbers, tensors)
        outputs = ctx.saved_tensors[len(tangents) :]
        flat = {id(o) for o in _without_gradient(ctx.program, outputs)}
        return tuple(
            None if id(o) in flat else f.broadcast_to(o.shape).clone()
            for f, o in zip(found, outputs, strict=True)
        )


def _run(program: Program, numbers: Numbers, tensors: Sequence[Tensor]) -> Any:
    scalars = [numbers[str(n.attrs)] for n in program.scalars]
    return tuple(evaluate(COMPILER.expand(program), tensors, scalars))


def _arguments(
    ctx: Any, derived: Derived, given: dict[str, Sequence[Tensor | None]]
) -> list[Any]:
    """What the inputs of a derived program stand for."""
    count = len(ctx.program.inputs)
    saved = ctx.saved_tensors
    known = {"input": saved[:count], "output": saved[count:], **given}
    return [known[kind][i] for kind, i in derived.sources]


def _without_gradient(program: Program, outputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs that cannot have a gradient, or have none by the entry's word."""
    entry = COMPILER.entries.get(program.name)
    flags = entry.differentiable_outputs if entry and program.order == 0 else ()
    return [
        output
        for i, output in enumerate(outputs)
        if not (output.is_floating_point() or output.is_complex())
        or (flags and not flags[i])
    ]
