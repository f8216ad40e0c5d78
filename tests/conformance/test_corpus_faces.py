"""The cases of the corpus again, as functions of torch that are fused or compiled.

What test_corpus.py asks of single operators, and test_corpus_properties.py of layouts
and transforms, is asked here of `fuse` and of torch.compile with this backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, func
from torch.autograd import grad
from torch.testing import assert_close

from atentriton.dynamo import atentriton as backend
from atentriton.fusing import FusedFunction
from tests.conformance import test_corpus
from tests.conformance.test_corpus import CASES, Case

F64 = torch.float64
# Half types stay in float32 between the operators of a kernel: what is compared here
# has not been rounded, as it would have been by itself.
ROUNDED_ONCE = frozenset({"bf16_round_then_compare"})
Function = Callable[..., Tensor]


def _fused(function: Function) -> Function:
    return FusedFunction(function, partial=True)


def _compiled(function: Function) -> Function:
    return torch.compile(function, backend=backend, fullgraph=True)


faces = pytest.mark.parametrize("face", [_fused, _compiled])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _plain(case: Case) -> Function:
    """The expression of the case, with torch's own operators."""
    names = ", ".join(given["name"] for given in case["inputs"])
    return eval(f"lambda {names}: {case['op']}", {"torch": torch, "F": F})


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if "error" not in case
        and not case.get("known_loss")
        and case["id"] not in ROUNDED_ONCE
    ],
    ids=lambda case: case["id"],
)
def test_values_of_fused_expressions(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = _fused(_plain(case))
    monkeypatch.setattr(test_corpus, "_function", lambda _: lambda a: fused(**a))
    test_corpus._assert_right(case)


def _with_gradients(function: Function, *given: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in given]
    value = function(*leaves)
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype).view(value.shape)
    return [value.detach(), *grad((value * weights).sum(), leaves)]


def _draw(*shape: int, dtype: torch.dtype = F64) -> Tensor:
    return 0.1 + 0.8 * torch.rand(*shape, dtype=dtype)


def _same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for found, right in zip(ours, theirs, strict=True):
        for size, ours_, theirs_ in zip(
            right.shape, found.stride(), right.stride(), strict=True
        ):
            assert size < 2 or ours_ == theirs_
        assert_close(found, right)


def _snake(x: Tensor) -> Tensor:
    return x + torch.sin(x * 2) ** 2 / 2


@faces
def test_a_stride_of_0(face: Callable[[Function], Function]) -> None:
    """flagos-ai/FlagGems#2307"""

    def function(x: Tensor, r: Tensor) -> Tensor:
        return torch.sin(x) * r.expand(2, 3, 4)

    given = _draw(2, 3, 4), _draw(2, 3, 1)
    found = _with_gradients(face(function), *given)
    assert found[2].shape == (2, 3, 1)
    _same(found, _with_gradients(function, *given))


@faces
def test_a_cropped_view(face: Callable[[Function], Function]) -> None:
    """vllm-project/vllm-omni#7705"""
    cropped = _draw(2, 4, 30, dtype=torch.float32)[:, :, 5:-5]
    _same([face(_snake)(cropped)], [_snake(cropped)])


@faces
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 4, 5), (1, 3, 1, 5)], ids=str)
def test_channels_last(
    face: Callable[[Function], Function], shape: tuple[int, ...]
) -> None:
    """pytorch/pytorch#197109"""
    x = _draw(*shape).to(memory_format=torch.channels_last)
    _same(_with_gradients(face(_snake), x), _with_gradients(_snake, x))


@faces
def test_each_row_has_its_own_gradient(face: Callable[[Function], Function]) -> None:
    """ByteDance-Seed/Triton-distributed#180"""

    def function(a: Tensor, b: Tensor) -> Tensor:
        return F.silu(a) * b

    given = _draw(4, 8), _draw(4, 8)
    _same(_with_gradients(face(function), *given), _with_gradients(function, *given))


@faces
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3)], ids=str)
def test_nothing_gives_nothing(
    face: Callable[[Function], Function], shape: tuple[int, ...]
) -> None:
    """flagos-ai/FlagGems#5298"""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.exp(x) * y + 1

    given = torch.empty(shape, dtype=F64), _draw(1)
    _same(_with_gradients(face(function), *given), _with_gradients(function, *given))


@faces
def test_lengths_give_the_same_values(face: Callable[[Function], Function]) -> None:
    """pytorch/pytorch#198057"""
    x = _draw(1025, dtype=torch.float32)
    whole = face(_snake)(x)
    for k in (1, 3, 7, 8, 9, 1023, 1025):
        assert torch.equal(face(_snake)(x[:k]), whole[:k])


@faces
def test_only_the_gradients_asked_for(face: Callable[[Function], Function]) -> None:
    """tinygrad/tinygrad#155: that of the exponent would be NaN"""
    a = torch.tensor([-2.0], dtype=F64, requires_grad=True)
    b = torch.tensor([2.0], dtype=F64)
    value = face(lambda a, b: torch.pow(a, b) * 1)(a, b)
    assert grad(value.sum(), a)[0].tolist() == [-4.0]


@faces
def test_a_compiled_function_differentiates_twice(
    face: Callable[[Function], Function],
) -> None:
    """pytorch/pytorch#183603"""
    x = torch.tensor([0.5, 1.5, 2.5, 3.5], dtype=F64, requires_grad=True)
    (first,) = grad(face(lambda x: x**4)(x).sum(), x, create_graph=True)
    assert grad(first.sum(), x)[0].tolist() == [3.0, 27.0, 75.0, 147.0]


@pytest.mark.parametrize(
    "transform", ["grad", "vmap", "jvp", "jacrev", "jacfwd", "hessian", "jvp of vmap"]
)
def test_transforms(transform: str) -> None:
    """linkedin/Liger-Kernel#1184, pytorch/pytorch#182842"""
    x, t = _draw(3), _draw(3)
    run: dict[str, Callable[[Function], Any]] = {
        "grad": lambda f: func.grad(lambda x: f(x).sum())(x),
        "vmap": lambda f: func.vmap(f)(x),
        "jvp": lambda f: func.jvp(f, (x,), (t,)),
        "jacrev": lambda f: func.jacrev(f)(x),
        "jacfwd": lambda f: func.jacfwd(f)(x),
        "hessian": lambda f: func.hessian(lambda x: f(x).sum())(x),
        "jvp of vmap": lambda f: func.jvp(func.vmap(f), (x,), (t,)),
    }
    assert_close(run[transform](_fused(_snake)), run[transform](_snake))


@faces
def test_no_gradient_is_missing(face: Callable[[Function], Function]) -> None:
    """vllm-project/vllm-omni#1797"""
    x = _draw(2, 4, 16)
    _same(_with_gradients(face(_snake), x), _with_gradients(_snake, x))
