"""Derivatives of Cholesky decompositions, and of what is made of their factors.

A = L L^H, where L is lower triangular with a positive diagonal; with `upper` the factor
given is L^H. All matrices may come in batches, real or complex. Gradients follow
PyTorch's convention: the change of the loss is Re tr(gA^H dA).

Sources: I. Murray, "Differentiation of the Cholesky decomposition", arXiv:1602.07527,
for the first two; the others are derived beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.linalg import solve_triangular


def cholesky_backward(grad: Tensor, upper: bool, L: Tensor) -> Tensor:
    """The gradient of A, n x n, from that of its factor L, n x n.

    With X the lower triangle of L^H gL, it is L^-H (X + X^H - diag X) L^-1 / 2: the
    adjoint of `cholesky_jvp`, made Hermitian as A is.
    """
    if upper:
        grad, L = grad.mH, L.mH
    lower = (L.mH @ grad).tril()
    middle = (lower + lower.tril(-1).mH) / 2
    left = solve_triangular(L.mH, middle, upper=True)
    return solve_triangular(L, left, upper=False, left=False)


def cholesky_jvp(self_t: Tensor, L: Tensor, upper: bool) -> Tensor:
    """The tangent of the factor, n x n, from that of A.

    dA = dL L^H + L dL^H gives L^-1 dA L^-H = L^-1 dL + (L^-1 dL)^H: the lower triangle
    with half the diagonal is L^-1 dL.
    """
    if upper:
        L = L.mH
    middle = solve_triangular(L, self_t, upper=False)
    middle = solve_triangular(L.mH, middle, upper=True, left=False)
    tangent = L @ (middle.tril() + middle.tril(-1)) / 2
    return tangent.mH if upper else tangent


def cholesky_solve_backward(
    grad: Tensor,
    self: Tensor,
    input2: Tensor,
    result: Tensor,
    upper: bool,
    mask: Sequence[bool] = (True, True),
) -> tuple[Tensor, Tensor]:
    """The gradients of B (`self`), n x k, and of A's factor, from that of X = A^-1 B.

    gB = A^-1 g. With S = gB X^H the change of the loss by dA is -Re tr(S^H dA), and
    dA = dL L^H + L dL^H makes that of the factor -(S + S^H) L. The operator reads one
    triangle of the factor; the other has no gradient.
    """
    factor = _read(input2, upper)
    grad_self = torch.cholesky_solve(grad, factor, upper=upper)
    sensitivity = grad_self @ result.mH
    return grad_self, _of_factor(-(sensitivity + sensitivity.mH), factor, upper)


def cholesky_inverse_backward(
    grad: Tensor, self: Tensor, upper: bool, inverse: Tensor
) -> Tensor:
    """The gradient of A's factor (`self`), n x n, from that of A^-1.

    dA^-1 = -A^-1 dA A^-1 and dA = dL L^H + L dL^H give -A^-1 (g + g^H) A^-1 L, in the
    triangle of the factor that the operator reads.
    """
    sensitivity = inverse @ (grad + grad.mH) @ inverse
    return _of_factor(-sensitivity, _read(self, upper), upper)


def cholesky_solve_jvp(
    result: Tensor, input2_p: Tensor, input2_t: Tensor, self_t: Tensor, upper: bool
) -> Tensor:
    """The tangent of X (`result`) = A^-1 B: A^-1 (dB - dA X)."""
    factor = _read(input2_p, upper)
    change = self_t - _of_square(factor, _read(input2_t, upper), upper) @ result
    return torch.cholesky_solve(change, factor, upper=upper)


def cholesky_inverse_jvp(
    self_p: Tensor, self_t: Tensor, result: Tensor, upper: bool
) -> Tensor:
    """The tangent of A^-1 (`result`): -A^-1 dA A^-1."""
    change = _of_square(_read(self_p, upper), _read(self_t, upper), upper)
    return -result @ change @ result


def _of_square(factor: Tensor, change: Tensor, upper: bool) -> Tensor:
    """dA of A = L L^H, or of A = U^H U."""
    found = change.mH @ factor if upper else change @ factor.mH
    return found + found.mH


def _read(factor: Tensor, upper: bool) -> Tensor:
    return factor.triu() if upper else factor.tril()


def _of_factor(symmetric: Tensor, factor: Tensor, upper: bool) -> Tensor:
    return _read(factor @ symmetric if upper else symmetric @ factor, upper)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky_backward": cholesky_backward,
    "cholesky_jvp": cholesky_jvp,
    "cholesky_solve_backward": cholesky_solve_backward,
    "cholesky_solve_jvp": cholesky_solve_jvp,
    "cholesky_inverse_backward": cholesky_inverse_backward,
    "cholesky_inverse_jvp": cholesky_inverse_jvp,
}
