"""Every proof under the transforms of torch.func, torch.compile, export and make_fx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from tests.conformance.proofs import POINTWISE, PROOFS, Proof

each = pytest.mark.parametrize("proof", PROOFS, ids=lambda p: p.name)


def _close(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def _places(proof: Proof) -> tuple[int, ...]:
    return tuple(range(len(proof.domains)))


@each
def test_grad(proof: Proof) -> None:
    tensors = proof.sample()

    def loss(function: Callable[..., Tensor]) -> Any:
        return grad(lambda *x: function(*x).sin().sum(), _places(proof))(*tensors)

    _close(loss(proof.ours), loss(proof.torch))


@each
def test_vmap(proof: Proof) -> None:
    batch = [torch.stack([x, x + 0.25, x * 1.5]) for x in proof.sample()]
    _close(vmap(proof.ours)(*batch), vmap(proof.torch)(*batch))
    last = [b.movedim(0, -1) for b in batch]
    _close(
        vmap(proof.ours, in_dims=-1, out_dims=1)(*last),
        vmap(proof.torch, in_dims=-1, out_dims=1)(*last),
    )


@each
def test_jvp(proof: Proof) -> None:
    tensors, tangents = tuple(proof.sample()), tuple(proof.sample(seed=1))
    _close(
        jvp(proof.ours, tensors, tangents),
        jvp(proof.torch, tensors, tangents),
    )


@each
def test_dual_numbers_with_one_tangent(proof: Proof) -> None:
    tensors, tangents = proof.sample(), proof.sample(seed=1)

    def tangent(function: Callable[..., Tensor], i: int) -> Tensor:
        with forward_ad.dual_level():
            given = list(tensors)
            given[i] = forward_ad.make_dual(tensors[i], tangents[i])
            value, found = forward_ad.unpack_dual(function(*given))
            return torch.zeros_like(value) if found is None else found.clone()

    for i in _places(proof):
        _close(tangent(proof.ours, i), tangent(proof.torch, i))


@each
@pytest.mark.parametrize("transform", [jacfwd, jacrev, hessian])
def test_jacobians(proof: Proof, transform: Callable[..., Any]) -> None:
    tensors = proof.sample(shape=(3,)) if proof.shapes is None else proof.sample()
    places = _places(proof)
    _close(
        transform(proof.ours, places)(*tensors),
        transform(proof.torch, places)(*tensors),
    )


@each
def test_vmap_of_grad_and_jvp_of_grad(proof: Proof) -> None:
    tensors = [torch.stack([x, x + 0.25]) for x in proof.sample()]

    def per_sample(function: Callable[..., Tensor]) -> Any:
        return vmap(grad(lambda *x: function(*x).square().sum()))(*tensors)

    _close(per_sample(proof.ours), per_sample(proof.torch))
    single = tuple(t[0] for t in tensors)
    tangents = tuple(t[1] for t in tensors)

    def curvature(function: Callable[..., Tensor]) -> Any:
        return jvp(grad(lambda *x: function(*x).square().sum()), single, tangents)

    _close(curvature(proof.ours), curvature(proof.torch))


@each
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(proof: Proof, mode: str) -> None:
    tensors = proof.sample()

    def step(*x: Tensor) -> Any:
        leaves = [t.detach().requires_grad_(True) for t in x]
        value = proof.ours(*leaves)
        return value, torch.autograd.grad(value.square().sum(), leaves)

    graph = make_fx(step, tracing_mode=mode)(*tensors)
    other = [t * 1.25 for t in proof.sample(seed=3)]
    _close(graph(*other), step(*other))


@pytest.mark.parametrize("proof", POINTWISE, ids=lambda p: p.name)
def test_export(proof: Proof) -> None:
    class Module(torch.nn.Module):
        def forward(self, tensors: list[Tensor]) -> Tensor:
            return proof.ours(*tensors) * 2

    tensors = proof.sample()
    program = torch.export.export(Module(), (tensors,))
    other = proof.sample(seed=3)
    _close(program.module()(other), proof.torch(*other) * 2)


@pytest.mark.parametrize("proof", PROOFS[:4], ids=lambda p: p.name)
def test_inductor_in_one_graph(proof: Proof) -> None:
    _inductor(proof)


@pytest.mark.slow
@pytest.mark.parametrize("proof", PROOFS[4:], ids=lambda p: p.name)
def test_inductor_in_one_graph_of_the_others(proof: Proof) -> None:
    _inductor(proof)


def _inductor(proof: Proof) -> None:
    torch.compiler.reset()  # Dynamo counts all proofs as recompilations of one lambda
    compiled = torch.compile(lambda *x: proof.ours(*x) * 2, fullgraph=True)
    found: list[tuple[Tensor, ...]] = []
    for function in (compiled, lambda *x: proof.torch(*x) * 2):
        leaves = proof.sample(requires_grad=True)
        value = function(*leaves)
        found.append((value, *torch.autograd.grad(value.square().sum(), leaves)))
    _close(*found)
