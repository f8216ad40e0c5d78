"""Whole numbers that a graph leaves open, and those that decide what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton.graphs.integers import alike, deciding
from atentriton.graphs.trace import Traced, trace


def traced(function: Callable[..., Any], *leaves: Any, fixed: Any = ()) -> Traced:
    return trace(lambda *given: [function(*given)], leaves, frozenset(fixed))


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda x, n, m: x * n + m, set()),
        (lambda x, n, m: torch.add(x, x, alpha=n + m), set()),
        (lambda x, n, m: x**n * m, {1}),
        (lambda x, n, m: x**-n * m, {1}),
        (lambda x, n, m: (x * m).unsqueeze(n), {1}),
        (lambda x, n, m: x * n if m > 4 else x, {2}),
        (lambda x, n, m: x * torch.ones(m, 1, 1) * n, {2}),
        (lambda x, n, m: x.reshape(-1, n) * torch.arange(m).sum(), {1, 2}),
        (lambda x, n, m: torch.softmax(x * m, -1) * n, set()),
        (lambda x, n, m: torch.softmax(x, n - 1) * m, {1}),
    ],
)
def test_what_a_number_decides(function: Callable[..., Any], found: set[int]) -> None:
    assert deciding(traced(function, torch.rand(3, 4), 2, 5)) == found


def test_what_is_fixed_has_a_place_and_is_not_read() -> None:
    def function(n: int, x: Tensor, m: int, s: float) -> Tensor:
        return x * n * m * s

    x = torch.rand(3)
    found = traced(function, 2, x, 5, 0.5, fixed=(0, 2))
    assert found.fixed == {0, 2} and not found.asked
    for s in (0.5, 3.0):
        assert found.holds([2, x, 5, s])
        assert torch.equal(found.module(2, x, 5, s)[0], x * 2 * 5 * s)
    assert not found.holds([3, x, 5, 0.5]) and not found.holds([2, x, 6, 0.5])


@pytest.mark.parametrize(
    ("function", "same"),
    [
        (lambda x, n: x * n / (n + x.shape[0]), True),
        (lambda x, n: [x * 2, n + 1], True),
        (lambda x, n: x * (2 if isinstance(n, int) else 3), False),
        (lambda x, n: x * n if isinstance(n, int) else x + n, False),
        (lambda x, n: [x * n, 2 if isinstance(n, int) else 3], False),
        (lambda x, n: x.sin() if isinstance(n, int) else x.sin().cos(), False),
        (
            lambda x, n: torch.atan2(*((x, x * n)[:: 1 if type(n) is int else -1])),
            False,
        ),
    ],
)
def test_graphs_that_compute_the_same(function: Callable[..., Any], same: bool) -> None:
    x = torch.rand(3)
    assert alike(traced(function, x, 2), traced(function, x, 2, fixed=(1,))) is same
