"""torch.compile(..., backend="atentriton"): models, transforms, derivatives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close

from atentriton.dynamo import atentriton as backend
from tests.compiled import F64, leaf
from tests.compiled import fresh as fresh


def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    h = F.gelu(x @ w + b)
    return (torch.tanh(h) * h + 1).sum(-1)


def test_derivatives_of_both_orders_and_modes() -> None:
    given = leaf(4, 6), leaf(6, 5), leaf(5)
    compiled = torch.compile(layer, backend=backend)
    assert_close(compiled(*given), layer(*given))
    assert gradcheck(compiled, given, check_forward_ad=True)
    assert gradgradcheck(compiled, given)


@pytest.mark.parametrize("training", [True, False])
def test_a_model_with_dropout_and_buffers(training: bool) -> None:
    model = nn.Sequential(
        nn.Linear(6, 8),
        nn.LayerNorm(8),
        nn.SiLU(),
        nn.Dropout(0.1),
        nn.Linear(8, 3),
        nn.BatchNorm1d(3),
    ).double()
    model.train(training)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for rows in (4, 3, 5, 9):
        x = torch.randn(rows, 6, dtype=F64)
        results: list[tuple[Tensor, ...]] = []
        for f in (compiled, model):
            torch.manual_seed(1)
            value = f(x)
            results.append(
                (value, *grad(value.square().sum(), list(model.parameters())))
            )
        assert_close(results[0], results[1])


def test_gradients_inside_of_what_is_compiled() -> None:
    def residual(x: Tensor) -> Tensor:
        u = torch.sin(x) * torch.exp(-x * x)
        (ux,) = grad(u.sum(), x, create_graph=True)
        (uxx,) = grad(ux.sum(), x, create_graph=True)
        return uxx + u * ux

    x = leaf(7)
    found, wanted = torch.compile(residual, backend=backend)(x), residual(x)
    assert_close(found, wanted)
    assert_close(grad(found.sum(), x), grad(wanted.sum(), x))


def test_writes_to_arguments_and_intermediates() -> None:
    def writing(x: Tensor, buffer: Tensor) -> Tensor:
        buffer.mul_(0.9).add_(x.detach() * 0.1)
        y = x * 2
        y += buffer
        y.relu_()
        z = x.clone()
        z[:, 0] = 1.5
        return y * z

    x, ours = leaf(4, 6), torch.ones(4, 6, dtype=F64)
    theirs = ours.clone()
    found = torch.compile(writing, backend=backend)(x, ours)
    assert_close(found, writing(x, theirs))
    assert_close(ours, theirs)


def test_autocast() -> None:
    given = [torch.randn(4, 6), torch.randn(6, 5), torch.randn(5)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.compile(layer, backend=backend)(*given)
        wanted = layer(*given)
    assert_close(found, wanted, rtol=2e-2, atol=2e-2)
