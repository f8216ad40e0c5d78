"""Graphs made simpler: constants, conversions, writes, random bits; views moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule
from torch.testing import assert_close

from atentriton.graphs.lifting import lift
from atentriton.graphs.tidying import tidy
from atentriton.graphs.trace import trace


def tidied(function: Callable[..., Any], *given: Any, lifted: bool = False) -> Any:
    """The graph module, checked against the function, and its operators."""
    leaves = given or (torch.rand(4, 6),)
    module = trace(lambda *g: [function(*g)], leaves).module
    tidy(module.graph, module)
    if lifted:
        lift(module.graph)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module = GraphModule(module, module.graph)
    copies = [v.clone() for v in leaves], [v.clone() for v in leaves]
    torch.manual_seed(1)
    (found,) = module(*copies[0])
    torch.manual_seed(1)
    assert_close(found, function(*copies[1]))
    assert_close(*copies)
    calls = (n for n in module.graph.nodes if n.op == "call_function")
    return [str(n.target).removeprefix("aten.").partition(".")[0] for n in calls]


def test_numbers_are_constants() -> None:
    assert tidied(lambda x: x * torch.tensor(2.0)) == ["mul"]


@pytest.mark.parametrize("given", [2.0, [1.0, 2.0]], ids=str)
def test_constants_that_are_written_to_are_made_each_time(given: Any) -> None:
    def function(x: Tensor) -> Tensor:
        total = torch.tensor(given)
        total.add_(1)
        return x[:, :1] * total

    assert "lift_fresh_copy" in tidied(function)


def test_conversions() -> None:
    assert tidied(lambda x: x.to(torch.float32) * 2) == ["mul"]
    assert tidied(lambda x: x.double() * 2) == ["_to_copy", "mul"]
    assert tidied(lambda x: x.to(torch.float32, copy=True) * 2)[0] == "to"
    assert tidied(lambda x: x.type_as(x) * 2) == ["mul"]


def test_views_that_change_nothing() -> None:
    assert tidied(lambda x: x[:] * torch.ops.aten.alias(x)) == ["mul"]


def test_signs_between_booleans() -> None:
    found = tidied(lambda x: ((x > 0) & (x < 1)) | (x > 2))
    assert found == ["gt", "lt", "bitwise_and", "gt", "bitwise_or"]


def test_losses_without_a_reduction() -> None:
    found = tidied(
        lambda x, y: F.mse_loss(x, y, reduction="none"),
        torch.rand(4, 6),
        torch.rand(4, 6),
    )
    assert found == ["mse_loss"]


def test_writes_to_what_the_function_has_made() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        z = y
        y.mul_(x)
        return z.sin_()

    assert tidied(function) == ["mul", "add", "mul", "sin"]


def test_writes_keep_the_dtype() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        return z.add_(y)

    halves = torch.rand(3, dtype=torch.bfloat16), torch.rand(3)
    assert tidied(function, *halves) == ["mul", "add", "_to_copy"]


def test_writes_that_others_see_stay() -> None:
    def through_a_view(x: Tensor) -> Tensor:
        y = x * 2
        row = y[0]
        y.add_(1)
        return y * row

    def to_an_argument(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    def detached(x: Tensor) -> Tensor:
        y = x * 2
        z = y.detach()
        z.add_(1)
        return y * z

    for function in (through_a_view, to_an_argument, detached):
        assert "add_" in tidied(function)


def test_dropout_is_a_product() -> None:
    found = tidied(lambda x: F.dropout(x.sin(), 0.25))
    assert found == ["sin", "detach", "bernoulli", "div", "mul"]
    assert tidied(lambda x: F.dropout(x, 0.25, training=False) * 2) == ["mul"]
    assert tidied(lambda x: F.dropout(x, 0.0) * 2) == ["mul"]
    assert "dropout" in tidied(lambda x: F.dropout(x, 1.0) * 2)


def test_random_bits_need_no_write() -> None:
    found = tidied(lambda x: torch.empty_like(x).bernoulli_(0.5) * x)
    assert "bernoulli" in found and "bernoulli_" not in found


def test_views_go_before_what_they_view() -> None:
    found = tidied(lambda x: (x.sin() * 2).t() * x.t(), lifted=True)
    assert found == ["t", "sin", "mul", "t", "mul"]
    found = tidied(lambda x: x.sin().reshape(-1).exp(), lifted=True)
    assert found == ["reshape", "sin", "exp"]
    found = tidied(lambda x: (x.sin() * 2)[:, 1:].exp(), lifted=True)
    assert found[-3:] == ["sin", "mul", "exp"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (y := x.sin()).t() * y.sum(),  # needed besides
        lambda x: x.sin().t(),  # the result has to be a view
        lambda x: (x * x[0]).t().exp(),  # what is broadcast has another view
        lambda x: x.cumsum(0).t().exp(),
    ],
)
def test_views_that_stay(function: Callable[[Tensor], Tensor]) -> None:
    assert tidied(function, lifted=True)[0] not in ("t", "transpose")
