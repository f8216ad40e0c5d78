"""THE Function: derivatives of any order, in both modes, and what is kept for them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from atentriton import ops

F64 = torch.float64
ATEN = torch.ops.aten


def uniform(*shape: int, low: float = 0.2, high: float = 0.9) -> Tensor:
    return torch.rand(shape, dtype=F64) * (high - low) + low


Case = tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]


def cases() -> dict[str, Case]:
    a, b, c = uniform(3, 1), uniform(4), uniform()
    signed = torch.tensor([[-0.7], [0.4], [1.3]], dtype=F64)
    mask = torch.tensor([True, False, True, False])
    return {
        "acosh": (ops.acosh, ATEN.acosh, (a + 1,)),
        "exp": (ops.exp, ATEN.exp, (a,)),
        "abs": (ops.abs, ATEN.abs, (signed,)),
        "add": (
            lambda x, y: ops.add(x, y, alpha=2),
            lambda x, y: ATEN.add(x, y, alpha=2),
            (a, b),
        ),
        "mul": (ops.mul, ATEN.mul, (a, b)),
        "div": (ops.div, ATEN.div, (a, b)),
        "div floor": (
            lambda x, y: ops.div(x, y, rounding_mode="floor"),
            lambda x, y: ATEN.div(x, y, rounding_mode="floor"),
            (a, b),
        ),
        "addcmul": (
            lambda x, y, z: ops.addcmul(x, y, z, value=0.5),
            lambda x, y, z: ATEN.addcmul(x, y, z, value=0.5),
            (a, b, c),
        ),
        "clamp": (
            lambda x: ops.clamp(x, -0.5, 1.0),
            lambda x: ATEN.clamp(x, -0.5, 1.0),
            (signed,),
        ),
        "clamp to tensors": (ops.clamp, ATEN.clamp, (signed, b - 1, b)),
        "logaddexp": (ops.logaddexp, ATEN.logaddexp, (a, b)),
        "atan2": (ops.atan2, ATEN.atan2, (signed, b)),
        "maximum": (ops.maximum, ATEN.maximum, (a, b)),
        "xlogy": (ops.xlogy, ATEN.xlogy, (a, b)),
        "polygamma": (
            lambda x: ops.polygamma(2, x),
            lambda x: ATEN.polygamma(2, x),
            (b + 1,),
        ),
        "copysign": (ops.copysign, ATEN.copysign, (signed, b)),
        "masked_fill": (
            lambda x: ops.masked_fill(x, mask, 2.0),
            lambda x: ATEN.masked_fill(x, mask, 2.0),
            (uniform(3, 4),),
        ),
        "alias": (ops.alias, ATEN.alias, (a,)),
    }


def weighted(y: Tensor) -> Tensor:
    weights = torch.linspace(1, 2, max(y.numel(), 1), dtype=F64)[: y.numel()]
    return (y * weights.reshape(y.shape).to(y.dtype)).sum()


def derivatives(f: Callable[..., Tensor], args: tuple[Tensor, ...]) -> list[Tensor]:
    """Value, gradients, and gradients of a scalar made of the gradients; 0 for none."""
    leaves = [a.detach().clone().requires_grad_() for a in args]
    y = f(*leaves)
    first = grad(weighted(y), leaves, create_graph=True)
    scalar = sum(
        (weighted(g) * g.sum() for g in first), start=torch.zeros((), dtype=F64)
    )
    second: Any = [None] * len(leaves)
    if scalar.requires_grad:
        second = grad(scalar, leaves, allow_unused=True)
    zeros = [torch.zeros_like(a) for a in leaves]
    second = [z if s is None else s for s, z in zip(second, zeros, strict=True)]
    return [t.detach() for t in (y, *first, *second)]


@pytest.mark.parametrize("name", cases())
def test_gradients_of_both_orders_are_those_of_torch(name: str) -> None:
    ours, theirs, args = cases()[name]
    assert_close(derivatives(ours, args), derivatives(theirs, args))


@pytest.mark.parametrize("name", cases())
def test_tangents_are_those_of_torch(name: str) -> None:
    ours, theirs, args = cases()[name]

    def tangent(f: Callable[..., Tensor], moved: range) -> Tensor:
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(a, a * 0.5 + 0.1) if i in moved else a
                for i, a in enumerate(args)
            ]
            y, t = forward_ad.unpack_dual(f(*duals))
            return torch.zeros_like(y) if t is None else t

    assert_close(tangent(ours, range(9)), tangent(theirs, range(9)))
    assert_close(tangent(ours, range(1)), tangent(theirs, range(1)))


SMOOTH = ["acosh", "exp", "add", "mul", "div", "addcmul", "logaddexp", "atan2", "xlogy"]


@pytest.mark.parametrize("name", [*SMOOTH, "polygamma", "masked_fill"])
def test_gradcheck(name: str) -> None:
    ours, _, args = cases()[name]
    leaves = tuple(a.clone().requires_grad_() for a in args)
    forward = name != "polygamma"
    assert gradcheck(
        ours,
        leaves,
        check_undefined_grad=True,
        check_batched_grad=True,
        check_forward_ad=forward,
        check_batched_forward_grad=forward,
    )


@pytest.mark.parametrize("name", SMOOTH)
def test_gradgradcheck(name: str) -> None:
    ours, _, args = cases()[name]
    leaves = tuple(a.clone().requires_grad_() for a in args)
    assert gradgradcheck(
        ours,
        leaves,
        check_undefined_grad=True,
        check_batched_grad=True,
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
    )


@pytest.mark.parametrize(
    "x",
    [
        uniform(4, 3).t(),
        uniform(4, 6)[:, ::2],
        uniform(4, 1).expand(4, 5),
        uniform(2, 3, 4, 5).to(memory_format=torch.channels_last),
        uniform(9)[1:],
        uniform(),
        uniform(0, 3),
    ],
    ids=lambda t: f"{tuple(t.shape)} {t.stride()}",
)
def test_layouts_of_arguments_and_cotangents(x: Tensor) -> None:
    def value_and_gradient(f: Callable[..., Tensor], cotangent: Tensor) -> list[Tensor]:
        leaf = x.detach().requires_grad_()
        y = f(leaf, leaf)
        (g,) = grad(y, leaf, cotangent)
        return [y.detach(), g]

    expanded = torch.ones((), dtype=F64).expand(x.shape)
    laid_out = torch.rand(*x.shape, 2, dtype=F64)[..., 0]
    for cotangent in (expanded, laid_out):
        ours = value_and_gradient(ops.mul, cotangent)
        theirs = value_and_gradient(torch.mul, cotangent)
        assert_close(ours, theirs)
        assert ours[0].stride() == theirs[0].stride()


def test_third_order() -> None:
    x = uniform(4, low=1.2, high=2.0).requires_grad_()

    def third(f: Callable[[Tensor], Tensor]) -> Tensor:
        y = f(x)
        for _ in range(3):
            (y,) = grad(y.sum(), x, create_graph=True)
        return y.detach()

    assert_close(third(ops.acosh), third(torch.acosh))


def test_complex_gradients() -> None:
    z = torch.randn(4, dtype=torch.complex128)
    w = torch.randn(3, 1, dtype=torch.complex128)
    x = uniform(4)

    def gradients(mul: Any, exp: Any, absolute: Any) -> tuple[Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (z, w, x)]
        y = absolute(mul(mul(exp(leaves[0]), leaves[1]), leaves[2]))
        return grad(y.sum(), leaves)

    ours = gradients(ops.mul, ops.exp, ops.abs)
    theirs = gradients(torch.mul, torch.exp, torch.abs)
    assert_close(ours, theirs)
    assert [g.dtype for g in ours] == [g.dtype for g in theirs]


def test_complex_gradcheck() -> None:
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    w = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    assert gradcheck(ops.mul, (z, w), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(ops.mul, (z, w), check_fwd_over_rev=True)
    assert gradcheck(lambda t: ops.exp(t.conj()), (z,), check_forward_ad=True)


# -- what the Function does and keeps
# ----------------------------------------------------


def test_gradients_take_the_dtype_and_shape_of_their_argument() -> None:
    a = torch.rand(3, 1, requires_grad=True)
    b = torch.rand(4, dtype=F64, requires_grad=True)
    c = torch.rand((), dtype=torch.float16, requires_grad=True)
    found = grad(ops.mul(ops.mul(a, b), c).sum(), (a, b, c))
    assert [(g.dtype, g.shape) for g in found] == [
        (t.dtype, t.shape) for t in (a, b, c)
    ]


def test_only_what_a_formula_reads_is_saved() -> None:
    """`y = tanh(x); x += 1` goes on working, as tanh saves its result."""
    leaf = torch.rand(3, requires_grad=True)
    x = leaf * 1
    y = ops.tanh(x)
    x += 1
    (found,) = grad(y.sum(), leaf)
    assert_close(found, 1 - leaf.detach().tanh() ** 2)


def test_saved_tensors_are_those_of_eager() -> None:
    packed: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        packed.append(t)
        return t

    x, y = torch.rand(3, requires_grad=True), torch.rand(3)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        ops.add(x, y)
        assert packed == []
        ops.mul(x, y)
        assert [t is y for t in packed] == [True]
        result = ops.exp(x)
        assert packed[-1] is result or packed[-1].data_ptr() == result.data_ptr()


def test_shapes_do_not_keep_tensors_alive() -> None:
    x = torch.rand(3, requires_grad=True)
    other = torch.rand(4, 1)
    reference = weakref.ref(other)
    y = ops.add(x, other)
    del other
    assert reference() is None
    assert_close(grad(y.sum(), x)[0], torch.full((3,), 4.0))


def test_the_dispatcher_does_not_keep_tensors_alive_either() -> None:
    x = torch.rand(3, requires_grad=True)
    other = torch.rand(3)
    reference = weakref.ref(other)

    class Watching(TorchDispatchMode):  # so that the call is not a direct one
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Watching():
        y = ops.add(x, other)
    del other
    assert reference() is None
    assert_close(grad(y.sum(), x)[0], torch.ones(3))


def test_nothing_is_kept_in_a_circle() -> None:
    gc.collect()
    gc.disable()
    try:
        x = torch.rand(3, requires_grad=True)
        with forward_ad.dual_level():
            y = ops.exp(forward_ad.make_dual(x, torch.ones(3)))
            reference = weakref.ref(y)
            del y
            assert reference() is None
    finally:
        gc.enable()


def test_the_graph_is_freed_unless_it_is_retained() -> None:
    x = torch.rand(3, requires_grad=True)
    y = ops.exp(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None
    assert_close(x.grad, 2 * x.detach().exp())
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_checkpointing() -> None:
    x = uniform(4).requires_grad_()

    def f(t: Tensor) -> Tensor:
        return ops.mul(ops.exp(t), ops.sin(t))

    (expected,) = grad(f(x).sum(), x)
    found = checkpoint(f, x, use_reentrant=False)
    assert isinstance(found, Tensor)
    assert_close(grad(found.sum(), x)[0], expected)


def test_hooks_may_move_what_is_saved() -> None:
    x = uniform(4).requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        y = ops.exp(x)
    assert_close(grad(y.sum(), x)[0], x.detach().exp())


def test_a_gradient_that_is_the_cotangent_itself_needs_no_kernel() -> None:
    x, y = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    cotangent = torch.rand(3)
    first, second = grad(ops.add(x, y), (x, y), cotangent)
    assert first.data_ptr() == second.data_ptr() == cotangent.data_ptr()


def test_a_gradient_that_is_zero_is_zeros() -> None:
    x = torch.rand(3, requires_grad=True)
    (found,) = grad(ops.ceil(x).sum(), x)
    assert_close(found, torch.zeros(3))


def test_results_without_a_derivative_are_marked() -> None:
    x = torch.rand(3, requires_grad=True)
    assert not ops.gt(x, 0.5).requires_grad
    assert not ops.exp(x.detach()).requires_grad
    with torch.no_grad():
        assert not ops.exp(x).requires_grad


def test_several_results_and_absent_cotangents() -> None:
    x = uniform(4).requires_grad_()
    mantissa, exponent = ops.frexp(x)
    expected = torch.frexp(x)
    assert_close(mantissa, expected.mantissa)
    assert_close(exponent, expected.exponent)
    assert mantissa.requires_grad and not exponent.requires_grad
    assert_close(grad(mantissa.sum(), x), grad(expected.mantissa.sum(), x))


def test_a_cotangent_that_is_absent_gives_an_absent_gradient() -> None:
    class Forgetful(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> None:
            return None

    x = torch.rand(3, requires_grad=True)
    y = Forgetful.apply(ops.exp(x))
    assert grad(y.sum(), x, allow_unused=True) == (None,)


def test_what_is_not_implemented_raises_only_where_it_is_needed() -> None:
    a, b = uniform(3).requires_grad_(), uniform(3).requires_grad_()
    y = ops.special_zeta(a + 1, b)
    expected = torch.special.zeta(a + 1, b)
    assert_close(y, expected)
    assert_close(grad(y.sum(), b, retain_graph=True), grad(expected.sum(), b))
    with pytest.raises(
        NotImplementedError, match=r"the derivative for '.*' is not impl"
    ):
        grad(y.sum(), a)


def test_what_is_saved_depends_on_the_gradients_asked_for() -> None:
    x, y = torch.rand(3), torch.rand(3)
    routine = ops.mul.Tensor.registered.routine([x, y])
    assert routine.saving((True, False)).reads == (("input", 1),)
    assert routine.saving((True, True)).reads == (("input", 0), ("input", 1))
    assert routine.saving((False, False)).reads == ()


def test_a_tensor_given_twice_takes_the_quick_way_too() -> None:
    """The guards refuse to see one tensor twice; x * x is quick all the same."""
    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    y = torch.rand(5, dtype=torch.float64, requires_grad=True)
    sites = ops.mul._sites.recording
    sites.clear()
    for _ in range(3):
        assert_close(torch.autograd.grad(ops.mul(x, x).sum(), x)[0], 2 * x)
        for a, b in ((x, y), (y, x), (y, y)):
            wanted = torch.autograd.grad((a * b).sum(), (x, y), allow_unused=True)
            out = ops.mul(a, b).sum()
            assert_close(torch.autograd.grad(out, (x, y), allow_unused=True), wanted)
    assert len(sites[2]) == 2, "one for two tensors that look alike, one for one twice"
