"""Layers of networks, Fourier transforms, complex numbers: what their gradients are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton.helpers import complexes, fourier, layers
from tests.helpers.applied import leaves
from tests.helpers.rules import holds, same_gradient

ATEN = torch.ops.aten


def test_gated_units_twice() -> None:
    g, x = torch.randn(2, 3).double(), torch.randn(2, 6).double()

    def backward(grad: Tensor, g: Tensor, x: Tensor, _: Tensor) -> Any:
        first = layers.glu_double_backward_grad_output(grad, x, 1)
        return first, layers.glu_double_backward(grad, g, x, 1)

    holds(lambda g, x: ATEN.glu_backward(g, x, 1), backward, g, x)


def test_pooling_twice() -> None:
    x = torch.randn(1, 2, 4, 4, dtype=torch.float64)
    _, at = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    same_gradient(
        lambda y: ATEN.max_unpool2d(y, at, [4, 4]),
        lambda g, y, _: layers.max_pool_double_backward(g, at, 2),
        torch.randn(1, 2, 2, 2).double(),
    )


@pytest.mark.parametrize("padding", [-1, 2])
def test_embeddings_twice(padding: int) -> None:
    at = torch.tensor([[0, 2, 2], [3, 1, 0]])
    holds(
        lambda g: ATEN.embedding_dense_backward(g, at, 5, padding, False),
        lambda h, g, _: layers.embedding_dense_double_backward(h, at, padding),
        torch.randn(2, 3, 4).double(),
    )


def test_sums_of_products_of_three() -> None:
    def backward(grad: Tensor, *given: Tensor) -> Any:
        ways = [0], [1], [2], [3], [True, True, True]
        return layers._trilinear_backward(grad, *given[:3], *ways)

    shapes = (3, 4, 5), (2, 4, 5), (2, 3, 5)
    holds(
        lambda a, b, c: ATEN._trilinear(a, b, c, [0], [1], [2], [3]),
        backward,
        *(torch.randn(s).double() for s in shapes),
    )


def test_dropout() -> None:
    mask = torch.tensor([True, False, True])
    found = layers.dropout_backward(torch.tensor([1.0, 2.0, 3.0]), mask, 2.0)
    assert found.tolist() == [2, 0, 6]


@pytest.mark.parametrize("size", [5, 6])
@pytest.mark.parametrize("onesided", [True, False])
def test_real_to_complex_transforms(size: int, onesided: bool) -> None:
    holds(
        lambda x: ATEN._fft_r2c(x, [0, 1], 1, onesided),
        lambda g, x, _: fourier.fft_r2c_backward(g, [0, 1], 1, onesided, size),
        torch.randn(3, size).double(),
    )


@pytest.mark.parametrize("size", [1, 5, 6])
def test_complex_to_real_transforms(size: int) -> None:
    x = torch.fft.rfft2(torch.randn(3, size, dtype=torch.float64))
    given = leaves(x)
    result = ATEN._fft_c2r(given[0], [0, 1], 2, size)
    grad = torch.randn_like(result).requires_grad_()
    (expected,) = torch.autograd.grad(result, given, grad.detach())
    found = fourier.fft_c2r_backward(grad, [0, 1], 2)
    assert_close(found, expected)
    assert torch.autograd.gradcheck(lambda g: fourier.fft_c2r_backward(g, [1], 2), grad)


def test_polar() -> None:
    r, t = torch.rand(4).double() + 0.5, torch.randn(4).double()
    same_gradient(torch.polar, lambda g, r, t, y: complexes.polar_backward(g, y), r, t)
