"""Checkpoints under `use`: computed again as at first, wherever the backward runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, graph
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from atentriton import checkpoints, use
from atentriton.decisions import Decision, watched


@pytest.fixture
def x() -> Tensor:
    return torch.rand(6, dtype=torch.float64) + 0.5


def deep(a: Tensor, b: Tensor) -> Tensor:
    """Products of tensors of one shape: who saves them in another order is found."""
    return ((a * b).tanh() * (b / a) * torch.atan2(a, b)).exp()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("then", [False, True], ids=["then not", "then too"])
@pytest.mark.parametrize("first", [False, True], ids=["first not", "first"])
def test_checkpoints(reentrant: bool, first: bool, then: bool, x: Tensor) -> None:
    a, b = x.clone().requires_grad_(), (x * x + 1).requires_grad_()
    expected = grad(deep(a, b).sum(), (a, b))

    def maybe(on: bool) -> Any:
        return use() if on else use(include=())

    with maybe(first):
        y = checkpoint(deep, a, b, use_reentrant=reentrant)
    with maybe(then), watched() as events:
        y.sum().backward()
    assert_close((a.grad, b.grad), expected)
    again = {e.operator for e in events if isinstance(e, Decision)}
    assert ("exp" in again) == (first and not reentrant)


@pytest.mark.parametrize("then", [False, True], ids=["then not", "then too"])
def test_checkpoints_one_after_the_other(then: bool, x: Tensor) -> None:
    a, b = x.clone().requires_grad_(), (x * x + 1).requires_grad_()

    def chain(call: Callable[..., Tensor]) -> Tensor:
        with use():
            y = call(deep, a, b)
        y = call(deep, y, b)
        with use(include=["mul", "atan2"]):
            return call(deep, a, y)

    expected = grad(chain(lambda f, *args: f(*args)).sum(), (a, b))
    y = chain(lambda f, *args: checkpoint(f, *args, use_reentrant=False))
    with use() if then else nullcontext():
        y.sum().backward()
    assert_close((a.grad, b.grad), expected)


def test_checkpoints_without_any_use(x: Tensor) -> None:
    a, b = x.clone().requires_grad_(), (x * x + 1).requires_grad_()
    expected = grad(deep(a, b).sum(), (a, b))
    y = checkpoint(deep, a, b, use_reentrant=False)
    with use():
        y.sum().backward()
    assert_close((a.grad, b.grad), expected)


def test_the_hook_of_checkpoints_is_what_we_take_it_for() -> None:
    hook = torch.utils.checkpoint._checkpoint_hook
    assert hook.__module__ == checkpoints.__name__
    assert issubclass(hook, graph.saved_tensors_hooks)
    frame = torch.utils.checkpoint._CheckpointFrame(abs, True, None, None)
    hook(frame)
    assert frame.recompute_fn is not abs
