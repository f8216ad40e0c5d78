"""Every proof by PyTorch's own checks: reverse, forward, second order, batched."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from tests.conformance.proofs import PROOFS, Proof

FLAT = ("div.Tensor_mode trunc", "div.Tensor_mode floor")
each = pytest.mark.parametrize("proof", PROOFS, ids=lambda p: p.name)


@each
def test_gradcheck_in_every_mode(proof: Proof) -> None:
    tensors = proof.sample(requires_grad=True)
    assert gradcheck(
        proof.ours,
        tensors,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        check_undefined_grad=True,
    )


@each
def test_gradgradcheck_in_both_modes(proof: Proof) -> None:
    tensors = proof.sample(requires_grad=True)
    assert gradgradcheck(
        proof.ours, tensors, check_fwd_over_rev=True, check_rev_over_rev=True
    )


@each
def test_value_and_first_gradients_are_those_of_torch(proof: Proof) -> None:
    ours, theirs = proof.sample(requires_grad=True), proof.sample(requires_grad=True)
    value, expected = proof.ours(*ours), proof.torch(*theirs)
    error = proof.torch_error
    torch.testing.assert_close(value, expected, rtol=error, atol=error)
    weights = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).view_as(value)
    found = torch.autograd.grad(value, ours, weights)
    right = torch.autograd.grad(expected, theirs, weights)
    torch.testing.assert_close(found, right, rtol=error, atol=error)


@each
def test_one_gradient_at_a_time_is_the_same(proof: Proof) -> None:
    theirs = proof.sample(requires_grad=True)
    expected = torch.autograd.grad(proof.torch(*theirs).sum(), theirs)
    for i in range(len(theirs)):
        ours = proof.sample()
        ours[i].requires_grad_(True)
        (found,) = torch.autograd.grad(proof.ours(*ours).sum(), ours[i])
        error = proof.torch_error
        torch.testing.assert_close(found, expected[i], rtol=error, atol=error)


@each
def test_the_third_derivative(proof: Proof) -> None:
    if proof.name in FLAT:
        pytest.skip("its derivatives are zero")

    def third(function: object, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        value = function(*tensors).square()  # type: ignore[operator]
        for _ in range(3):
            grads = torch.autograd.grad(
                value.sum(), tensors, create_graph=True, allow_unused=True
            )
            value = sum(g.square().sum() for g in grads if g is not None)
        assert isinstance(value, torch.Tensor)
        return [value.detach()]

    ours = third(proof.ours, proof.sample(requires_grad=True))
    theirs = third(proof.torch, proof.sample(requires_grad=True))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
