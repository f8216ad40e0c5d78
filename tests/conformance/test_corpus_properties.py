"""Properties that kernels have lacked elsewhere, restated from public reports.

The cases of data/corpus.yaml have numbers; these are about memory layouts, lengths,
transforms and autograd. Each test names its report. PyTorch says what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton import ops

Function = Callable[..., Tensor]
# Ours and torch's; arguments are drawn from between 0.1 and 0.9.
UNARY: dict[str, tuple[Function, Function]] = {
    "silu": (ops.silu, torch.nn.functional.silu),
    "sin": (ops.sin, torch.sin),
    "digamma": (ops.digamma, torch.digamma),
}
BINARY: dict[str, tuple[Function, Function]] = {
    "mul": (ops.mul, torch.mul),
    "atan2": (ops.atan2, torch.atan2),
    "pow": (ops.pow, torch.pow),
}
unary = pytest.mark.parametrize("name", UNARY)
binary = pytest.mark.parametrize("name", BINARY)


def _draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return 0.1 + 0.8 * torch.rand(*shape, dtype=dtype)


def _same(ours: Tensor, theirs: Tensor) -> None:
    """Values, dtype, shape and strides."""
    assert ours.stride() == theirs.stride()
    torch.testing.assert_close(ours, theirs)


def _with_gradients(function: Function, *given: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in given]
    value = function(*leaves)
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype).view(value.shape)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), leaves)]


@binary
def test_a_stride_of_0_is_read_and_its_gradient_summed(name: str) -> None:
    """flagos-ai/FlagGems#2307"""
    x, r = _draw(2, 3, 4), _draw(2, 3, 1)
    ours, theirs = (
        _with_gradients(lambda x, r, f=f: f(x, r.expand(2, 3, 4)), x, r)
        for f in BINARY[name]
    )
    assert ours[2].shape == (2, 3, 1)
    for a, b in zip(ours, theirs, strict=True):
        _same(a, b)


@unary
def test_a_cropped_view_is_read_where_it_lies(name: str) -> None:
    """vllm-project/vllm-omni#7705"""
    ours, theirs = UNARY[name]
    cropped = _draw(2, 4, 30, dtype=torch.float32)[:, :, 5:-5]
    _same(ours(cropped), theirs(cropped))


@unary
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 4, 5), (1, 3, 1, 5)], ids=str)
def test_channels_last_stays(name: str, shape: tuple[int, ...]) -> None:
    """pytorch/pytorch#197109"""
    x = _draw(*shape).to(memory_format=torch.channels_last)
    ours, theirs = (_with_gradients(f, x) for f in UNARY[name])
    for a, b in zip(ours, theirs, strict=True):
        _same(a, b)
    assert ours[0].is_contiguous(memory_format=torch.channels_last)


def test_each_row_has_its_own_gradient() -> None:
    """ByteDance-Seed/Triton-distributed#180"""
    a, b = _draw(4, 8), _draw(4, 8)
    ours = _with_gradients(lambda a, b: ops.mul(ops.silu(a), b), a, b)
    theirs = _with_gradients(lambda a, b: torch.nn.functional.silu(a) * b, a, b)
    for found, right in zip(ours, theirs, strict=True):
        _same(found, right)


@binary
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("partner", [(1,), (3,)], ids=str)
def test_nothing_gives_nothing(
    name: str, shape: tuple[int, ...], partner: tuple[int, ...]
) -> None:
    """flagos-ai/FlagGems#5298"""
    if shape == (0,) and partner == (3,):
        pytest.skip("these do not broadcast")
    ours, theirs = (
        _with_gradients(f, torch.empty(shape, dtype=torch.float64), _draw(*partner))
        for f in BINARY[name]
    )
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        _same(a, b)
    assert torch.equal(ours[2], torch.zeros(partner, dtype=torch.float64))


