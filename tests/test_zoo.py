"""The functions of perf/zoo.yaml: through `fuse` and through torch.compile.

Each as one kernel, with PyTorch's values and its derivatives, which finite differences
confirm in both modes and orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.testing import assert_close

from atentriton.dynamo import atentriton as backend
from atentriton.fusing import FusedFunction

ROOT = Path(__file__).resolve().parent.parent
ZOO: list[dict[str, Any]] = yaml.safe_load((ROOT / "perf" / "zoo.yaml").read_text())
Function = Callable[..., Tensor]

every = pytest.mark.parametrize("entry", ZOO, ids=lambda entry: entry["name"])


def _derived() -> Iterator[Any]:
    """All whose derivative is their own; quick are the first of each group."""
    groups: set[str] = set()
    for entry in ZOO:
        if entry.get("derivative", True):
            marks = [pytest.mark.slow] if entry["group"] in groups else []
            groups.add(entry["group"])
            yield pytest.param(entry, id=entry["name"], marks=marks)


derived = pytest.mark.parametrize("entry", list(_derived()))


def function_of(entry: dict[str, Any]) -> Function:
    names = {"torch": torch, "F": F, "math": math, **entry.get("numbers", {})}
    return eval(f"lambda {', '.join(entry['inputs'])}: {entry['expr']}", names)


def arguments_of(entry: dict[str, Any], *shape: int) -> list[Tensor]:
    return [_drawn(given, shape) for given in entry["inputs"].values()]


def _drawn(given: Any, shape: tuple[int, ...]) -> Tensor:
    if "mask" in given:
        return (torch.rand(shape) < given["mask"]).double()
    if isinstance(given, list):
        low, high = given
        return torch.empty(shape).double().uniform_(low, high).requires_grad_()
    if "noise" in given:
        low, high = given["noise"]
        return torch.empty(shape).double().uniform_(low, high)
    low, high = given["complex"]
    parts = torch.empty(2, *shape).double().uniform_(low, high)
    return torch.complex(*parts).requires_grad_()


def _second_order(function: Function, given: list[Tensor]) -> list[Tensor]:
    leaves = [x for x in given if x.requires_grad]
    value = function(*given)
    first = grad(value.abs().sum(), leaves, create_graph=True)
    asked = [g.abs().sum() for g in first if g.requires_grad]
    second = grad(sum(asked), leaves, allow_unused=True) if asked else ()
    return [value, *first, *(g for g in second if g is not None and g.any())]


def _tangent(function: Function, given: list[Tensor]) -> Tensor:
    with forward_ad.dual_level():
        duals = [
            forward_ad.make_dual(x.detach(), x.detach().cos()) if x.requires_grad else x
            for x in given
        ]
        found = forward_ad.unpack_dual(function(*duals)).tangent
    assert found is not None
    return found


@every
def test_fused_as_pytorch_computes_it(entry: dict[str, Any]) -> None:
    function, given = function_of(entry), arguments_of(entry, 3, 5)
    ours = FusedFunction(function)
    assert_close(_second_order(ours, given), _second_order(function, given))
    assert_close(_tangent(ours, given), _tangent(function, given))
    assert len(ours.rewritten(*given).kernels) == 1


def _assert_derivatives(entry: dict[str, Any], function: Function) -> None:
    given = tuple(arguments_of(entry, 3))
    assert gradcheck(function, given, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, given)


@derived
def test_derivatives_of_the_fused(entry: dict[str, Any]) -> None:
    _assert_derivatives(entry, FusedFunction(function_of(entry)))


@pytest.fixture
def compiling() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@every
@pytest.mark.slow
@pytest.mark.usefixtures("compiling")
def test_compiled_as_pytorch_computes_it(entry: dict[str, Any]) -> None:
    function, given = function_of(entry), arguments_of(entry, 3, 5)
    ours = torch.compile(function, backend=backend, fullgraph=True)
    assert_close(_second_order(ours, given), _second_order(function, given))
    assert_close(_tangent(ours, given), _tangent(function, given))


@derived
@pytest.mark.slow
@pytest.mark.usefixtures("compiling")
def test_derivatives_of_the_compiled(entry: dict[str, Any]) -> None:
    _assert_derivatives(
        entry, torch.compile(function_of(entry), backend=backend, fullgraph=True)
    )
