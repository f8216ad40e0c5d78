"""Connectionist temporal classification: the gradient, and its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.testing import assert_close

from atentriton.helpers.ctc import _ctc_loss_backward
from tests.helpers.applied import leaves, operator, proved

TIMES, COUNT, CLASSES = 6, 3, 4
# What repeats needs a blank between.
PADDED = torch.tensor([[1, 2, 2], [3, 0, 0], [1, 1, 0]])
TARGETS = {"padded": PADDED, "joined": torch.tensor([1, 2, 2, 3, 1, 1])}
SIZES = [3, 1, 2]
INPUTS = [6, 4, 5]


def loss(targets: Tensor, inputs: Any, sizes: Any, infinity: bool) -> tuple[Any, Any]:
    """Ours and torch's, of scores that are not normalized."""
    given = targets, inputs, sizes
    base = operator(
        lambda p: torch.ops.aten._ctc_loss(p, *given, 0, infinity),
        lambda g, i, r: _ctc_loss_backward(g[0], i[0], *given, *r, 0, infinity),
    )

    def ours(scores: Tensor) -> Tensor:
        return base(scores.log_softmax(-1))[0]

    def theirs(scores: Tensor) -> Tensor:
        return torch.ops.aten._ctc_loss(scores.log_softmax(-1), *given, 0, infinity)[0]

    return ours, theirs


def scores() -> tuple[Tensor, ...]:
    return leaves(torch.randn(TIMES, COUNT, CLASSES, dtype=torch.float64))


def first(function: Callable[..., Any], given: Tensor, again: bool) -> Tensor:
    cotangent = torch.arange(1.0, COUNT + 1, dtype=given.dtype)
    return grad(function(given), given, cotangent, create_graph=again)[0]


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_gradient(again: bool, kind: str) -> None:
    ours, theirs = loss(TARGETS[kind], INPUTS, SIZES, False)
    (given,) = scores()
    assert_close(first(ours, given, again), first(theirs, given, False))


@pytest.mark.parametrize("kind", TARGETS)
def test_second_derivative(kind: str) -> None:
    proved(loss(TARGETS[kind], INPUTS, SIZES, False)[0], scores())


def test_lengths_in_tensors() -> None:
    lengths = torch.tensor(INPUTS), torch.tensor(SIZES)
    ours, theirs = loss(PADDED, *lengths, False)
    (given,) = scores()
    assert_close(first(ours, given, True), first(theirs, given, False))


@pytest.mark.parametrize("infinity", [False, True], ids=["nan", "zero"])
def test_a_target_that_takes_too_long(infinity: bool) -> None:
    """The first cannot be emitted; the others have both derivatives."""
    ours, theirs = loss(PADDED, [3, 4, 5], SIZES, infinity)
    (given,) = scores()
    found = first(ours, given, True)
    assert_close(found, first(theirs, given, False), equal_nan=True)
    (second,) = grad(found[:, 1:].square().sum(), given)
    assert second[:, 1:].isfinite().all() and (second[:, 1:] != 0).any()


def test_no_labels() -> None:
    ours, theirs = loss(torch.zeros(COUNT, 0, dtype=torch.long), INPUTS, [0] * 3, False)
    (given,) = scores()
    assert_close(first(ours, given, True), first(theirs, given, False))
    proved(ours, (given,))


def test_labels_that_have_no_probability() -> None:
    """As with a probability that is next to nothing; torch's gradient is NaN."""
    ours, theirs = loss(PADDED, INPUTS, SIZES, False)
    (given,) = scores()
    low = torch.zeros_like(given)
    low[0, 0, 2] = low[3, 1, 0] = 1
    none = given.detach().masked_fill(low != 0, -torch.inf).requires_grad_()
    little = given.detach().masked_fill(low != 0, -100.0).requires_grad_()
    expected = first(theirs, little, False)
    assert first(theirs, none, False).isnan().any()
    assert_close(first(ours, none, False), expected)
    found = first(ours, none, True)
    assert_close(found, expected)
    assert grad(found.square().sum(), none)[0].isfinite().all()
