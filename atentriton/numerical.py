"""Derivatives held against differences, for operators that torch does not have.

Comes in: a function of a list of values, in float64. Goes out: what is wrong with its
gradients, their gradients and its tangents. Less sharp than a comparison with a second
implementation, as differences are right to some six digits only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from atentriton.reports import Kind
from atentriton.trials import Function, differentiable


def mistakes(
    function: Function, values: Sequence[Any], leaves: Sequence[int]
) -> Iterator[tuple[Kind, str | None]]:
    """For each kind of derivative what is wrong with it, None where it is right.

    Nothing where no result has a derivative.
    """
    if not leaves or not any(map(differentiable, function(values))):
        return

    def called(*tensors: Tensor) -> list[Tensor]:
        again = list(values)
        for i, tensor in zip(leaves, tensors, strict=True):
            again[i] = tensor
        return [r for r in function(again) if differentiable(r)]

    inputs = tuple(values[i].detach().requires_grad_() for i in leaves)
    yield "first", _message(lambda: gradcheck(called, inputs))
    yield "second", _message(lambda: gradgradcheck(called, inputs))
    forward = {"check_forward_ad": True, "check_backward_ad": False}
    yield "jvp", _message(lambda: gradcheck(called, inputs, **forward))


def _message(check: Callable[[], object]) -> str | None:
    try:
        check()
    except Exception as error:  # gradcheck's own, or what the operator raises
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return None
