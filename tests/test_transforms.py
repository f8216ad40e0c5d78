"""torch.func and its older kin: every order and mixture gives what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad, functional, grad
from torch.testing import assert_close

from atentriton import ops

F64 = torch.float64
Functions = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]


def ours(x: Tensor) -> Tensor:
    return ops.acosh(ops.addcmul(ops.exp(x), x, ops.sin(x), value=0.5))


def theirs(x: Tensor) -> Tensor:
    return torch.acosh(torch.addcmul(torch.exp(x), x, torch.sin(x), value=0.5))


def total(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: f(x).sum()


Transform = Callable[[Callable[[Tensor], Tensor], Tensor], Any]

TRANSFORMS: dict[str, Transform] = {
    "grad": lambda f, x: func.grad(total(f))(x),
    "grad_and_value": lambda f, x: func.grad_and_value(total(f))(x),
    "vjp": lambda f, x: func.vjp(f, x)[1](x),
    "jvp": lambda f, x: func.jvp(f, (x,), (x * 2,)),
    "linearize": lambda f, x: func.linearize(f, x)[1](x),
    "jacrev": lambda f, x: func.jacrev(f)(x),
    "jacfwd": lambda f, x: func.jacfwd(f)(x),
    "hessian": lambda f, x: func.hessian(total(f))(x),
    "jacrev of jacrev": lambda f, x: func.jacrev(func.jacrev(f))(x),
    "jacfwd of jacfwd": lambda f, x: func.jacfwd(func.jacfwd(f))(x),
    "jacrev of jacfwd": lambda f, x: func.jacrev(func.jacfwd(f))(x),
    "jvp of jvp": lambda f, x: func.jvp(
        lambda y: func.jvp(f, (y,), (y * 2,))[1], (x,), (x + 1,)
    ),
    "jvp of grad": lambda f, x: func.jvp(func.grad(total(f)), (x,), (x,)),
    "grad of jvp": lambda f, x: func.grad(
        lambda y: func.jvp(f, (y,), (torch.ones_like(y),))[1].sum()
    )(x),
    "grad of grad of grad": lambda f, x: func.grad(
        total(func.grad(total(func.grad(total(f)))))
    )(x),
    "vmap": lambda f, x: func.vmap(f)(x),
    "vmap over the last": lambda f, x: func.vmap(f, in_dims=-1, out_dims=-1)(x),
    "vmap of vmap": lambda f, x: func.vmap(func.vmap(f))(x),
    "vmap of grad": lambda f, x: func.vmap(func.grad(total(f)))(x),
    "grad of vmap": lambda f, x: func.grad(total(func.vmap(f)))(x),
    "vmap of hessian": lambda f, x: func.vmap(func.hessian(total(f)))(x),
    "vmap of jvp": lambda f, x: func.vmap(lambda y: func.jvp(f, (y,), (y,))[1])(x),
    "functionalize": lambda f, x: func.functionalize(f)(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_gives_what_it_gives_for_torch(name: str) -> None:
    x = torch.rand(2, 3, dtype=F64) + 0.5
    transform = TRANSFORMS[name]
    assert_close(transform(ours, x), transform(theirs, x))


OLDER: dict[str, Transform] = {
    "jacobian": lambda f, x: functional.jacobian(f, x),
    "jacobian at once": lambda f, x: functional.jacobian(f, x, vectorize=True),
    "jacobian forward": lambda f, x: functional.jacobian(
        f, x, vectorize=True, strategy="forward-mode"
    ),
    "hessian": lambda f, x: functional.hessian(total(f), x),
    "hessian at once": lambda f, x: functional.hessian(total(f), x, vectorize=True),
    "hessian forward": lambda f, x: functional.hessian(
        total(f), x, vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "hvp": lambda f, x: functional.hvp(total(f), x, x)[1],
    "jvp": lambda f, x: functional.jvp(f, x, x)[1],
}


@pytest.mark.parametrize("name", OLDER)
def test_the_older_functions_do_as_well(name: str) -> None:
    x = torch.rand(2, 3, dtype=F64) + 0.5
    transform = OLDER[name]
    assert_close(transform(ours, x), transform(theirs, x))


def test_many_cotangents_at_once() -> None:
    x = (torch.rand(2, 3, dtype=F64) + 0.5).requires_grad_()
    cotangents = torch.rand(4, 2, 3, dtype=F64)
    found = grad(ours(x), x, cotangents, is_grads_batched=True)
    assert_close(found, grad(theirs(x), x, cotangents, is_grads_batched=True))


def test_many_cotangents_at_once_reach_arguments_that_were_broadcast() -> None:
    x = torch.rand(3, 1, dtype=F64, requires_grad=True)
    y = torch.rand(4, dtype=F64, requires_grad=True)
    cotangents = torch.rand(5, 3, 4, dtype=F64)
    found = grad(ops.mul(x, y), (x, y), cotangents, is_grads_batched=True)
    expected = grad(torch.mul(x, y), (x, y), cotangents, is_grads_batched=True)
    assert_close(found, expected)


@pytest.mark.parametrize("dims", [(0, None), (None, 0), (1, 0), (0, 0), (-1, 1)])
def test_batches_of_some_arguments(dims: tuple[int | None, int | None]) -> None:
    shapes = {None: (3,), 0: (2, 3), 1: (3, 2), -1: (3, 2)}
    args = [torch.rand(shapes[d], dtype=F64) for d in dims]
    expected = torch.vmap(torch.atan2, dims)(*args)
    assert_close(torch.vmap(lambda x, y: ops.atan2(x, y), dims)(*args), expected)


def test_batches_of_tensors_of_different_ranks() -> None:
    x, y = torch.rand(2, 3, 4), torch.rand(2, 4)
    assert_close(
        torch.vmap(lambda a, b: ops.mul(a, b))(x, y), torch.vmap(torch.mul)(x, y)
    )


def test_a_batch_of_numbers_promotes_as_numbers() -> None:
    single, double = torch.rand(4), torch.rand(3, dtype=F64)
    found = torch.vmap(lambda s: ops.mul(single, s))(double)
    expected = torch.vmap(lambda s: single * s)(double)
    assert found.dtype == expected.dtype == torch.float32
    assert_close(found, expected)


def test_a_batch_of_none() -> None:
    x = torch.rand(0, 3)
    assert torch.vmap(lambda v: ops.mul(v, v.sum()))(x).shape == (0, 3)


def test_several_results_are_batched_together() -> None:
    x = torch.rand(3, 4)
    found = torch.vmap(lambda v: ops.frexp(v))(x)
    assert_close(tuple(found), tuple(torch.frexp(x)))


def test_results_without_a_derivative_pass_through_transforms() -> None:
    x = torch.rand(3, 4, dtype=F64)

    def f(where: Any, gt: Any) -> Callable[[Tensor], Tensor]:
        return lambda v: where(gt(v, 0.5), v * v, v).sum()

    for transform in (func.grad, func.hessian, torch.vmap):
        found = transform(f(ops.where, ops.gt))(x)
        assert_close(found, transform(f(torch.where, torch.gt))(x))


def test_tangents_are_differentiable() -> None:
    x = (torch.rand(3, dtype=F64) + 0.5).requires_grad_()

    def gradient_of_tangent(f: Callable[[Tensor], Tensor]) -> Tensor:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            tangent = forward_ad.unpack_dual(f(dual)).tangent
            assert tangent is not None
            return grad(tangent.sum(), x)[0]

    assert_close(gradient_of_tangent(ours), gradient_of_tangent(theirs))


def test_a_tangent_is_not_lost_by_a_call_that_is_known() -> None:
    x = torch.rand(3, dtype=F64) + 0.5
    ops.exp(x)
    ops.exp(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangent = forward_ad.unpack_dual(ops.exp(dual)).tangent
        assert tangent is not None
        assert_close(tangent, x.exp())
        assert forward_ad.unpack_dual(ops.exp(x)).tangent is None


def test_tangents_that_are_zero_or_of_another_dtype() -> None:
    x = torch.rand(3, dtype=F64) + 0.5
    with forward_ad.dual_level():
        zero = forward_ad.make_dual(x, torch._efficientzerotensor(3, dtype=F64))
        tangent = forward_ad.unpack_dual(ops.exp(zero)).tangent
        assert tangent is None or not tangent.any()
        single = forward_ad.make_dual(x, torch.ones(3))
        tangent = forward_ad.unpack_dual(ops.exp(single)).tangent
        assert tangent is not None
        assert_close(tangent, x.exp())


def test_complex_transforms() -> None:
    z = torch.randn(3, dtype=torch.complex128)

    def f(exp: Any, mul: Any) -> Callable[[Tensor], Tensor]:
        return lambda v: mul(exp(v), v.conj())

    mine, eager = f(ops.exp, ops.mul), f(torch.exp, torch.mul)
    assert_close(func.jvp(mine, (z,), (z,)), func.jvp(eager, (z,), (z,)))
    assert_close(func.vjp(mine, z)[1](z), func.vjp(eager, z)[1](z))


def test_a_transform_meets_what_is_not_implemented() -> None:
    x = torch.rand(3, dtype=F64) + 1.5
    with pytest.raises(
        NotImplementedError, match=r"the derivative for '.*' is not impl"
    ):
        func.grad(lambda s: ops.special_zeta(s, x).sum())(x)
    found = func.grad(lambda q: ops.special_zeta(x, q).sum())(x)
    assert_close(found, func.grad(lambda q: torch.special.zeta(x, q).sum())(x))
