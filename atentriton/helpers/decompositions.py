"""Derivatives of eigenvalue, singular value and QR decompositions, and of what is made
of them: pseudoinverses, least squares.

All matrices may come in batches, real or complex. Gradients follow PyTorch's
convention: the change of the loss is Re tr(gA^H dA). Eigenvalues, and singular values,
have to differ where vectors have gradients, and the phase of a vector is anyone's
choice: a loss that depends on it has no gradient.

Source: M. B. Giles, "Collected matrix derivative results for forward and reverse mode
algorithmic differentiation", 2008, and the product rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.linalg import solve_triangular


def linalg_eig_backward(
    grad_values: Tensor | None,
    grad_vectors: Tensor | None,
    values: Tensor,
    vectors: Tensor,
    hermitian: bool,
) -> Tensor | None:
    """The gradient of A = V D V^-1 from those of the eigenvalues D and vectors V.

    dD = diag(P) and dV = V (P / E), less what would change lengths, with P = V^-1 dA V
    and E_ij = d_j - d_i; V^-1 is V^H for a Hermitian matrix, where lengths stay.
    """
    if grad_values is None and grad_vectors is None:
        return None
    middle = None if grad_values is None else grad_values.to(vectors.dtype).diag_embed()
    if grad_vectors is not None:
        projected = vectors.mH @ grad_vectors
        _free_of_phases(projected.diagonal(dim1=-2, dim2=-1), grad_vectors)
        if hermitian:  # a change that is not Hermitian is none
            projected = (projected - projected.mH) / 2
        else:
            along = projected.diagonal(dim1=-2, dim2=-1).real.unsqueeze(-2)
            projected = projected - vectors.mH @ vectors * along
        turned = _divided(projected, _gaps(values).conj())
        middle = turned if middle is None else middle + turned
    assert middle is not None
    if hermitian:
        return vectors @ middle @ vectors.mH
    return torch.linalg.solve(vectors.mH, middle @ vectors.mH)


def linalg_eig_jvp(
    A_t: Tensor, values: Tensor, vectors: Tensor, hermitian: bool
) -> tuple[Tensor, Tensor]:
    """The tangents of eigenvalues and eigenvectors."""
    change = A_t.to(vectors.dtype) @ vectors
    middle = vectors.mH @ change if hermitian else torch.linalg.solve(vectors, change)
    along = middle.diagonal(dim1=-2, dim2=-1)
    found = vectors @ _divided(middle, _gaps(values))
    if hermitian:
        return along.real, found
    lengths = (vectors.conj() * found).real.sum(-2, keepdim=True)
    return along, found - vectors * lengths


def _gaps(values: Tensor) -> Tensor:
    """E_ij = d_j - d_i."""
    return values.unsqueeze(-2) - values.unsqueeze(-1)


def _divided(matrix: Tensor, gaps: Tensor) -> Tensor:
    """The quotients, and zeros on the diagonal."""
    identity = torch.eye(gaps.shape[-1], dtype=torch.bool, device=gaps.device)
    return torch.where(identity, 0, matrix / gaps.masked_fill(identity, 1))


def _free_of_phases(along: Tensor, grad: Tensor) -> None:
    """RuntimeError where a gradient turns vectors by phases."""
    if not along.is_complex() or not along.numel():
        return
    tolerance = torch.finfo(along.real.dtype).eps ** 0.5
    scale = grad.detach().abs().amax().clamp(min=1)
    if bool((along.detach().imag.abs() > 100 * tolerance * scale).any()):
        raise RuntimeError(
            "the loss depends on the phases of vectors, which are arbitrary: there is "
            "no gradient"
        )


def svd_backward(
    gU: Tensor | None,
    gS: Tensor | None,
    gVh: Tensor | None,
    U: Tensor,
    S: Tensor,
    Vh: Tensor,
) -> Tensor | None:
    """The gradient of A = U S V^H, m x n, from those of its reduced factors.

    With dP = U^H dA V, dS = Re diag(dP), U^H dU = (dP S + S dP^H) / E and V^H dV =
    (S dP + dP^H S) / E off the diagonal, E_ij = s_j^2 - s_i^2; what dU has outside of
    U's columns is (1 - U U^H) dA V / S, and so for V.
    """
    if gU is None and gS is None and gVh is None:
        return None
    middle = U.new_zeros((*S.shape, S.shape[-1]))
    gaps = _gaps(S * S)
    phases = None
    if gU is not None:
        turned = U.mH @ gU
        turned = turned - turned.mH
        phases = turned.diagonal(dim1=-2, dim2=-1)
        middle = middle + _divided(turned, gaps) * S.unsqueeze(-2)
    if gVh is not None:
        turned = Vh @ gVh.mH
        turned = turned - turned.mH
        own = turned.diagonal(dim1=-2, dim2=-1)
        middle = middle + S.unsqueeze(-1) * _divided(turned, gaps)
        if U.is_complex():
            _free_of_phases(own if phases is None else own + phases, gVh)
    elif phases is not None and gU is not None:
        _free_of_phases(phases, gU)
    if gS is not None:
        middle = middle + gS.to(U.dtype).diag_embed()
    if U.is_complex() and gU is not None and gVh is not None and phases is not None:
        middle = middle + (phases / (2 * S)).diag_embed()
    left = U @ middle
    if gU is not None and U.shape[-2] > S.shape[-1]:
        left = left + (gU - U @ (U.mH @ gU)) / S.unsqueeze(-2)
    found = left @ Vh
    if gVh is not None and Vh.shape[-1] > S.shape[-1]:
        found = found + U @ ((gVh - gVh @ Vh.mH @ Vh) / S.unsqueeze(-1))
    return found


def linalg_svd_jvp(
    A_t: Tensor, U: Tensor, S: Tensor, Vh: Tensor, full: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The tangents of U, S and V^H, as in `svd_backward`; U and V share a phase."""
    if full:
        raise NotImplementedError("the tangents of a full decomposition are not unique")
    projected = U.mH @ A_t @ Vh.mH
    along = projected.diagonal(dim1=-2, dim2=-1)
    gaps = _gaps(S * S)
    right = projected * S.unsqueeze(-2)
    left = S.unsqueeze(-1) * projected
    by_u = _divided(right + right.mH, gaps)
    by_v = _divided(left + left.mH, gaps)
    if U.is_complex():
        phases = (torch.complex(torch.zeros_like(S), along.imag / (2 * S))).diag_embed()
        by_u, by_v = by_u + phases, by_v - phases
    U_t, Vh_t = U @ by_u, by_v.mH @ Vh
    if U.shape[-2] > S.shape[-1]:
        outside = A_t @ Vh.mH
        U_t = U_t + (outside - U @ (U.mH @ outside)) / S.unsqueeze(-2)
    if Vh.shape[-1] > S.shape[-1]:
        outside = U.mH @ A_t
        Vh_t = Vh_t + (outside - outside @ Vh.mH @ Vh) / S.unsqueeze(-1)
    return U_t, along.real, Vh_t


