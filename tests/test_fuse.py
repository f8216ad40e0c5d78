"""`fuse`: a function as one kernel, and as one for each derivative."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, func
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close

from atentriton import explain, fuse
from atentriton.fusing import FusionError

F64 = torch.float64


@fuse
def swiglu(a: Tensor, b: Tensor) -> Tensor:
    return F.silu(a) * b


@fuse
def snake(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return x + torch.sin(x * torch.exp(a)) ** 2 / (torch.exp(b) + 1e-9)


@fuse
def several(x: Tensor, s: float = 2.0, *, flag: bool = True) -> dict[str, Any]:
    y = x * s / x.shape[-1]
    y += 1
    if flag:
        y.relu_()
    return {"y": y, "z": [y * 2, torch.where(x > 0, torch.ones_like(x), y)]}


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=F64, requires_grad=True)


def test_values_for_changing_sizes_and_numbers() -> None:
    for rows, columns in ((4, 6), (5, 7), (4, 6), (9, 3)):
        x, a = leaf(rows, columns), leaf(columns)
        assert_close(swiglu(x, a), swiglu.function(x, a))
        assert_close(snake(x, a, a), snake.function(x, a, a))
        for s in (2.0, 3.5, 2.0):
            assert_close(several(x, s), several.function(x, s))
            assert_close(
                several(x, s=s, flag=False), several.function(x, s, flag=False)
            )


def test_sizes_do_not_trace_again() -> None:
    traced: list[int] = []

    @fuse
    def f(x: Tensor) -> Tensor:
        traced.append(1)
        return torch.tanh(x) * x / x.shape[-1]

    for size in (3, 4, 5, 50):
        x = torch.rand(size, size + 1)
        assert_close(f(x), f.function(x))
    assert sum(traced) == 1 + 4, "once by fuse, four times by the test itself"


def test_derivatives_of_first_and_second_order() -> None:
    given = leaf(4, 6), leaf(6), leaf(6)
    assert gradcheck(snake, given, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(snake, given)


def test_third_order() -> None:
    x = leaf(5)
    found = [x, x]
    for i, f in enumerate((swiglu, swiglu.function)):
        value = f(x, x).sum()
        for _ in range(3):
            (value,) = grad(value.sum(), x, create_graph=True)
        found[i] = value
    assert_close(found[0], found[1])


def test_transforms() -> None:
    x, a = leaf(4, 6).detach(), leaf(6).detach()
    ours: Callable[..., Any] = swiglu
    theirs: Callable[..., Any] = swiglu.function
    for transform in (
        lambda f: func.vmap(f, (0, None))(x, a),
        lambda f: func.jacrev(f)(x, a),
        lambda f: func.jacfwd(f)(x, a),
        lambda f: func.hessian(lambda b: f(x, b).sum())(a),
        lambda f: func.jvp(lambda y: f(y, a), (x,), (x,)),
    ):
        assert_close(transform(ours), transform(theirs))


def test_one_kernel_each_way() -> None:
    x, a, b = leaf(64, 3), leaf(3), leaf(3)
    once = explain(lambda: grad(snake(x, a, b).sum(), (x, a, b)))
    assert [launch.kernels for launch in once.launches] == [1, 1]


def test_errors_name_the_line() -> None:
    @fuse
    def normed(x: Tensor) -> Tensor:
        return torch.softmax(x, -1) + 1  # here

    @fuse
    def branching(x: Tensor) -> Tensor:
        if x.sum() > 0:  # and here
            return x
        return -x

    with pytest.raises(FusionError, match="softmax.*not elementwise") as error:
        normed(leaf(3, 4))
    assert "# here" in str(error.value)
    with pytest.raises(FusionError, match="elements of a tensor") as error:
        branching(leaf(3))
    assert "# and here" in str(error.value)


def test_parts_are_fused_where_that_is_asked_for() -> None:
    def normed(x: Tensor) -> Tensor:
        y = torch.tanh(x) * 2
        return torch.exp(y - torch.softmax(y, -1)) * y

    fused = fuse(normed, partial=True)
    x = leaf(3, 4)
    assert_close(fused(x), normed(x))
    assert gradcheck(fused, (x,))
    assert gradgradcheck(fused, (x,))


def test_copies_and_pickles_are_the_function_itself() -> None:
    assert copy.deepcopy(swiglu) is swiglu
    assert pickle.loads(pickle.dumps(swiglu)) is swiglu
