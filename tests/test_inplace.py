"""In-place operators: they write where torch's do, and refuse what torch refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.testing import assert_close

from atentriton import ops

F64 = torch.float64


def gradients(function: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """Value, gradient and second derivative of a function that changes a copy of x."""
    leaf = x.clone().requires_grad_()
    y = function(leaf * 1)
    (first,) = torch.autograd.grad((y * y).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad((first * first).sum(), leaf)
    return [y.detach(), first.detach(), second]


def in_view(inplace: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        inplace(x[1])
        return x

    return function


def on_whole(inplace: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        inplace(x)
        return x

    return function


CASES: dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor], Any]]] = {
    "exp_": (lambda x: ops.exp_(x), lambda x: x.exp_()),
    "sin_": (lambda x: ops.sin_(x), lambda x: x.sin_()),
    "mul_": (lambda x: ops.mul_(x, x.sum()), lambda x: x.mul_(x.sum())),
    "add_": (lambda x: ops.add_(x, x * 2, alpha=2), lambda x: x.add_(x * 2, alpha=2)),
    "div_": (lambda x: ops.div_(x, 3.0), lambda x: x.div_(3.0)),
    "clamp_": (lambda x: ops.clamp_(x, 0.3, 0.8), lambda x: x.clamp_(0.3, 0.8)),
    "masked_fill_": (
        lambda x: ops.masked_fill_(x, x.detach() > 0.5, 2.0),
        lambda x: x.masked_fill_(x.detach() > 0.5, 2.0),
    ),
    "polygamma_": (lambda x: ops.polygamma_(x, 1), lambda x: x.polygamma_(1)),
}


@pytest.mark.parametrize("where", [on_whole, in_view])
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_torch(name: str, where: Any) -> None:
    ours, theirs = CASES[name]
    x = torch.rand(3, 4, dtype=F64) + 0.1
    assert_close(gradients(where(ours), x), gradients(where(theirs), x))


@pytest.mark.parametrize("name", CASES)
def test_without_gradients_the_tensor_itself_is_written(name: str) -> None:
    ours, theirs = CASES[name]
    for x in (torch.rand(3, 4), torch.rand(4, 6)[:, ::2], torch.rand(4, 3).t()):
        expected = x.clone()
        theirs(expected)
        pointer, version = x.data_ptr(), x._version
        assert ours(x) is x
        assert_close(x, expected)
        assert x.data_ptr() == pointer and x._version == version + 1


def test_what_is_saved_is_not_overwritten_unseen() -> None:
    x = torch.rand(3, requires_grad=True)
    y = ops.exp(x)  # saves its result
    with torch.no_grad():
        ops.mul_(y, 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_result_may_be_written_over_when_nothing_reads_it() -> None:
    x = torch.rand(3, requires_grad=True)
    y = ops.sin(x)  # saves its argument
    ops.mul_(y, 2.0)
    (found,) = torch.autograd.grad(y.sum(), x)
    assert_close(found, 2 * x.detach().cos())


def test_a_leaf_is_refused_and_left_as_it_was() -> None:
    x = torch.rand(3, requires_grad=True)
    before = x.detach().clone()
    with pytest.raises(
        RuntimeError, match="a leaf Variable that requires grad is being"
    ):
        ops.exp_(x)
    assert_close(x.detach(), before)
    with torch.no_grad():
        ops.exp_(x)
    assert_close(x.detach(), before.exp())


def refusals() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    ints, floats = torch.ones(3, dtype=torch.int64), torch.rand(3)
    small, large = torch.rand(3), torch.rand(2, 3)
    expanded, memory = torch.rand(3, 1).expand(3, 4), torch.rand(6)
    return {
        "cast": (lambda: ops.exp_(ints), lambda: ints.exp_()),
        "cast of a promoted": (
            lambda: ops.mul_(ints, floats),
            lambda: ints.mul_(floats),
        ),
        "shape": (lambda: ops.add_(small, large), lambda: small.add_(large)),
        "expanded": (lambda: ops.exp_(expanded), lambda: expanded.exp_()),
        "overlap": (
            lambda: ops.add_(memory[1:], memory[:-1]),
            lambda: memory[1:].add_(memory[:-1]),
        ),
    }


@pytest.mark.parametrize("name", refusals())
def test_refusals_are_in_the_words_of_torch(name: str) -> None:
    ours, theirs = refusals()[name]
    with pytest.raises(RuntimeError) as expected:
        theirs()
    with pytest.raises(RuntimeError) as found:
        ours()
    assert str(found.value) == str(expected.value)


def test_a_result_of_another_dtype_is_cast() -> None:
    half, single = torch.rand(3).half(), torch.rand(3)
    expected = half.clone().mul_(single)
    assert_close(ops.mul_(half, single), expected)
    integers = torch.tensor([1, 0, 2])
    assert_close(ops.add_(integers, True), torch.tensor([2, 1, 3]))


def test_the_entry_of_the_inplace_operator_counts() -> None:
    """derivatives.yaml says of acosh_, and not of acosh, that it has no derivative."""
    x = torch.rand(3, requires_grad=True)
    y = x + 1.5
    expected = torch.acosh(y.detach())
    assert_close(ops.acosh_(y).detach(), expected)
    with pytest.raises(
        NotImplementedError, match=r"the derivative for .*acosh.* is not"
    ):
        y.sum().backward()
    with torch.no_grad():
        assert_close(ops.acosh_(x + 1.5), expected)


@pytest.mark.parametrize("name", ["exp_", "mul_", "clamp_"])
def test_transforms_see_the_write(name: str) -> None:
    ours, theirs = CASES[name]
    x = torch.rand(3, 4, dtype=F64) + 0.1

    def through(inplace: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
        def function(v: Tensor) -> Tensor:
            v = v * 1
            inplace(v)
            return (v * v).sum()

        return function

    for transform in (torch.func.grad, torch.func.hessian, torch.func.jacfwd):
        assert_close(transform(through(ours))(x), transform(through(theirs))(x))
    assert_close(torch.vmap(through(ours))(x), torch.vmap(through(theirs))(x))


def test_a_tangent_is_written_along() -> None:
    x, t = torch.rand(3, dtype=F64), torch.rand(3, dtype=F64)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone(), t.clone())
        ops.exp_(dual)
        primal, tangent = forward_ad.unpack_dual(dual)
        assert tangent is not None
        assert_close(primal, x.exp())
        assert_close(tangent, x.exp() * t)


def test_empty_tensors() -> None:
    x = torch.rand(0, 3)
    assert ops.exp_(x) is x