def linalg_qr_backward(
    gQ: Tensor | None, gR: Tensor | None, Q: Tensor, R: Tensor, mode: str
) -> Tensor | None:
    """The gradient of A = Q R, m x n with m >= n, from those of its factors.

    With B = Q^H dA R^-1 and the skew-Hermitian W that has B's lower triangle,
    dQ = Q W + (dA R^-1 - Q B) and dR = (B - W) R. With fewer rows, Q R1 is the square
    part, and R2 = Q^H A2.
    """
    if gQ is None and gR is None:
        return None
    _has_derivative(Q, R, mode)
    rows, columns = Q.shape[-2], R.shape[-1]
    if rows < columns:
        square, beside = R[..., :rows], R[..., rows:]
        by_q = torch.zeros_like(Q) if gQ is None else gQ
        if gR is None:
            first = _tall_backward(by_q, None, Q, square)
            return torch.cat((first, torch.zeros_like(Q @ beside)), -1)
        by_q = by_q + Q @ beside @ gR[..., rows:].mH
        first = _tall_backward(by_q, gR[..., :rows], Q, square)
        return torch.cat((first, Q @ gR[..., rows:]), -1)
    return _tall_backward(gQ, gR, Q, R)


def _tall_backward(
    gQ: Tensor | None, gR: Tensor | None, Q: Tensor, R: Tensor
) -> Tensor:
    middle = None
    if gR is not None:
        middle = gR @ R.mH
    if gQ is not None:
        projected = Q.mH @ gQ
        middle = -projected if middle is None else middle - projected
    assert middle is not None
    middle = middle.triu()
    strict = middle.triu(1)
    along = middle.diagonal(dim1=-2, dim2=-1).real.to(middle.dtype).diag_embed()
    found = Q @ (strict + strict.mH + along)
    found = found if gQ is None else found + gQ
    return solve_triangular(R.mH, found, upper=False, left=False)


def linalg_qr_jvp(
    A_t: Tensor, Q: Tensor, R: Tensor, mode: str
) -> tuple[Tensor, Tensor]:
    """The tangents of Q and R."""
    _has_derivative(Q, R, mode)
    rows, columns = Q.shape[-2], R.shape[-1]
    wide = rows < columns
    square, change = (R[..., :rows], A_t[..., :rows]) if wide else (R, A_t)
    scaled = solve_triangular(square, change, upper=True, left=False)
    projected = Q.mH @ scaled
    strict = projected.tril(-1)
    turned = strict - strict.mH
    if Q.is_complex():
        phases = projected.diagonal(dim1=-2, dim2=-1).imag
        turned = turned + torch.complex(torch.zeros_like(phases), phases).diag_embed()
    Q_t = Q @ turned + scaled - Q @ projected
    R_t = (projected - turned) @ square
    if wide:
        beside = Q.mH @ A_t[..., rows:] - turned @ R[..., rows:]
        R_t = torch.cat((R_t, beside), -1)
    return Q_t, R_t


