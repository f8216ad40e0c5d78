"""Each pointwise proof on memory of every shape: values, dtypes, strides, gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.proofs import POINTWISE, Proof

# Both compute in float32 and round once; the functions themselves may differ by an ulp.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
SHAPE = (2, 3, 4, 5)


def _misaligned(x: Tensor) -> Tensor:
    return torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape).copy_(x)


def _stepped(x: Tensor) -> Tensor:
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
    return wide[..., ::2].copy_(x)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 3).contiguous().transpose(1, 3),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "stepped": _stepped,
    "expanded": lambda x: x[:1, :, :1].expand(SHAPE),
    "misaligned": _misaligned,
}
each = pytest.mark.parametrize("proof", POINTWISE, ids=lambda p: p.name)


def _same(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.stride() == theirs.stride()
    torch.testing.assert_close(
        ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True
    )


@each
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_values_and_layout(proof: Proof, layout: str, dtype: torch.dtype) -> None:
    given = [LAYOUTS[layout](x) for x in proof.sample(dtype, SHAPE)]
    _same(
        proof.ours(*given),
        proof.torch(*given),
        max(TOLERANCE[dtype], proof.torch_error),
    )


@each
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients(proof: Proof, layout: str) -> None:
    found: list[tuple[Tensor, ...]] = []
    for function in (proof.ours, proof.torch):
        leaves = proof.sample(torch.float64, SHAPE, requires_grad=True)
        value = function(*(LAYOUTS[layout](x) for x in leaves))
        weights = torch.linspace(-1, 2, value.numel(), dtype=value.dtype)
        cotangent = (
            weights.view(value.shape).transpose(0, 1).contiguous().transpose(0, 1)
        )
        found.append(torch.autograd.grad(value, leaves, cotangent))
    error = proof.torch_error
    torch.testing.assert_close(*found, rtol=error, atol=error)


@each
@pytest.mark.parametrize("layouts", [(0, 1), (1, 2), (3, 0), (4, 2), (2, 4)], ids=str)
def test_mixed_layouts(proof: Proof, layouts: tuple[int, int]) -> None:
    makers = [list(LAYOUTS.values())[i] for i in layouts]
    given = [makers[i % 2](x) for i, x in enumerate(proof.sample(torch.float64, SHAPE))]
    _same(proof.ours(*given), proof.torch(*given), proof.torch_error)


@each
def test_broadcasting(proof: Proof) -> None:
    if len(proof.domains) < 2:
        pytest.skip("one tensor has nothing to broadcast with")
    shapes = [(4, 1, 5), (3, 1), (1,)][: len(proof.domains)]
    found: list[tuple[Tensor, ...]] = []
    for function in (proof.ours, proof.torch):
        leaves = [
            proof.sample(shape=s, requires_grad=True)[i] for i, s in enumerate(shapes)
        ]
        value = function(*leaves)
        found.append((value, *torch.autograd.grad(value.square().sum(), leaves)))
    _same(found[0][0].detach(), found[1][0].detach(), proof.torch_error)
    torch.testing.assert_close(
        found[0][1:], found[1][1:], rtol=proof.torch_error, atol=proof.torch_error
    )


@each
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0, 3), (1,), (1, 1)], ids=str)
def test_small_shapes(proof: Proof, shape: tuple[int, ...]) -> None:
    found: list[tuple[Tensor, ...]] = []
    for function in (proof.ours, proof.torch):
        leaves = proof.sample(shape=shape, requires_grad=True)
        value = function(*leaves)
        found.append((value, *torch.autograd.grad(value.sum(), leaves)))
    _same(found[0][0].detach(), found[1][0].detach(), proof.torch_error)
    torch.testing.assert_close(
        found[0][1:], found[1][1:], rtol=proof.torch_error, atol=proof.torch_error
    )


@each
def test_integers_and_mixed_dtypes(proof: Proof) -> None:
    if "int" not in proof.kinds:
        pytest.skip("it takes floating-point numbers")
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
        given = [x.abs().to(dtype) + 1 for x in proof.sample(shape=(7, 5))]
        _same(proof.ours(*given), proof.torch(*given), 1e-6)
    if len(proof.domains) > 1:
        first, *others = proof.sample(torch.float16, (7, 5))
        wide = [x.to(torch.float32) for x in others]
        _same(proof.ours(first, *wide), proof.torch(first, *wide), 1e-5)


@each
def test_large_enough_for_threads(proof: Proof) -> None:
    given = proof.sample(torch.float32, (300, 701))
    _same(proof.ours(*given), proof.torch(*given), 2e-5)
    transposed = [x.t() for x in given]
    _same(proof.ours(*transposed), proof.torch(*transposed), 2e-5)