LENGTHS = (1, 3, 7, 8, 9, 1023, 1025)
BINARIES = ("atan2", "pow", "remainder", "hypot", "logaddexp", "mul", "div")
EVEN = (
    *("sqrt", "digamma", "remainder", "hypot", "mul", "div", "reciprocal", "floor"),
    # These call functions of which the vector forms round differently.
    *("exp", "log", "sin", "tanh", "sigmoid", "silu", "erf", "expm1", "asinh"),
    *("lgamma", "softplus", "atan2", "pow", "logaddexp"),
)


def _places(name: str, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """The same elements by themselves or in short tensors, and inside a long one."""
    function: Function = getattr(ops, name)
    given = [3 * _draw(4099).to(dtype) for _ in range(1 + (name in BINARIES))]
    whole = function(*given)
    pieces = [slice(k) for k in LENGTHS] + [slice(k, None) for k in LENGTHS]
    pieces += [slice(i, i + 1) for i in range(200)]
    return [function(*(x[p] for x in given)) for p in pieces], [
        whole[p] for p in pieces
    ]


@pytest.mark.parametrize("name", EVEN)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str
)
def test_a_value_does_not_depend_on_its_place(name: str, dtype: torch.dtype) -> None:
    """pytorch/pytorch#198057: the vector body and the scalar tail compute alike"""
    short, long = _places(name, dtype)
    assert all(map(torch.equal, short, long))


def test_only_the_gradients_asked_for_are_computed() -> None:
    """tinygrad/tinygrad#155: the others would be NaN, or have no formula"""
    a = torch.tensor([-2.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([2.0], dtype=torch.float64)
    assert torch.autograd.grad(ops.pow(a, b), a)[0].tolist() == [-4.0]
    x = b.clone().requires_grad_()
    (found,) = torch.autograd.grad(ops.igamma(-a.detach(), x), x)
    (right,) = torch.autograd.grad(torch.igamma(-a.detach(), x), x)
    torch.testing.assert_close(found, right)


@unary
@pytest.mark.parametrize(
    "transform", ["grad", "vmap", "jvp", "jacrev", "jacfwd", "hessian"]
)
def test_transforms_run(name: str, transform: str) -> None:
    """linkedin/Liger-Kernel#1184"""
    x = _draw(3)
    run: dict[str, Callable[[Function], Any]] = {
        "grad": lambda f: torch.func.grad(lambda x: f(x).sum())(x),
        "vmap": lambda f: torch.func.vmap(f)(x),
        "jvp": lambda f: torch.func.jvp(f, (x,), (torch.arange(3.0).double(),)),
        "jacrev": lambda f: torch.func.jacrev(f)(x),
        "jacfwd": lambda f: torch.func.jacfwd(f)(x),
        "hessian": lambda f: torch.func.hessian(lambda x: f(x).sum())(x),
    }
    ours, theirs = map(run[transform], UNARY[name])
    torch.testing.assert_close(ours, theirs)


@unary
def test_a_tangent_through_vmap(name: str) -> None:
    """pytorch/pytorch#182842"""
    x, t = _draw(3, 4), _draw(3, 4)
    ours, theirs = (torch.func.jvp(torch.func.vmap(f), (x,), (t,)) for f in UNARY[name])
    torch.testing.assert_close(ours, theirs)


@unary
def test_compiled_in_one_graph(name: str) -> None:
    """sgl-project/sglang-omni#2263"""
    ours, theirs = UNARY[name]
    x = _draw(8).requires_grad_()
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), theirs(x))


def test_no_gradient_is_silently_missing() -> None:
    """vllm-project/vllm-omni#1797"""
    x = _draw(2, 4, 16).requires_grad_()
    for ours, theirs in (*UNARY.values(), (ops.abs, torch.abs)):
        value = ours(x)
        assert value.requires_grad
        found, right = (torch.autograd.grad(v.sum(), x)[0] for v in (value, theirs(x)))
        torch.testing.assert_close(found, right)
    with pytest.raises(NotImplementedError, match="igamma"):
        torch.autograd.grad(ops.igamma(x, x).sum(), x)