def _has_derivative(Q: Tensor, R: Tensor, mode: str) -> None:
    if mode == "r":
        raise NotImplementedError("QR has derivatives only where Q is computed as well")
    if mode == "complete" and Q.shape[-2] > R.shape[-1]:
        raise NotImplementedError(
            "a complete QR of a matrix with more rows than columns is not unique"
        )


def pinv_backward(grad: Tensor, pinvA: Tensor, A: Tensor) -> Tensor:
    """The gradient of A, m x n of constant rank, from that of P = A^+.

    dP = -P dA P + (1 - P A) dA^H P^H P + P P^H dA^H (1 - A P), by G. H. Golub and V.
    Pereyra, "The differentiation of pseudo-inverses", 1973; the adjoint, term by term.
    """
    adjoint = pinvA.mH
    first = adjoint @ grad @ adjoint
    second = adjoint @ (pinvA @ grad.mH)
    third = grad.mH @ pinvA @ adjoint
    return second - second @ pinvA @ A - first + third - A @ (pinvA @ third)


def pinv_jvp(A: Tensor, pinvA: Tensor, A_t: Tensor) -> Tensor:
    """The tangent of P, as in `pinv_backward`."""
    adjoint, change = pinvA.mH, A_t.mH
    second = change @ adjoint @ pinvA
    third = pinvA @ adjoint @ change
    found = second - pinvA @ (A @ second) + third - third @ A @ pinvA
    return found - pinvA @ A_t @ pinvA


def linalg_lstsq_backward(
    gX: Tensor | None,
    gL: Tensor | None,
    A: Tensor,
    B: Tensor,
    solution: Tensor,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of A and B from those of X = A^+ B and of the squared residuals.

    These are the column sums of |A X - B|^2, and do not depend on X where X is best.
    """
    vectors = B.dim() == A.dim() - 1
    matrix = B.unsqueeze(-1) if vectors else B
    grad_a = grad_b = None
    if gX is not None:
        pinvA = torch.linalg.pinv(A)
        grad = gX.unsqueeze(-1) if vectors else gX
        grad_a = pinv_backward(grad @ matrix.mH, pinvA, A)
        grad_b = pinvA.mH @ grad
    if gL is not None and gL.numel():
        found = solution.unsqueeze(-1) if vectors else solution
        residual = 2 * (A @ found - matrix) * gL.unsqueeze(-2)
        by_a = residual @ found.mH
        grad_a = by_a if grad_a is None else grad_a + by_a
        grad_b = -residual if grad_b is None else grad_b - residual
    return grad_a, grad_b.squeeze(-1) if vectors and grad_b is not None else grad_b


def linalg_lstsq_solution_jvp(A: Tensor, B: Tensor, A_t: Tensor, B_t: Tensor) -> Tensor:
    """The tangent of X = A^+ B."""
    pinvA = torch.linalg.pinv(A)
    vectors = B.dim() == A.dim() - 1
    matrix, change = (B.unsqueeze(-1), B_t.unsqueeze(-1)) if vectors else (B, B_t)
    found = pinv_jvp(A, pinvA, A_t) @ matrix + pinvA @ change
    return found.squeeze(-1) if vectors else found


def linalg_lstsq_residuals_jvp(
    A: Tensor, B: Tensor, A_t: Tensor, B_t: Tensor, solution: Tensor, residuals: Tensor
) -> Tensor:
    """The tangent of the squared residuals, where there are any."""
    if not residuals.numel():
        return torch.zeros_like(residuals)
    residual = A @ solution - B
    return 2 * (residual.conj() * (A_t @ solution - B_t)).real.sum(-2)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linalg_eig_backward": linalg_eig_backward,
    "linalg_eig_jvp": linalg_eig_jvp,
    "svd_backward": svd_backward,
    "linalg_svd_jvp": linalg_svd_jvp,
    "linalg_qr_backward": linalg_qr_backward,
    "linalg_qr_jvp": linalg_qr_jvp,
    "pinv_backward": pinv_backward,
    "pinv_jvp": pinv_jvp,
    "linalg_lstsq_backward": linalg_lstsq_backward,
    "linalg_lstsq_solution_jvp": linalg_lstsq_solution_jvp,
    "linalg_lstsq_residuals_jvp": linalg_lstsq_residuals_jvp,
}
