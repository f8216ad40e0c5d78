"""Operators with tensors along a dimension: fake quantization by channel."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton import ops

LOW, HIGH = -8, 7


def given(axis: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    x = torch.linspace(-3, 3, 2 * 3 * 4, dtype=dtype).view(2, 3, 4)
    return x, torch.linspace(0.1, 0.4, x.shape[axis], dtype=torch.float32)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("zero_dtype", [torch.int32, torch.float32], ids=str)
def test_values_and_gradients(axis: int, zero_dtype: torch.dtype) -> None:
    x, scale = given(axis)
    zero = torch.arange(len(scale)).to(zero_dtype) + (
        0.25 if zero_dtype.is_floating_point else 0
    )
    zero = zero.to(zero_dtype)
    aten = torch.ops.aten.fake_quantize_per_channel_affine_cachemask
    ours = ops.fake_quantize_per_channel_affine_cachemask(
        x, scale, zero, axis, LOW, HIGH
    )
    theirs = aten(x, scale, zero, axis, LOW, HIGH)
    assert_close(tuple(ours), tuple(theirs))
    x.requires_grad_()
    found = ops.fake_quantize_per_channel_affine_cachemask(
        x, scale, zero, axis, LOW, HIGH
    )
    (gradient,) = torch.autograd.grad(found[0].sum(), x)
    assert_close(gradient, theirs[1].to(x.dtype))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_learnable_gradients(axis: int) -> None:
    x, scale = given(axis)
    zero = torch.arange(len(scale), dtype=torch.float32)
    leaves = [t.requires_grad_() for t in (x, scale, zero)]
    weights = torch.linspace(-1, 2, x.numel()).view(x.shape)
    found = []
    for operator in (
        ops._fake_quantize_learnable_per_channel_affine,
        torch.ops.aten._fake_quantize_learnable_per_channel_affine,
    ):
        value = operator(*leaves, axis, LOW, HIGH, 0.5)
        found.append((value, *torch.autograd.grad(value, leaves, weights)))
    assert_close(found[0], found[1])
