"""Values and tangents by one kernel, and where they are left apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad
from torch.testing import assert_close

from atentriton import ops
from atentriton.decisions import Launched, watched
from atentriton.programs import of_lineage


def launched(call: Callable[[], Any]) -> list[str]:
    """The last words of the lineages of what the call launches."""
    with watched() as events:
        call()
    return [e.lineage for e in events if isinstance(e, Launched)]


def test_a_value_and_its_tangent_come_from_one_kernel() -> None:
    x, y = torch.rand(4, 5) + 0.5, torch.rand(5) + 0.5
    moved = torch.rand(4, 5).t().contiguous().t()

    def dual(of: Any) -> tuple[Tensor, Tensor]:
        with forward_ad.dual_level():
            made = of.hypot(forward_ad.make_dual(x, moved), y)
            value, tangent = forward_ad.unpack_dual(made)
            assert tangent is not None
            return value, tangent

    (lineage,) = launched(lambda: dual(ops))
    assert lineage == "hypot(float32, float32).joint(self)"
    assert of_lineage(lineage).lineage == lineage
    for found, expected in zip(dual(ops), dual(torch), strict=True):
        assert_close(found, expected)
        assert found.stride() == expected.stride()


def hypot_of(of: Any, y: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: of.hypot(x, y)


# What a transform of hypot launches, innermost level first.
JOINT = {
    "jvp": lambda f, x: func.jvp(f, (x,), (x * 2,)),
    "jvp without gradients": lambda f, x: torch.no_grad()(func.jvp)(f, (x,), (x,)),
    "jvp of jvp": lambda f, x: func.jvp(
        lambda z: func.jvp(f, (z,), (z * 2,)), (x,), (x + 1,)
    ),
    "vmap of jvp": lambda f, x: func.vmap(lambda z: func.jvp(f, (z,), (z,)))(x),
    "jvp of vmap": lambda f, x: func.jvp(func.vmap(f), (x,), (x,)),
    "grad of jvp": lambda f, x: func.grad(lambda z: func.jvp(f, (z,), (z,))[1].sum())(
        x
    ),
    "jvp of grad": lambda f, x: func.jvp(
        func.grad(lambda z: f(z).sum()), (x,), (x * 2,)
    ),
    "jvp of what requires a gradient": lambda f, x: torch.autograd.grad(
        func.jvp(f, (leaf := x.clone().requires_grad_(),), (leaf * 2,))[1].sum(), leaf
    ),
}
LAUNCHED = {
    "jvp of jvp": [".joint(self).joint(self, self_t)"],
    "grad of jvp": [".joint(self)", ".joint(self).vjp(self, self_t | result_t)"],
    "jvp of grad": [".joint(self)", ".vjp(self).joint(self, result)"],
    "jvp of what requires a gradient": [
        ".joint(self)",
        ".joint(self).vjp(self, self_t | result_t)",
    ],
}


@pytest.mark.parametrize("name", JOINT)
def test_torch_func_jvp_takes_one_kernel_for_both(name: str) -> None:
    x, y = (torch.rand(s, dtype=torch.float64) + 0.5 for s in ((4, 5), (5,)))
    transform = JOINT[name]
    lineages = launched(lambda: transform(hypot_of(ops, y), x))
    of = "hypot(float64, float64)"
    found = [lineage.removeprefix(of) for lineage in lineages]
    assert found == LAUNCHED.get(name, [".joint(self)"])
    expected = transform(hypot_of(torch, y), x)
    assert_close(transform(hypot_of(ops, y), x), expected)


def test_a_value_is_computed_once_for_many_tangents() -> None:
    """As in jacfwd: the joint kernel would compute it for each of a batch."""
    x, y = (torch.rand(s, dtype=torch.float64) + 0.5 for s in ((4, 5), (5,)))
    found = launched(lambda: func.jacfwd(hypot_of(ops, y))(x))
    of = "hypot(float64, float64)"
    assert found == [of, f"{of}.jvp(self)"]
    expected = func.jacfwd(hypot_of(torch, y))(x)
    assert_close(func.jacfwd(hypot_of(ops, y))(x), expected)


def test_linearized_the_value_is_left_out() -> None:
    """What does not depend on the tangents is evaluated once, by the first call."""
    x, y = (torch.rand(s, dtype=torch.float64) + 0.5 for s in ((4, 5), (5,)))
    _, along = func.linearize(hypot_of(ops, y), x)
    assert_close(along(x), func.linearize(hypot_of(torch, y), x)[1](x))
    assert launched(lambda: along(x)) == ["hypot(float64, float64).jvp(self)"]


@pytest.mark.parametrize(
    "moved",
    [
        lambda x: x.expand(5, 5),
        lambda x: x.t().contiguous().t(),
        lambda x: torch.ones((), dtype=x.dtype).expand_as(x),
        lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype),
        lambda x: x.conj(),
        lambda x: torch._neg_view(x),
    ],
    ids=["same", "transposed", "expanded", "zero", "conjugate", "negative"],
)
def test_tangents_of_any_look(moved: Callable[[Tensor], Tensor]) -> None:
    x, z = (torch.randn(5, 5, dtype=torch.complex128) for _ in range(2))

    def f(of: Any) -> Callable[[Tensor], Tensor]:
        return lambda v: of.mul(of.exp(v), z)

    found = func.jvp(f(ops), (x,), (moved(x),))
    assert_close(found, func.jvp(f(torch), (x,), (moved(x),)))


def test_a_tangent_with_a_derivative_is_computed_apart() -> None:
    for of_x, of_t in ((True, False), (False, True)):
        x, t = torch.rand(3), torch.rand(3)
        x.requires_grad_(of_x)
        t.requires_grad_(of_t)
        with forward_ad.dual_level():
            y = ops.exp(forward_ad.make_dual(x, t))
            tangent = forward_ad.unpack_dual(y).tangent
        asked = x if of_x else t
        (found,) = torch.autograd.grad(tangent.sum(), asked)
        assert_close(found, t.detach() * x.exp() if of_x else x.exp())


def test_outputs_and_tangents_of_one_name() -> None:
    """A program may have an output that is called as the tangent of another is."""
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    with forward_ad.dual_level():
        y = ops.acosh(forward_ad.make_dual(x + 1.5, torch.ones_like(x)))
        tangent = forward_ad.unpack_dual(y).tangent
        (found,) = torch.autograd.grad(tangent.sum(), x)
    a = x.detach() + 1.5
    assert_close(forward_ad.unpack_dual(found).primal, -a / (a * a - 1) ** 1.5)
