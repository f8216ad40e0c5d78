"""Derivatives of LU decompositions, and of what is made of their factors.

A = P L U with a permutation P, L unit lower trapezoidal and U upper trapezoidal; LU
holds both factors in one matrix of A's shape, without the ones. All matrices may come
in batches, real or complex, and A may be rectangular. P is locally constant.

With k = min(m, n), L1 the first k rows of L, U1 the first k columns of U, and
Phi = L1^-1 (P^T dA)[:k, :k] U1^-1, the tangents of the square parts are
L1 tril(Phi, -1) and triu(Phi) U1; gradients are the adjoints of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.linalg import lu_solve, solve_triangular
from torch.nn.functional import pad


def _lu_with_info_backward(
    grad: Tensor,
    self: Tensor,
    LU: Tensor,
    pivots: Tensor,
) -> Tensor:
    """The gradient of A (`self`), m x n, from that of the packed factors."""
    return _packed_backward(grad, *torch.lu_unpack(LU, pivots))


def lu_factor_ex_backward(
    grad: Tensor, LU: Tensor, pivots: Tensor, pivot: bool
) -> Tensor:
    """The same, where nothing else of A is known."""
    return _packed_backward(grad, *torch.lu_unpack(LU, pivots))


def linalg_lu_backward(
    grad_l: Tensor | None,
    grad_u: Tensor | None,
    P: Tensor,
    L: Tensor,
    U: Tensor,
    pivot: bool,
) -> Tensor | None:
    """The same from the gradients of L and U, which lie in matrices of their own."""
    packed = lu_unpack_backward(grad_l, grad_u, L.shape[-2], U.shape[-1])
    return None if packed is None else _packed_backward(packed, P, L, U)


def _packed_backward(
    grad: Tensor, permutation: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    k = upper.shape[-2]
    square_l, square_u = lower[..., :k, :], upper[..., :, :k]
    packed = grad.narrow(-2, 0, k).narrow(-1, 0, k)
    middle = (square_l.mH @ packed).tril(-1) + (packed.triu() @ square_u.mH).triu()
    below, beside = grad[..., k:, :], grad[..., :, k:]
    if below.shape[-2]:  # L2 = (P^T A)[k:] U^-1
        middle = middle - (lower[..., k:, :].mH @ below).triu()
    if beside.shape[-1]:  # U2 = L^-1 (P^T A)[:, k:]
        middle = middle - (beside @ upper[..., :, k:].mH).tril(-1)
    corner = solve_triangular(square_l.mH, middle, upper=True, unitriangular=True)
    corner = _divided(corner, square_u)
    if below.shape[-2]:
        permuted = torch.cat((corner, _divided(below, square_u)), -2)
    elif beside.shape[-1]:
        rest = solve_triangular(square_l.mH, beside, upper=True, unitriangular=True)
        permuted = torch.cat((corner, rest), -1)
    else:
        permuted = corner
    return permutation @ permuted


def _divided(matrix: Tensor, upper: Tensor) -> Tensor:
    """`matrix` U^-H."""
    return solve_triangular(upper.mH, matrix, upper=False, left=False)


def _lu_with_info_jvp(self_t: Tensor, LU: Tensor, pivots: Tensor) -> Tensor:
    """The tangent of the packed factors, m x n, from that of A."""
    return _packed_jvp(self_t, *torch.lu_unpack(LU, pivots))


def lu_factor_ex_jvp(A_t: Tensor, LU: Tensor, pivots: Tensor, pivot: bool) -> Tensor:
    """The same, for newer formulas."""
    return _packed_jvp(A_t, *torch.lu_unpack(LU, pivots))


def linalg_lu_jvp(
    A_t: Tensor, P: Tensor, L: Tensor, U: Tensor, pivot: bool
) -> tuple[Tensor, Tensor]:
    """The tangents of L and U, in matrices of their own."""
    packed, k = _packed_jvp(A_t, P, L, U), U.shape[-2]
    return packed.narrow(-1, 0, k).tril(-1), packed.narrow(-2, 0, k).triu()


def _packed_jvp(
    self_t: Tensor, permutation: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    k = upper.shape[-2]
    square_l, square_u = lower[..., :k, :], upper[..., :, :k]
    permuted = permutation.mT @ self_t
    middle = permuted.narrow(-2, 0, k).narrow(-1, 0, k)
    middle = solve_triangular(square_l, middle, upper=False, unitriangular=True)
    middle = solve_triangular(square_u, middle, upper=True, left=False)
    strict, triangle = middle.tril(-1), middle.triu()
    tangent = square_l @ strict + triangle @ square_u
    if self_t.shape[-2] > k:  # dL2 = (dA2 - L2 dU) U^-1
        below = solve_triangular(square_u, permuted[..., k:, :], upper=True, left=False)
        below = below - lower[..., k:, :] @ triangle
        return torch.cat((tangent, below), -2)
    if self_t.shape[-1] > k:  # dU2 = L^-1 (dA2 - dL U2)
        beside = permuted[..., :, k:]
        beside = solve_triangular(square_l, beside, upper=False, unitriangular=True)
        beside = beside - strict @ upper[..., :, k:]
        return torch.cat((tangent, beside), -1)
    return tangent


def lu_solve_backward(
    grad: Tensor,
    self: Tensor,
    LU_data: Tensor,
    LU_pivots: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradients of B (`self`), n x k, and of A's packed factors, from that of
    X = A^-1 B.

    gB = A^-H g. By L U X = P^T B, dX = -U^-1 dU X - (L U)^-1 dL U X: the part of U is
    -triu(U^-H g X^H), that of L is -tril(P^T gB (U X)^H, -1). Gradients of arguments
    that were broadcast have the shape of the batch.
    """
    solution = lu_solve(LU_data, LU_pivots, self)
    grad_self = lu_solve(LU_data, LU_pivots, grad, adjoint=True)
    upper = LU_data.triu()
    by_upper = solve_triangular(upper.mH, grad, upper=False) @ solution.mH
    # P^T gB is L^-H U^-H g: this keeps the permutation out.
    by_lower = solve_triangular(
        _unit_lower(LU_data).mH,
        by_upper @ upper.mH,
        upper=True,
        unitriangular=True,
    )
    return grad_self, -(by_upper.triu() + by_lower.tril(-1))


