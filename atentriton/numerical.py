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


def batched(
    function: Function, values: Sequence[Any], leaves: Sequence[int]
) -> Iterator[tuple[str, str | None]]:
    """gradcheck and gradgradcheck in fast mode, forward mode and batches included.

    What each is called, and what is wrong, None where nothing is.
    """
    chosen = list(leaves)

    def all_of(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        again = list(values)
        for i, tensor in zip(chosen, tensors, strict=True):
            again[i] = tensor
        return function(again)

    def inputs() -> tuple[Tensor, ...]:
        return tuple(values[i].detach().clone().requires_grad_() for i in chosen)

    if not leaves:
        return
    try:
        results = all_of(inputs())
    except Exception as error:
        yield "backward", f"{type(error).__name__}: {error}"
        return
    # Where there is no recording nothing requires a gradient: the places are noted.
    places = [i for i, r in enumerate(results) if differentiable(r) and r.requires_grad]
    if not places:
        return

    def called(*tensors: Tensor) -> tuple[Tensor, ...]:
        found = all_of(tensors)
        return tuple(found[i] for i in places)

    fast: dict[str, Any] = {"fast_mode": True, "nondet_tol": 1e-9}
    backward: dict[str, Any] = {"check_batched_grad": True} | fast
    yield "backward", _message(lambda: gradcheck(called, inputs(), **backward))
    forward = {
        "check_backward_ad": False,
        "check_forward_ad": True,
        "check_batched_grad": False,
        "check_batched_forward_grad": True,
        "check_undefined_grad": False,
    } | fast
    yield "forward", _message(lambda: gradcheck(called, inputs(), **forward))
    yield "second", _message(lambda: gradgradcheck(called, inputs(), **backward))


def _message(check: Callable[[], object]) -> str | None:
    try:
        check()
    except Exception as error:  # gradcheck's own, or what the operator raises
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return None
