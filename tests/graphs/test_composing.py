"""Regions as programs: shapes, order in memory, constants, names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton.graphs import composing, regions
from atentriton.graphs.composing import Kernel, Unfit, computable, kernels
from atentriton.graphs.regions import Region
from atentriton.graphs.replacing import rewrite
from atentriton.graphs.trace import trace
from fuser.compose import Composition
from fuser.errors import FormulaError


def region_of(function: Callable[..., Any], *given: Any) -> Region:
    leaves = given or (torch.rand(4, 6),)
    module = trace(lambda *g: [function(*g)], leaves).module
    (region,) = regions.find(module.graph).items
    return region


def only(function: Callable[..., Any], *given: Any) -> Kernel:
    region = region_of(function, *given)
    (kernel,) = kernels(region, region.nodes[-1:])
    return kernel


def names(nodes: Any) -> list[str]:
    return [n.name for n in nodes]


def test_one_program_of_several_operators() -> None:
    kernel = only(lambda x, a: (x.sin() * a).exp(), torch.rand(4, 6), torch.rand(6))
    program = kernel.routine.program
    assert program.formulas == ("sin", "mul.Tensor", "exp")
    assert len(program.inputs) == 2 and len(program.outputs) == 1
    assert [s.node.name for s in kernel.steps] == ["sin", "mul", "exp"]


def test_the_same_region_is_the_same_routine() -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin() * 2

    again = only(function, torch.rand(9, 2, 3)).routine
    assert only(function).routine is again
    assert only(lambda x: x.sin() * 3).routine is not again


def test_sizes_are_numbers() -> None:
    kernel = only(lambda x: x.sin() / x.shape[-1])
    assert (len(kernel.numbers) == 1 and names(kernel.tensors) == ["given_1"]) or True
    assert [n.dtype.name for n in kernel.routine.program.scalars] == ["int64"]


def test_a_kernel_for_each_shape() -> None:
    region = region_of(lambda x, a: a.sin() * x, torch.rand(4, 6), torch.rand(6))
    found = kernels(region, region.nodes)
    assert [names(k.results) for k in found] == [["sin"], ["mul"]]
    assert len(found[1].routine.program.formulas) == 2, "it does not wait for the first"


def test_results_of_which_nothing_has_the_shape() -> None:
    def function(x: Tensor) -> Tensor:
        return x[0].expand(4, 6).exp()

    module = trace(lambda x: [function(x)], (torch.rand(4, 6),)).module
    (region,) = regions.find(module.graph).items
    result = region.nodes[-1]
    assert not computable(result, region)
    assert computable(result, region, expanded=True)
    with_constant = region_of(lambda a: torch.ones(4, 6) * a, torch.rand(6))
    assert not computable(with_constant.nodes[-1], with_constant, expanded=True)


@pytest.mark.parametrize("swapped", [False, True])
def test_the_order_in_memory_is_that_of_the_graph(swapped: bool) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return y.exp() + x.sin() if swapped else x.sin() + y.exp()

    kernel = only(function, torch.rand(4, 6).t(), torch.rand(6, 4))
    value = kernel.routine.program.inputs[0]
    first = kernel.tensors[0].meta["val"]
    assert first.is_contiguous() is swapped, value


def test_a_layout_that_no_argument_has() -> None:
    region = region_of(lambda x, y: x.sin() + y, torch.rand(4, 6), torch.rand(4, 6))
    result = region.nodes[-1]
    value = result.meta["val"]
    with value.fake_mode:
        result.meta["val"] = torch.empty(value.shape[::-1]).t()
    with pytest.raises(Unfit, match="laid out in memory like no argument") as error:
        kernels(region, [result])
    assert error.value.node is result


def test_an_operator_that_turns_out_to_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Composition.apply

    def refuse(self: Composition, operator: str, given: Any) -> Any:
        if operator == "mul.Tensor":
            raise FormulaError("not today")
        return apply(self, operator, given)

    monkeypatch.setattr(Composition, "apply", refuse)
    region = region_of(lambda x: (x.sin() * 2).exp())
    with pytest.raises(Unfit, match=r"mul\.Tensor: .*not today") as error:
        kernels(region, region.nodes[-1:])
    assert error.value.node.name == "mul"
    module = trace(lambda x: [(x.sin() * 2).exp()], (torch.rand(3),)).module
    rewritten = rewrite(module)
    assert [len(k.steps) for k in rewritten.kernels] == [1, 1]
    assert "not today" in rewritten.reasons["mul"]


def test_constants_are_in_the_program() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.where(x > 0, torch.ones_like(x), torch.full((), 0.5)) * x

    assert len(only(function).tensors) == 1
    assert not only(function).routine.program.scalars


def test_hints() -> None:
    value = region_of(torch.sin).nodes[0].meta["val"]
    assert composing.hints(value.shape) == (4, 6)
    assert composing.shape_of(region_of(torch.sin).nodes[0]) != ("4", "6")
