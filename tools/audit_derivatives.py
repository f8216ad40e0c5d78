"""Derivatives by autograd: of PyTorch's operators, and of ours.

Comes in: a call of an operator, and which argument. Goes out: the gradient or the
tangent, at all points of the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad, grad

from atentriton import catalogue
from fuser.signatures import Signature
from tests.stepwise import stepwise
from tools.audit_points import Call

# All results of this operator are added up; others have one that matters, the first.
ADDED = "_prelu_kernel_backward"


class Operator:
    """PyTorch's operator, or ours, on a value for each argument."""

    def __init__(self, signature: Signature, operator: Any) -> None:
        self.signature = signature
        self.operator = operator

    def __call__(self, values: Sequence[Any]) -> list[Tensor]:
        arguments = self.signature.arguments
        given = list(values)
        if self.signature.inplace:
            given[0] = given[0].clone()
        pairs = list(zip(arguments, given, strict=True))
        args = [v for a, v in pairs if not a.kwarg_only]
        named = {a.name: v for a, v in pairs if a.kwarg_only}
        found = self.operator(*args, **named)
        results = [found] if isinstance(found, Tensor) else list(found)
        return results if self.signature.name == ADDED else results[:1]

    def derivative(self, call: Call, place: int, mode: str) -> Tensor:
        """The gradient of that argument for cotangents of 1, or in forward mode the
        result's tangent for a tangent of 1."""
        values = list(call.values)
        one = torch.ones_like(values[place])
        if mode == "forward":
            with forward_ad.dual_level():
                values[place] = forward_ad.make_dual(values[place], one)
                moved = [forward_ad.unpack_dual(r).tangent for r in self(values)]
                return sum((m for m in moved if m is not None), torch.zeros_like(one))
        leaf = values[place] = values[place].detach().clone().requires_grad_()
        results = [r for r in self(values) if r.requires_grad]
        if not results:
            raise RuntimeError("there is no derivative")
        ones = [torch.ones_like(r) for r in results]
        (found,) = grad(results, leaf, ones, allow_unused=True)
        return torch.zeros_like(leaf) if found is None else found


def theirs(signature: Signature) -> Operator:
    return Operator(signature, catalogue.aten(signature.name))


def ours(signature: Signature) -> Operator:
    return Operator(signature, stepwise(signature.name))
