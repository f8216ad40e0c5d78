"""What has to hold of a derivative: beside torch's own, and under every transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.autograd import gradcheck
from torch.testing import assert_close

from tests.helpers.applied import agree, leaves, operator, proved

Function = Callable[..., Any]
DTYPES = (torch.float64, torch.complex128)
BOTH = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def holds(
    value: Function,
    pullback: Function,
    *tensors: Tensor,
    pushforward: Function | None = None,
) -> None:
    """These are derivatives of torch's operator `value`, of which torch has its own.

    `pullback` takes the gradient of the first result, the tensors and the results, and
    gives the gradient of the one tensor, or a tuple of gradients. `pushforward` takes
    the tangents in place of the gradient, and gives the tangent of the first result.
    """
    forward = pushforward is not None
    given = leaves(*tensors)
    ours = _first(
        operator(
            value,
            lambda g, i, r: pullback(g[0], *i, *r),
            lambda t, i, r: _padded(pushforward(*t, *i, *r), len(r)),
        )
    )
    if any(t.numel() == 0 for t in (*tensors, _first(value)(*tensors))):
        same_gradient(value, pullback, *tensors)
    else:
        agree(ours, _first(value), given)
        proved(ours, given, forward=forward)
    if forward:
        tangents = tuple(torch.randn_like(t) for t in tensors)
        found = func.jvp(ours, tensors, tangents)
        assert_close(found, func.jvp(_first(value), tensors, tangents))
    composes(value, pullback, *tensors)


def composes(value: Function, pullback: Function, *tensors: Tensor) -> None:
    """The gradient is differentiable in both modes, and can be batched."""

    def pulled(grad: Tensor, *tensors: Tensor) -> Any:
        return pullback(grad, *tensors, *_listed(value(*tensors)))

    result = _listed(value(*tensors))[0]
    args = (torch.randn_like(result), *tensors)
    if all(a.numel() for a in args):
        assert gradcheck(
            pulled,
            leaves(*args),
            check_forward_ad=True,
            check_batched_grad=True,
            fast_mode=True,
        )
    batches = [torch.stack((a, a.flip(list(range(a.dim()))))) for a in args]
    found = _listed(func.vmap(pulled)(*batches))
    expected = [_listed(pulled(*pair)) for pair in zip(*batches, strict=True)]
    assert_close(found, [torch.stack(e) for e in zip(*expected, strict=True)])


def same_gradient(
    value: Function, pullback: Function, *tensors: Tensor, equal_nan: bool = False
) -> None:
    """The gradient is torch's, where there may be no derivative."""
    given = leaves(*tensors)
    results = _listed(value(*given))
    grad = torch.randn_like(results[0])
    found = pullback(grad, *tensors, *(r.detach() for r in results))
    expected = torch.autograd.grad(
        results[0], given, grad, allow_unused=True, materialize_grads=True
    )
    assert_close(_listed(found), list(expected), equal_nan=equal_nan)


def _first(function: Function) -> Function:
    return lambda *tensors: _listed(function(*tensors))[0]


def _listed(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else list(found)


def _padded(tangent: Tensor, count: int) -> Any:
    return tangent if count == 1 else (tangent, *(None,) * (count - 1))
