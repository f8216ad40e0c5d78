"""Graphs of functions, and for which other arguments they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from atentriton import use
from atentriton.graphs.trace import Traced, trace


def traced(function: Callable[..., Any], *leaves: Any) -> Traced:
    return trace(lambda *given: [function(*given)], leaves)


def targets(found: Traced) -> list[str]:
    nodes = found.module.graph.nodes
    return [str(n.target) for n in nodes if n.op == "call_function"]


def test_sizes_stay_open() -> None:
    found = traced(lambda x, a: x * a / x.shape[-1], torch.rand(4, 6), torch.rand(6))
    for rows, columns in ((4, 6), (6, 6), (50, 2)):
        x, a = torch.rand(rows, columns), torch.rand(columns)
        assert found.holds([x, a])
        (value,) = found.module(x, a)
        assert torch.equal(value, x * a / columns)
    assert not found.holds([torch.rand(4, 6), torch.rand(5)]), "no broadcast"
    assert not found.holds([torch.rand(4, 1), torch.rand(1)]), "1 is broadcast"
    assert not found.holds([torch.rand(0, 6), torch.rand(6)])
    assert not found.asked


def test_equal_sizes_are_not_taken_for_one() -> None:
    found = traced(lambda x, y: x * y[0], torch.rand(4, 4), torch.rand(4, 4))
    assert found.holds([torch.rand(7, 3), torch.rand(2, 3)])


def test_what_python_asks_of_sizes() -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin() if x.shape[0] > 2 * x.shape[1] else x.cos()

    found = traced(function, torch.rand(9, 3))
    assert found.holds([torch.rand(5, 2)])
    assert not found.holds([torch.rand(4, 2)])


def test_what_python_asks_of_numbers() -> None:
    found = traced(lambda x, s: x * s if s > 1 else x, torch.rand(3), 2.5)
    assert found.asked == {1}
    assert found.holds([torch.rand(3), 1.5])
    assert not found.holds([torch.rand(3), 0.5])


def test_numbers_stay_open() -> None:
    found = traced(lambda x, s: x * s, torch.rand(3), 1.0)
    assert found.holds([torch.rand(5), 0.0]) and not found.asked
    assert found.module(torch.ones(2), 2.5)[0].tolist() == [2.5, 2.5]


def test_strides_decide_where_they_were_asked_for() -> None:
    found = traced(lambda x: x.reshape(-1), torch.rand(4, 6)[:, :3])
    assert found.holds([torch.rand(5, 9)[:, :4]])
    assert not found.holds([torch.rand(3, 4).t()])
    expanded = traced(torch.sin, torch.rand(6).expand(4, 6))
    assert expanded.holds([torch.rand(3).expand(2, 3)])
    assert not expanded.holds([torch.rand(2, 3)])


def test_no_memory_and_no_mode_is_touched() -> None:
    x = torch.rand(3, requires_grad=True)
    seen: list[Any] = []

    def function(given: Tensor) -> Tensor:
        seen.append((given.requires_grad, torch.is_inference_mode_enabled()))
        return given * 2

    with torch.inference_mode(), use():
        found = traced(function, x)
    func.vmap(lambda y: traced(torch.sin, x) and y)(x)
    assert seen == [(True, False)]
    assert targets(found) == ["aten.mul.Tensor"]
    assert x.grad is None and x._version == 0


def test_composite_operators_stay_whole() -> None:
    found = traced(lambda x: torch.softmax(x, -1), torch.rand(3, 4))
    assert targets(found) == ["aten.softmax.int"]


def test_gradients_are_off_where_the_function_has_them_off() -> None:
    def function(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x * 2
        return x * y

    found = traced(function, torch.rand(3, requires_grad=True))
    x = torch.rand(3, requires_grad=True)
    (value,) = found.module(x)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert torch.equal(gradient, 2 * x)


def test_an_argument_may_be_written_to() -> None:
    def function(x: Tensor) -> Tensor:
        x.mul_(2)
        return x.sin()

    found = traced(function, torch.rand(3, requires_grad=True))
    x = torch.rand(3, requires_grad=True) * 1
    before = x.detach().clone()
    assert torch.equal(found.module(x)[0], (before * 2).sin())
    assert torch.equal(x, before * 2)
    with pytest.raises(RuntimeError, match="leaf"):
        found.module(torch.rand(3, requires_grad=True))


def test_elements_cannot_decide() -> None:
    with pytest.raises(GuardOnDataDependentSymNode):
        traced(lambda x: x if x.sum() > 0 else -x, torch.rand(3))
