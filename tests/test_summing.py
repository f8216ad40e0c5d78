"""Gradients of broadcast inputs: added up by the backward kernel itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close

from atentriton import launch, ops, targets

pytestmark = pytest.mark.skipif(targets.interpreted(), reason="about kernels in C")

F64 = torch.float64
SHAPES = {
    "row": ((64, 33), (33,)),
    "column": ((64, 33), (64, 1)),
    "all": ((64, 33), ()),
    "one row": ((64, 33), (1, 33)),
    "middle": ((5, 40, 50, 3), (50, 1)),
    "first and last": ((5, 40, 50, 3), (40, 50, 1)),
    "outer": ((5, 40, 50, 3), (5, 1, 1, 1)),
    "several threads": ((700, 301), (301,)),
    "several threads, all": ((700, 301), (1,)),
}
each = pytest.mark.parametrize("name", SHAPES)


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each backward that was asked to sum could."""
    found: list[bool] = []
    wanted = launch.summing

    def counted(*args: object) -> object:
        run = wanted(*args)  # type: ignore[arg-type]
        found.append(run is not None)
        return run

    monkeypatch.setattr(launch, "summing", counted)
    yield found


def gradients(f: object, x: Tensor, b: Tensor, cotangent: Tensor) -> tuple[Tensor, ...]:
    return grad(f(x, b), (x, b), cotangent)  # type: ignore[operator]


@each
@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16], ids=str)
def test_right_sums(name: str, dtype: torch.dtype, summed: list[bool]) -> None:
    whole, part = SHAPES[name]
    x = torch.rand(whole, dtype=dtype).requires_grad_()
    b = (torch.rand(part, dtype=dtype) + 0.5).requires_grad_()
    cotangent = torch.rand(whole, dtype=dtype)
    found = gradients(ops.atan2, x, b, cotangent)
    wide = [t.detach().double().requires_grad_() for t in (x, b)]
    wanted = gradients(torch.atan2, *wide, cotangent.double())
    error = {F64: 1e-12, torch.float32: 2e-6}.get(dtype, 1e-2)
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        assert got.dtype == dtype
        assert_close(got.double(), want, rtol=error, atol=error)
    assert summed == [True]


@each
def test_threads_and_layouts(name: str, summed: list[bool]) -> None:
    whole, part = SHAPES[name]
    x = torch.rand(whole[::-1], dtype=F64).permute(*range(len(whole))[::-1])
    b = torch.rand(part, dtype=F64)
    cotangent = torch.rand(whole, dtype=F64)[..., :1].expand(whole)
    x, b = x.requires_grad_(), b.requires_grad_()
    wanted = gradients(torch.hypot, x, b, cotangent)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found = [gradients(ops.hypot, x, b, cotangent) for _ in range(2)]
            assert_close(found[0], wanted)
            assert all(torch.equal(p, q) for p, q in zip(*found, strict=True))
    finally:
        torch.set_num_threads(before)
    assert summed
    assert all(summed)


def test_long_sums_are_exact_to_rounding() -> None:
    x = torch.full((1 << 22,), 0.1, requires_grad=True)
    b = torch.ones((), requires_grad=True)
    (found,) = grad(ops.mul(x, b).sum(), b)
    assert_close(found.double(), x.detach().double().sum(), rtol=1e-7, atol=0)


def test_derivatives_of_sums() -> None:
    x = torch.rand(3, 4, dtype=F64, requires_grad=True)
    b = (torch.rand(4, dtype=F64) + 0.5).requires_grad_()
    c = torch.rand(3, 1, dtype=F64).requires_grad_()

    def f(x: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return ops.addcmul(ops.hypot(x, b), c, b)

    assert gradcheck(f, (x, b, c), check_batched_grad=True)
    assert gradgradcheck(f, (x, b, c))


def test_complex_and_empty_ones_are_summed_after() -> None:
    z = torch.rand(3, 4, dtype=torch.complex128).requires_grad_()
    b = torch.rand(4, dtype=torch.complex128).requires_grad_()
    weights = torch.rand(3, 4, dtype=torch.complex128)
    assert_close(gradients(ops.mul, z, b, weights), gradients(torch.mul, z, b, weights))
    e = torch.rand(0, 4).requires_grad_()
    f = torch.rand(4).requires_grad_()
    assert_close(gradients(ops.mul, e, f, torch.rand(0, 4))[1], torch.zeros(4))
