"""Dtypes: those that an operator does not take, and integers where it takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton import ops

COMPLEX = torch.tensor([1 + 2j, 0.5 - 1j])
BOOL = torch.tensor([True, False])
REFUSED: dict[str, Callable[[Any], Tensor]] = {
    "atan2 of complex": lambda o: o.atan2(COMPLEX, COMPLEX),
    "bitwise_not of float": lambda o: o.bitwise_not(torch.rand(2)),
    "erfinv of complex": lambda o: o.erfinv(COMPLEX),
    "floor of complex": lambda o: o.floor(COMPLEX),
    "igamma of complex": lambda o: o.igamma(COMPLEX, COMPLEX),
    "lgamma of complex": lambda o: o.lgamma(COMPLEX),
    "maximum of complex": lambda o: o.maximum(COMPLEX, COMPLEX),
    "neg of bool": lambda o: o.neg(BOOL),
    "gelu by another name": lambda o: (
        o.gelu if o is ops else torch.nn.functional.gelu
    )(torch.rand(2), approximate="tan"),
    "sub of bool": lambda o: o.sub(BOOL, BOOL),
    "xlogy of complex": lambda o: o.xlogy(COMPLEX, 2),
}
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
integers = pytest.mark.parametrize("dtype", INTEGERS, ids=str)


@pytest.mark.parametrize("name", REFUSED)
def test_the_error_is_that_of_torch(name: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)) as theirs:
        REFUSED[name](torch)
    with pytest.raises(type(theirs.value)) as ours:
        REFUSED[name](ops)
    assert str(ours.value) == str(theirs.value)


@integers
def test_powers_of_integers_wrap_around(dtype: torch.dtype) -> None:
    base = torch.arange(-9, 10).to(dtype)
    exponents = torch.arange(-2 if dtype.is_signed else 0, 70).to(dtype)[:, None]
    assert torch.equal(ops.pow(base, exponents), torch.pow(base, exponents))
    for exponent in range(12):
        assert torch.equal(ops.pow(base, exponent), torch.pow(base, exponent))
    assert torch.equal(ops.pow(3, exponents.abs()), torch.pow(3, exponents.abs()))


@integers
def test_signs_of_integers(dtype: torch.dtype) -> None:
    x = torch.arange(-3, 4).to(dtype)
    assert torch.equal(ops.signbit(x), torch.signbit(x))
    assert torch.equal(ops.sgn(x), torch.sgn(x))
    assert torch.equal(ops.sgn(x > 0), torch.sgn(x > 0))
    assert torch.equal(ops.signbit(x > 0), torch.signbit(x > 0))


STORED: dict[str, tuple[Any, ...]] = {
    "huber_loss": (0, 0.5),
    "soft_margin_loss": (0,),
    "mse_loss_backward": (0,),
    "smooth_l1_loss_backward": (0, 0.5),
    "soft_margin_loss_backward": (0,),
}
HALF, SINGLE, DOUBLE = torch.float16, torch.float32, torch.float64


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64, HALF, DOUBLE])
def test_a_margin_is_one_of_the_dtype_of_self(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 2, 3], dtype=dtype)
    target = torch.tensor([1.0, -1.0, 1.0, -1.0])
    for margin in (1.0, 2.6):
        found = ops.hinge_embedding_loss(x, target, margin, 0)
        theirs = torch.ops.aten.hinge_embedding_loss(x, target, margin, 0)
        torch.testing.assert_close(found, theirs)


@pytest.mark.parametrize("dtypes", [(SINGLE, HALF), (HALF, DOUBLE), (DOUBLE, SINGLE)])
def test_a_gradient_of_mish_has_the_dtype_of_self(
    dtypes: tuple[torch.dtype, ...],
) -> None:
    gradient, x = (torch.rand(5).to(dtype) for dtype in dtypes)
    found = ops.mish_backward(gradient, x)
    assert found.dtype == torch.ops.aten.mish_backward(gradient, x).dtype == x.dtype


@pytest.mark.parametrize("name", STORED)
def test_some_losses_have_the_dtype_of_self_whatever_the_others_have(name: str) -> None:
    place, count = (1, 3) if name.endswith("_backward") else (0, 2)
    for dtype, others in ((HALF, SINGLE), (SINGLE, DOUBLE), (DOUBLE, HALF)):
        tensors = [torch.randn(4, 6).to(others) for _ in range(count)]
        tensors[place] = tensors[place].to(dtype)
        found = getattr(ops, name)(*tensors, *STORED[name])
        theirs = getattr(torch.ops.aten, name)
        assert found.dtype == theirs(*tensors, *STORED[name]).dtype == dtype
        exact = theirs(*[t.double() for t in tensors], *STORED[name])
        torch.testing.assert_close(found, exact.to(dtype))
