"""Derivatives of an operator for weights that are the same in every run.

Comes in: a function of a list of values, the values, and which of them are the leaves.
Goes out: gradients, second derivatives, tangents. The weights are eighths, which every
dtype holds exactly: a wider dtype is given the same problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad, grad

Function = Callable[[Sequence[Any]], Sequence[Tensor]]


def first(
    function: Function, values: Sequence[Any], leaves: Sequence[int]
) -> list[Tensor] | None:
    """The gradients of the leaves; None where nothing has one."""
    inputs, outputs = _record(function, values, leaves)
    if not outputs:
        return None
    weights = _weights(outputs, 0)
    return _filled(grad(outputs, inputs, weights, allow_unused=True), inputs)


def second(
    function: Function, values: Sequence[Any], leaves: Sequence[int]
) -> list[Tensor] | None:
    """The gradients of the gradients, by the leaves and by the cotangents."""
    inputs, outputs = _record(function, values, leaves)
    if not outputs:
        return None
    weights = [w.requires_grad_() for w in _weights(outputs, 0)]
    found = grad(outputs, inputs, weights, create_graph=True, allow_unused=True)
    variables = [*inputs, *weights]
    pairs = [
        (g, w)
        for g, w in zip(found, _weights(inputs, 10), strict=True)
        if g is not None and g.requires_grad
    ]
    if not pairs:
        return [torch.zeros_like(v) for v in variables]
    gradients, again = [g for g, _ in pairs], [w for _, w in pairs]
    return _filled(grad(gradients, variables, again, allow_unused=True), variables)


def tangents(
    function: Function, values: Sequence[Any], leaves: Sequence[int]
) -> list[Tensor] | None:
    """The tangents of the results in forward mode."""
    with forward_ad.dual_level():
        duals = list(values)
        given = _weights([values[i] for i in leaves], 20)
        for i, tangent in zip(leaves, given, strict=True):
            duals[i] = forward_ad.make_dual(values[i].detach(), tangent)
        found: list[Tensor] = []
        for result in function(duals):
            if differentiable(result):
                tangent = forward_ad.unpack_dual(result).tangent
                found.append(torch.zeros_like(result) if tangent is None else tangent)
    return found or None


def tangents_by_backward(
    function: Function, values: Sequence[Any], leaves: Sequence[int]
) -> list[Tensor] | None:
    """The same from reverse mode alone: the backward is linear in its cotangents."""
    inputs, outputs = _record(function, values, leaves)
    if not outputs:
        return None
    weights = [w.requires_grad_() for w in _weights(outputs, 0)]
    found = grad(outputs, inputs, weights, create_graph=True, allow_unused=True)
    pairs = [
        (g, t)
        for g, t in zip(found, _weights(inputs, 20), strict=True)
        if g is not None and g.requires_grad
    ]
    if not pairs:
        return [torch.zeros_like(w) for w in weights]
    gradients, given = [g for g, _ in pairs], [t for _, t in pairs]
    return _filled(grad(gradients, weights, given, allow_unused=True), weights)


def differentiable(tensor: Tensor) -> bool:
    """Whether a tensor of that dtype can have a derivative."""
    return tensor.is_floating_point() or tensor.is_complex()


def _record(
    function: Function, values: Sequence[Any], leaves: Sequence[int]
) -> tuple[list[Tensor], list[Tensor]]:
    """The leaves, and the results that depend on them."""
    again = list(values)
    for i in leaves:
        again[i] = values[i].detach().requires_grad_()
    outputs = [o for o in function(again) if differentiable(o) and o.requires_grad]
    return [again[i] for i in leaves], outputs


def _weights(like: Sequence[Tensor], seed: int) -> list[Tensor]:
    return [_fixed(t, seed + i) for i, t in enumerate(like)]


def _fixed(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (*like.shape, 2) if like.is_complex() else like.shape
    eighths = torch.randint(-16, 17, shape, generator=generator) / 8.0
    if like.is_complex():
        eighths = torch.view_as_complex(eighths.double())
    return eighths.to(like.dtype)


def _filled(found: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor]:
    pairs = zip(found, like, strict=True)
    return [torch.zeros_like(x) if g is None else g for g, x in pairs]
