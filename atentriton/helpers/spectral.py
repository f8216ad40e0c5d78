"""Derivatives of what depends on a matrix through its eigenvalues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def eig_backward(
    grads: Sequence[Tensor | None],
    self: Tensor,
    eigenvectors: bool,
    eigenvalues: Tensor,
    eigenvectors_return: Tensor,
) -> Tensor | None:
    """The gradient of A (`self`), n x n, from those of eigenvalues and eigenvectors.

    `eigenvalues` of a real A are n x 2, real and imaginary parts, those of a complex A
    are n; the columns V of `eigenvectors_return` have length one. `eigenvectors` says
    whether they were asked for: without them, and for complex eigenvalues of a real A,
    there is no gradient and RuntimeError says so.

    A V = V D gives dD = diag(P) and dV = V (P / E), less what would change lengths,
    with P = V^-1 dA V, E_ij = d_j - d_i, and zero on the diagonal. The adjoint is
    gA = V^-H (diag(gd) + V^H gW / conj(E)) V^H, gW = gV - V diag(Re(V^H gV)).
    For a complex A the phase of an eigenvector is anyone's choice: a loss that depends
    on it has no gradient.
    """
    by_values, by_vectors = grads
    if by_values is None and by_vectors is None:
        return None
    if not eigenvectors:
        raise RuntimeError(
            "eig has a gradient only where the eigenvectors are computed as well: call "
            "it with eigenvectors=True"
        )
    if self.is_complex():
        values = eigenvalues
    else:
        if bool((eigenvalues[:, 1] != 0).any()):
            raise RuntimeError(
                "eig has no gradient where a real matrix has complex eigenvalues; "
                "torch.linalg.eig has"
            )
        values = eigenvalues[:, 0]
        by_values = None if by_values is None else by_values[:, 0]
    adjoint = eigenvectors_return.mH
    middle = torch.zeros_like(self) if by_values is None else by_values.diag_embed()
    if by_vectors is not None:
        middle = middle + _by_vectors(by_vectors, values, eigenvectors_return)
    return torch.linalg.solve(adjoint, middle @ adjoint)


def _by_vectors(grad: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
    projected = vectors.mH @ grad
    along = projected.diagonal()
    if along.is_complex():
        tolerance = torch.finfo(along.real.dtype).eps ** 0.5
        if bool((along.imag.abs() > tolerance * grad.abs().amax(0).clamp(min=1)).any()):
            raise RuntimeError(
                "the loss depends on the phases of eigenvectors, which are arbitrary: "
                "eig has no gradient there"
            )
    projected = projected - vectors.mH @ vectors * along.real
    gaps = values - values[:, None]
    # The diagonal of `projected` is zero: ones there leave it so, and divide safely.
    ones = torch.eye(len(values), dtype=torch.bool, device=values.device)
    return (projected / gaps.conj().masked_fill(ones, 1)).masked_fill(ones, 0)


def matrix_exp_backward(self: Tensor, grad: Tensor) -> Tensor:
    """The gradient of A (`self`), n x n, from that of exp(A), both in batches.

    The exponential of [[M, G], [0, M]] has in its corner the derivative of exp at M
    along G; with M = A^H that is the gradient, the adjoint of the derivative at A.
    Source: A. H. Al-Mohy, N. J. Higham, "Computing the Frechet derivative of the matrix
    exponential", SIAM J. Matrix Anal. Appl. 30 (2009).
    """
    return linalg_matrix_exp_differential(self, grad, True)


def linalg_matrix_exp_differential(
    self: Tensor, along: Tensor, adjoint: bool
) -> Tensor:
    """The derivative of exp at A (`self`) along a matrix, or at A^H for a gradient."""
    order = self.shape[-1]
    matrix = self.mH if adjoint else self
    above = torch.cat((matrix, along), -1)
    below = torch.cat((torch.zeros_like(matrix), matrix), -1)
    return torch.matrix_exp(torch.cat((above, below), -2))[..., :order, order:]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "eig_backward": eig_backward,
    "matrix_exp_backward": matrix_exp_backward,
    "linalg_matrix_exp_differential": linalg_matrix_exp_differential,
}
