"""Eigenvalues, singular values, QR, pseudoinverses: derivatives beside torch's own.

Losses do not depend on what a decomposition leaves open.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from atentriton.helpers import decompositions, determinants, lu
from tests.helpers.applied import leaves, operator
from tests.helpers.rules import BOTH

ATEN = torch.ops.aten
SHAPES = pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4), (2, 4, 3)], ids=str)


def agrees(value: Any, pullback: Any, pushforward: Any, loss: Any, x: Tensor) -> None:
    """First and second derivatives, and tangents, of a loss of the results."""
    ours = operator(value, pullback, pushforward)
    given = leaves(x)
    found, expected = loss(ours(*given)), loss(value(*given))
    weight = torch.randn_like(x)
    by_order = []
    for result in (found, expected):
        (first,) = torch.autograd.grad(result, given, create_graph=True)
        (second,) = torch.autograd.grad((first * weight.conj()).sum().real, given)
        by_order.append((first, second))
    assert_close(*by_order, rtol=1e-6, atol=1e-6)
    assert gradcheck(
        lambda x: loss(ours(x)), given, check_forward_ad=True, atol=1e-4, fast_mode=True
    )


@BOTH
def test_hermitian_eigenvalues(dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 3, dtype=dtype)

    def value(x: Tensor) -> Any:
        return ATEN._linalg_eigh(x + x.mH, "L", True)

    def pullback(grads: Any, _: Any, found: Any) -> Tensor:
        grad = decompositions.linalg_eig_backward(*grads, *found, True)
        return grad + grad.mH

    def pushforward(tangents: Any, _: Any, found: Any) -> Any:
        change = tangents[0] + tangents[0].mH
        return decompositions.linalg_eig_jvp(change, *found, True)

    def loss(found: Any) -> Tensor:
        values, vectors = found
        weights = torch.arange(3.0, dtype=torch.float64).to(dtype)
        return values.sin().sum() + (vectors.abs() ** 2 * weights).abs().sum()

    agrees(value, pullback, pushforward, loss, x)


def test_eigenvalues() -> None:
    def loss(found: Any) -> Tensor:
        values, vectors = found
        projector = vectors @ (values.sin().unsqueeze(-1) * torch.linalg.inv(vectors))
        return projector.abs().square().sum()

    agrees(
        torch.linalg.eig,
        lambda g, _, r: decompositions.linalg_eig_backward(*g, *r, False),
        lambda t, _, r: decompositions.linalg_eig_jvp(t[0], *r, False),
        loss,
        torch.randn(2, 3, 3, dtype=torch.complex128),
    )


def test_a_loss_of_phases_has_no_gradient() -> None:
    x = torch.randn(3, 3, dtype=torch.complex128)
    values, vectors = torch.linalg.eig(x)
    with pytest.raises(RuntimeError, match="phases"):
        decompositions.linalg_eig_backward(None, 1j * vectors, values, vectors, False)


@BOTH
@SHAPES
def test_singular_values(shape: Any, dtype: torch.dtype) -> None:
    def loss(found: Any) -> Tensor:
        u, s, vh = found
        return (u @ (s.sin().unsqueeze(-1) * vh)).abs().square().sum() + (
            (u[..., :, :2] @ vh[..., :2, :]).real.sin().sum()
        )

    agrees(
        lambda x: torch.linalg.svd(x, full_matrices=False),
        lambda g, _, r: decompositions.svd_backward(*g, *r),
        lambda t, _, r: decompositions.linalg_svd_jvp(t[0], *r, False),
        loss,
        torch.randn(shape, dtype=dtype),
    )


@BOTH
@SHAPES
def test_qr(shape: Any, dtype: torch.dtype) -> None:
    def loss(found: Any) -> Tensor:
        q, r = found
        return q.real.sin().sum() + (r.abs() ** 2).sin().sum() + q.abs().exp().sum()

    agrees(
        torch.linalg.qr,
        lambda g, _, r: decompositions.linalg_qr_backward(*g, *r, "reduced"),
        lambda t, _, r: decompositions.linalg_qr_jvp(t[0], *r, "reduced"),
        loss,
        torch.randn(shape, dtype=dtype),
    )


@BOTH
@SHAPES
def test_pseudoinverses(shape: Any, dtype: torch.dtype) -> None:
    agrees(
        torch.linalg.pinv,
        lambda g, i, r: decompositions.pinv_backward(g[0], r[0], i[0]),
        lambda t, i, r: decompositions.pinv_jvp(i[0], r[0], t[0]),
        lambda found: found.abs().square().sum(),
        torch.randn(shape, dtype=dtype),
    )


@BOTH
def test_least_squares(dtype: torch.dtype) -> None:
    a = torch.randn(4, 3, dtype=dtype, requires_grad=True)
    b = torch.randn(4, 2, dtype=dtype, requires_grad=True)
    found = torch.linalg.lstsq(a, b, driver="gelsd")
    solution = found.solution
    residuals = (a @ solution - b).abs().square().sum(-2)
    grads = torch.randn_like(solution), torch.randn_like(residuals)
    expected = torch.autograd.grad([solution, residuals], [a, b], grads)
    given = (a.detach(), b.detach(), solution.detach())
    got = decompositions.linalg_lstsq_backward(*grads, *given, [True, True])
    assert_close(list(got), list(expected))
    changes = torch.randn_like(a), torch.randn_like(b)
    tangent = decompositions.linalg_lstsq_solution_jvp(*given[:2], *changes)
    by_square = decompositions.linalg_lstsq_residuals_jvp(
        *given[:2], *changes, given[2], residuals
    )
    pairs = zip(got, changes, strict=True)
    change = sum((g.conj() * t).sum().real for g, t in pairs)
    both = (grads[0].conj() * tangent).sum().real + (grads[1] * by_square).sum()
    assert_close(both, change)


@BOTH
def test_determinants_with_signs(dtype: torch.dtype) -> None:
    def loss(found: Any) -> Tensor:
        return found[1].sin().sum() + (found[0].conj() * (2 + 1j)).real.sum()

    agrees(
        ATEN._linalg_slogdet,
        lambda g, i, r: determinants.slogdet_backward(*g[:2], i[0], r[0], *r[2:]),
        lambda t, _, r: (
            *determinants.slogdet_jvp(*r[2:], t[0], r[0], not dtype.is_complex),
            torch.zeros_like(r[2]),
            None,
        ),
        loss,
        torch.randn(2, 3, 3, dtype=dtype),
    )


@BOTH
@SHAPES
def test_factors(shape: Any, dtype: torch.dtype) -> None:
    x = torch.randn(shape, dtype=dtype) + 4 * torch.eye(*shape[-2:], dtype=dtype)

    def loss(found: Any) -> Tensor:
        return found[1].abs().square().sum() + found[2].real.sin().sum()

    agrees(
        torch.linalg.lu,
        lambda g, _, r: lu.linalg_lu_backward(*g[1:], *r, True),
        lambda t, _, r: (torch.zeros_like(r[0]), *lu.linalg_lu_jvp(t[0], *r, True)),
        loss,
        x,
    )


@BOTH
@pytest.mark.parametrize("turned", [True, False], ids=["turned", ""])
def test_determinants(turned: bool, dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 3, dtype=dtype)
    x = x.mT if turned else x
    det, factors, pivots = ATEN._linalg_det(x)
    (given,) = leaves(x)
    grad, change = torch.randn_like(det), torch.randn_like(x)
    (expected,) = torch.autograd.grad(torch.linalg.det(given), given, grad)
    found = determinants.linalg_det_backward(grad, det, x, factors, pivots)
    assert_close(found, expected)
    _, tangent = torch.func.jvp(torch.linalg.det, (x,), (change,))
    other = not turned and not dtype.is_complex
    assert_close(
        determinants.linalg_det_jvp(change, det, factors, pivots, other), tangent
    )