def lu_solve_forward_AD(
    self_t: Tensor,
    LU_data_t: Tensor,
    LU_data_p: Tensor,
    LU_pivots: Tensor,
    result: Tensor,
) -> Tensor:
    """The tangent of X (`result`), n x k, from those of B and of the packed factors.

    L U X = P^T B gives A^-1 dB - U^-1 (L^-1 dL U X + dU X).
    """
    upper = LU_data_p.triu()
    change = solve_triangular(
        _unit_lower(LU_data_p),
        LU_data_t.tril(-1) @ (upper @ result),
        upper=False,
        unitriangular=True,
    )
    change = solve_triangular(upper, change + LU_data_t.triu() @ result, upper=True)
    return lu_solve(LU_data_p, LU_pivots, self_t) - change


def _unit_lower(packed: Tensor) -> Tensor:
    """L, whose diagonal `unitriangular` takes as ones."""
    return packed.tril(-1)


def lu_unpack_backward(*args: Any) -> Tensor | None:
    """The gradient of the packed factors, m x n, from those of L and U.

    Newer formulas give these two and the sizes m and n; older ones the gradients of
    P, L and U in a list, the factors, and whether these were unpacked at all.

    Unpacking copies: L's part is below the diagonal, U's on it and above, each in the
    corner of the matrix from which it came. None where nothing came of the factors.
    """
    if len(args) == 3:
        (_, grad_l, grad_u), factors, unpacked = args
        if not unpacked:
            return None
        rows, columns = factors.shape[-2:]
    else:
        grad_l, grad_u, rows, columns = args
    found: list[Tensor] = []
    if grad_l is not None:
        missing = columns - grad_l.shape[-1]
        found.append(pad(grad_l.tril(-1), (0, missing)))
    if grad_u is not None:
        missing = rows - grad_u.shape[-2]
        found.append(pad(grad_u.triu(), (0, 0, 0, missing)))
    if not found:
        return None
    return found[0] if len(found) == 1 else found[0] + found[1]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_lu_with_info_backward": _lu_with_info_backward,
    "_lu_with_info_jvp": _lu_with_info_jvp,
    "lu_solve_backward": lu_solve_backward,
    "lu_solve_forward_AD": lu_solve_forward_AD,
    "lu_unpack_backward": lu_unpack_backward,
    "lu_factor_ex_backward": lu_factor_ex_backward,
    "lu_factor_ex_jvp": lu_factor_ex_jvp,
    "linalg_lu_backward": linalg_lu_backward,
    "linalg_lu_jvp": linalg_lu_jvp,
}
