"""Operators that PyTorch has retired, made of those that have replaced them.

Each has the signature of the file and gives what the operator gave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _det_lu_based_helper(self: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The determinants of n x n matrices, their packed factors and the pivots.

    Each row that a pivot exchanges with another one turns the sign.
    """
    factors, pivots, _ = torch.linalg.lu_factor_ex(self)
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    stays = torch.arange(1, self.shape[-1] + 1, device=self.device) == pivots
    sign = torch.where(stays, 1, -1).prod(-1)
    return diagonal.prod(-1) * sign, factors, pivots


def cholesky(self: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factor of a Hermitian matrix, the lower one unless asked."""
    return torch.linalg.cholesky(self, upper=upper)


def eig(self: Tensor, eigenvectors: bool = False) -> tuple[Tensor, Tensor]:
    """The eigenvalues of an n x n matrix and its eigenvectors, none unless asked for.

    Those of a complex matrix are complex. Eigenvalues of a real one are n x 2, real and
    imaginary parts, and its eigenvectors are packed: of a pair of conjugates, the first
    column has the real part and the second the imaginary part of the vector that
    belongs to the eigenvalue with a positive imaginary part.
    """
    if self.ndim != 2 or self.shape[0] != self.shape[1]:
        raise RuntimeError(f"eig expects a square matrix, not {tuple(self.shape)}")
    if eigenvectors:
        values, vectors = torch.linalg.eig(self)
    else:
        values, vectors = torch.linalg.eigvals(self), self.new_empty(0)
    if self.is_complex():
        return values, vectors
    if eigenvectors:
        # The vector of the other eigenvalue is the conjugate.
        vectors = torch.where(values.imag < 0, -vectors.imag, vectors.real)
    return torch.view_as_real(values).clone(), vectors


def lstsq(self: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    """The X that minimizes |A X - B|, B = `self` (m x k), A (m x n) of full rank.

    Where rows are fewer, the X of least norm. The first result is max(m, n) x k: n rows
    of X; the squares of those below sum to the squared residuals. The second has A's
    factors as LAPACK packs them: QR, or LQ where rows are fewer.
    """
    if self.ndim != 2 or A.ndim != 2 or len(self) != len(A):
        shapes = f"{tuple(self.shape)} and {tuple(A.shape)}"
        raise RuntimeError(f"lstsq expects matrices with as many rows, not {shapes}")
    rows, columns = A.shape
    if rows >= columns:
        factors, scales = torch.geqrf(A)
        turned = torch.ormqr(factors, scales, self, transpose=True)
        triangle = factors[:columns].triu()
        solution = torch.linalg.solve_triangular(triangle, turned[:columns], upper=True)
        return torch.cat((solution, turned[columns:])), factors
    factors, scales = torch.geqrf(A.mH)  # A = L Q with L = R^H
    triangle = factors[:rows].triu().mH
    turned = torch.linalg.solve_triangular(triangle, self, upper=False)
    padded = torch.cat((turned, turned.new_zeros(columns - rows, self.shape[1])))
    return torch.ormqr(factors, scales, padded), factors.mH.resolve_conj()


def index_add_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any
) -> Tensor:
    """`alpha` times `source` added in place, as the default overload does as well."""
    return self.index_add_(dim, index, source, alpha=alpha)


VALUES: dict[str, Callable[..., Any]] = {
    "_det_lu_based_helper": _det_lu_based_helper,
    "cholesky": cholesky,
    "eig": eig,
    "index_add_.alpha": index_add_,
    "lstsq": lstsq,
}
