"""Gradients of broadcast inputs: added up by the backward kernel itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close

from atentriton import fuse, ops, sums, targets

in_c = pytest.mark.skipif(targets.interpreted(), reason="about kernels in C")
pytestmark = pytest.mark.parametrize(
    "target",
    [
        pytest.param("native", marks=in_c),
        pytest.param("triton", marks=pytest.mark.interpreter),
    ],
)

F64 = torch.float64
SHAPES = {
    "row": ((64, 33), (33,)),
    "column": ((64, 33), (64, 1)),
    "all": ((64, 33), ()),
    "one row": ((64, 33), (1, 33)),
    "middle": ((5, 40, 50, 3), (50, 1)),
    "first and last": ((5, 40, 50, 3), (40, 50, 1)),
    "outer": ((5, 40, 50, 3), (5, 1, 1, 1)),
    "between": ((5, 40, 3), (5, 1, 3)),
    "around": ((5, 7, 40, 3), (7, 1, 3)),
    "several threads": ((700, 301), (301,)),
    "several threads, all": ((700, 301), (1,)),
    "several tiles": ((3, 70000), (3, 1)),
}
each = pytest.mark.parametrize("name", SHAPES)


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each backward that was asked to sum could."""
    found: list[bool] = []
    wanted = sums.summing

    def counted(*args: object) -> object:
        run = wanted(*args)  # type: ignore[arg-type]
        found.append(run is not None)
        return run

    monkeypatch.setattr(sums, "summing", counted)
    yield found


def gradients(f: object, x: Tensor, b: Tensor, cotangent: Tensor) -> tuple[Tensor, ...]:
    return grad(f(x, b), (x, b), cotangent)  # type: ignore[operator]


@each
@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16], ids=str)
def test_right_sums(
    target: str, name: str, dtype: torch.dtype, summed: list[bool]
) -> None:
    whole, part = SHAPES[name]
    x = torch.rand(whole, dtype=dtype).requires_grad_()
    b = (torch.rand(part, dtype=dtype) + 0.5).requires_grad_()
    cotangent = torch.rand(whole, dtype=dtype)
    found = gradients(ops.atan2, x, b, cotangent)
    wide = [t.detach().double().requires_grad_() for t in (x, b)]
    wanted = gradients(torch.atan2, *wide, cotangent.double())
    error = {F64: 1e-12, torch.float32: 4e-6}.get(dtype, 1e-2)
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        assert got.dtype == dtype
        assert_close(got.double(), want, rtol=error, atol=error)
    assert summed == [True]


@each
def test_threads_and_layouts(target: str, name: str, summed: list[bool]) -> None:
    whole, part = SHAPES[name]
    x = torch.rand(whole[::-1], dtype=F64).permute(*range(len(whole))[::-1])
    b = torch.rand(part, dtype=F64)
    cotangent = torch.rand(whole, dtype=F64)[..., :1].expand(whole)
    x, b = x.requires_grad_(), b.requires_grad_()
    wanted = gradients(torch.hypot, x, b, cotangent)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3) if target == "native" else (1,):
            torch.set_num_threads(threads)
            found = [gradients(ops.hypot, x, b, cotangent) for _ in range(2)]
            assert_close(found[0], wanted)
            assert all(torch.equal(p, q) for p, q in zip(*found, strict=True))
    finally:
        torch.set_num_threads(before)
    assert summed
    assert all(summed)


def test_long_sums_are_exact_to_rounding(target: str) -> None:
    x = torch.full((1 << 22,), 0.1, requires_grad=True)
    b = torch.ones((), requires_grad=True)
    (found,) = grad(ops.mul(x, b).sum(), b)
    error = 1e-7 if target == "native" else 4e-7  # float64, float32
    assert_close(found.double(), x.detach().double().sum(), rtol=error, atol=0)


def test_derivatives_of_sums(target: str) -> None:
    x = torch.rand(3, 4, dtype=F64, requires_grad=True)
    b = (torch.rand(4, dtype=F64) + 0.5).requires_grad_()
    c = torch.rand(3, 1, dtype=F64).requires_grad_()

    def f(x: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return ops.addcmul(ops.hypot(x, b), c, b)

    fast = target == "triton"  # the interpreter is slow
    assert gradcheck(f, (x, b, c), check_batched_grad=True, fast_mode=fast)
    assert gradgradcheck(f, (x, b, c), fast_mode=fast)


def test_complex_and_empty_ones_are_summed_after(target: str) -> None:
    z = torch.rand(3, 4, dtype=torch.complex128).requires_grad_()
    b = torch.rand(4, dtype=torch.complex128).requires_grad_()
    weights = torch.rand(3, 4, dtype=torch.complex128)
    assert_close(gradients(ops.mul, z, b, weights), gradients(torch.mul, z, b, weights))
    e = torch.rand(0, 4).requires_grad_()
    f = torch.rand(4).requires_grad_()
    assert_close(gradients(ops.mul, e, f, torch.rand(0, 4))[1], torch.zeros(4))


def test_several_sums_at_once(target: str, summed: list[bool]) -> None:
    """Over rows, over columns and over everything, beside one that is no sum."""
    shapes = (70, 40), (40,), (70, 1), ()

    def f(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.sin(x * a + b) * c

    leaves = [torch.rand(s, dtype=F64).requires_grad_() for s in shapes]
    weight = torch.rand(shapes[0], dtype=F64)
    found = grad(fuse(f)(*leaves), leaves, weight)
    assert_close(found, grad(f(*leaves), leaves, weight))
    assert summed == [True]


def test_beside_a_gradient_that_is_the_cotangent(
    target: str, summed: list[bool]
) -> None:
    x = torch.rand(70, 40, dtype=F64).requires_grad_()
    a, b = (torch.rand(s, dtype=F64).requires_grad_() for s in ((40,), (70, 1)))
    weight = torch.rand(70, 40, dtype=F64)
    found = grad(ops.addcmul(x, a, b), (x, a, b), weight)
    assert_close(found, grad(torch.addcmul(x, a, b), (x, a, b), weight))
    assert summed == [True]


def test_what_lies_outside_of_a_tile_is_not_added(
    target: str, summed: list[bool]
) -> None:
    """Elements that are only padding would be NaN here: 0 divided by 0."""
    x = torch.rand(33, 17)[:, ::2].requires_grad_()
    b = torch.rand(9).add(0.5).requires_grad_()
    (found,) = grad(ops.div(x, b).sum(), b)
    (wanted,) = grad(torch.div(x.double(), b.double()).sum(), b)
    assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert summed == [True]
