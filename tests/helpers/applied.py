"""An operator of torch under derivatives of ours, and what has to hold of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close

Function = Callable[..., Any]


def operator(value: Function, pullback: Function, pushforward: Any = None) -> Function:
    """`value`, computed below autograd, with these derivatives.

    `pullback` takes lists of the gradients of results, of the tensors that came in and
    of the results, and gives the gradients of those tensors; `pushforward` takes
    tangents, tensors and results, and gives the tangents of the results.
    """

    class Operator(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*tensors: Tensor) -> Any:
            found = value(*tensors)
            return found if isinstance(found, Tensor) else tuple(found)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            outputs = (output,) if isinstance(output, Tensor) else output
            whole = [
                o for o in outputs if not (o.is_floating_point() or o.is_complex())
            ]
            ctx.mark_non_differentiable(*whole)
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*inputs, *outputs)
            ctx.save_for_forward(*inputs, *outputs)
            ctx.count = len(inputs)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> Any:
            if all(g is None for g in grads):
                return (None,) * ctx.count
            saved = ctx.saved_tensors
            return pullback(list(grads), saved[: ctx.count], saved[ctx.count :])

        @staticmethod
        def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
            saved = ctx.saved_tensors
            inputs, outputs = saved[: ctx.count], saved[ctx.count :]
            pairs = zip(inputs, tangents, strict=True)
            filled = [torch.zeros_like(p) if t is None else t for p, t in pairs]
            return pushforward(filled, inputs, outputs)

    return Operator.apply


def leaves(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.detach().requires_grad_() for t in tensors)


def agree(ours: Function, theirs: Function, given: Sequence[Tensor]) -> None:
    """Both have the same values, gradients and gradients of gradients."""
    found, expected = ours(*given), theirs(*given)
    assert_close(found, expected)
    seeds = torch.randn_like(expected), [torch.randn_like(g) for g in given]
    by_order = [_derivatives(result, given, seeds) for result in (found, expected)]
    assert_close(*by_order)


def _derivatives(result: Tensor, given: Sequence[Tensor], seeds: Any) -> list[Any]:
    cotangent = seeds[0].clone().requires_grad_()
    first = grad(result, given, cotangent, create_graph=True)
    terms = [(f * s.conj()).sum().real for f, s in zip(first, seeds[1], strict=True)]
    wanted = (cotangent, *given)
    second = grad(sum(terms), wanted, allow_unused=True, materialize_grads=True)
    return [*first, *second]


def proved(function: Function, given: Sequence[Tensor], forward: bool = False) -> None:
    """Differences say the same of the first and the second derivative."""
    assert gradcheck(function, given, check_forward_ad=forward, fast_mode=True)
    assert gradgradcheck(function, given, fast_mode=True)
