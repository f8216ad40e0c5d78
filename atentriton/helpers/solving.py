"""Derivatives of solutions of linear equations.

X solves A X = B, or X A = B where `left` is false; all may come in batches, real or
complex. With `adjoint` A^H takes the place of A. Gradients follow PyTorch's convention,
by which the change of the loss is Re tr(gA^H dA).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.linalg import lu_solve, solve_triangular


def linalg_solve_backward(
    grad: Tensor,
    result: Tensor,
    A: Tensor,
    LU: Tensor,
    pivots: Tensor,
    left: bool,
    wanted: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients of A and B from that of X (`result`): gB = A^-H g, gA = -gB X^H.

    Vectors count as matrices of one column.
    """
    vectors = _is_vector(A, result)
    if vectors:
        grad, result = grad.unsqueeze(-1), result.unsqueeze(-1)
    grad_b = torch.linalg.solve(A.mH, grad, left=left)
    grad_a = -grad_b @ result.mH if left else -result.mH @ grad_b
    return grad_a, grad_b.squeeze(-1) if vectors else grad_b


def linalg_solve_jvp(
    A_t: Tensor, B_t: Tensor, result: Tensor, LU: Tensor, pivots: Tensor, left: bool
) -> Tensor:
    """The tangent of X, A^-1 (dB - dA X) from A's factors."""
    vectors = _is_vector(LU, result)
    if vectors:
        B_t, result = B_t.unsqueeze(-1), result.unsqueeze(-1)
    change = B_t - (A_t @ result if left else result @ A_t)
    found = lu_solve(LU, pivots, change, left=left)
    return found.squeeze(-1) if vectors else found


def _is_vector(matrix: Tensor, solution: Tensor) -> bool:
    batch = solution.shape == matrix.shape[:-1]
    return solution.dim() == 1 or (solution.dim() == matrix.dim() - 1 and batch)


def linalg_solve_triangular_backward(
    grad: Tensor,
    self: Tensor,
    result: Tensor,
    upper: bool,
    left: bool,
    unitriangular: bool,
    mask: Sequence[bool],
) -> tuple[Tensor, Tensor]:
    """The gradients of A (`self`) and B, as `linalg_solve_backward`; A's triangle that
    is read has one."""
    ways = {"upper": not upper, "left": left, "unitriangular": unitriangular}
    grad_b = solve_triangular(self.mH, grad, **ways)
    grad_a = -grad_b @ result.mH if left else -result.mH @ grad_b
    return _triangle(grad_a, upper, unitriangular), grad_b


def linalg_solve_triangular_forward_AD(
    self_t: Tensor,
    B_t: Tensor,
    self_p: Tensor,
    result: Tensor,
    upper: bool,
    left: bool,
    unitriangular: bool,
) -> Tensor:
    """The tangent of X, A^-1 (dB - dA X) with the triangle of dA that is read."""
    change = _triangle(self_t, upper, unitriangular)
    change = B_t - (change @ result if left else result @ change)
    return solve_triangular(
        self_p, change, upper=upper, left=left, unitriangular=unitriangular
    )


def _triangle(matrix: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    strict = int(unitriangular)
    return matrix.triu(strict) if upper else matrix.tril(-strict)


def triangular_solve_backward(
    grad: Tensor | None,
    grad_copy: Tensor | None,
    self: Tensor,
    A: Tensor,
    solution: Tensor,
    upper: bool,
    transpose: bool,
    unitriangular: bool,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of B (`self`) and A, from those of X and of the copy of A.

    With `transpose` A^T takes the place of A, and the gradient of A is turned back.
    """
    if grad is None:
        return None, grad_copy
    matrix = A.mT if transpose else A
    ways = upper != transpose, True, unitriangular, mask
    grad_a, grad_b = linalg_solve_triangular_backward(grad, matrix, solution, *ways)
    grad_a = grad_a.mT if transpose else grad_a
    return grad_b, grad_a if grad_copy is None else grad_a + grad_copy


def triangular_solve_jvp(
    solution: Tensor,
    A_p: Tensor,
    A_t: Tensor,
    B_t: Tensor,
    upper: bool,
    transpose: bool,
    unitriangular: bool,
) -> Tensor:
    """The tangent of X."""
    if transpose:
        A_p, A_t = A_p.mT, A_t.mT
    ways = upper != transpose, True, unitriangular
    return linalg_solve_triangular_forward_AD(A_t, B_t, A_p, solution, *ways)


def linalg_lu_solve_LU(
    grad: Tensor, LU: Tensor, pivots: Tensor, X: Tensor, left: bool, adjoint: bool
) -> Tensor:
    """The gradient of A's packed factors from that of X.

    With gB the gradient of B, that of A is -gB X^H, or of A^H where that was solved
    for, and -X^H gB from the right. dA = P (dL U + L dU) makes it, up to P^T, U^H from
    the right below the diagonal, and L^H from the left on it and above.
    """
    grad_b = lu_solve(LU, pivots, grad, left=left, adjoint=not adjoint)
    grad_a = -grad_b @ X.mH if left else -X.mH @ grad_b
    permutation, lower, upper = torch.lu_unpack(LU, pivots)
    permuted = permutation.mT @ (grad_a.mH if adjoint else grad_a)
    return (permuted @ upper.mH).tril(-1) + (lower.mH @ permuted).triu()


def linalg_lu_solve_jvp(
    X: Tensor,
    LU: Tensor,
    pivots: Tensor,
    LU_t: Tensor,
    B_t: Tensor,
    left: bool,
    adjoint: bool,
) -> Tensor:
    """The tangent of X, A^-1 (dB - dA X) with dA = P (dL U + L dU)."""
    permutation, lower, upper = torch.lu_unpack(LU, pivots)
    change = permutation @ (LU_t.tril(-1) @ upper + lower @ LU_t.triu())
    change = change.mH if adjoint else change
    change = B_t - (change @ X if left else X @ change)
    return lu_solve(LU, pivots, change, left=left, adjoint=adjoint)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linalg_solve_backward": linalg_solve_backward,
    "linalg_solve_jvp": linalg_solve_jvp,
    "linalg_solve_triangular_backward": linalg_solve_triangular_backward,
    "linalg_solve_triangular_forward_AD": linalg_solve_triangular_forward_AD,
    "triangular_solve_backward": triangular_solve_backward,
    "triangular_solve_jvp": triangular_solve_jvp,
    "linalg_lu_solve_LU": linalg_lu_solve_LU,
    "linalg_lu_solve_jvp": linalg_lu_solve_jvp,
}
