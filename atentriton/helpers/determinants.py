"""Gradients of determinants and of their logarithms, at singular matrices as well.

Matrices are n x n and may come in batches, real or complex; gradients follow PyTorch's
convention. The derivative of det A by an element is the element's cofactor. Where A is
far from singular, all cofactors together are det(A) A^-T. Elsewhere A is rotated until
it is diagonal, the part with large singular values is eliminated, and the determinant
of what remains is computed without divisions: there are derivatives of any order at any
matrix.

Source: R. S. Bird, "A simple division-free algorithm for computing determinants",
Information Processing Letters 111 (2011), for the polynomial.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import (
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
)
from torch.nn.functional import pad

from atentriton import gate


def _det_lu_based_helper_backward(
    grad: Tensor,
    det: Tensor,
    self: Tensor,
    lu: Tensor,
    pivs: Tensor,
) -> Tensor:
    """The gradient of A (`self`) from that of its determinant, g conj(cofactors).

    `grad` and `det` have the batch's shape; `lu` and `pivs` are A's packed factors.
    Small pivots make an inverse inaccurate, whose errors cancel in det(A) A^-1 but not
    in its derivatives: there the polynomial is used.
    """
    pivots = lu.detach().diagonal(dim1=-2, dim2=-1).abs()
    if pivots.shape[-1] == 0:
        return torch.zeros_like(self)
    least = torch.finfo(pivots.dtype).eps ** 0.5 * pivots.amax(-1)
    singular = (pivots.amin(-1) <= least) | (det.detach() == 0)
    scale = _matrices(grad * det.conj())
    if gate.records((grad, det, self)):
        # The factors are not what the gradient can be differentiated by.
        regular = scale * torch.linalg.inv_ex(_without(singular, self)).inverse.mH
    else:
        identity = torch.eye(self.shape[-1], dtype=self.dtype, device=self.device)
        factors = _without(singular, lu)
        regular = torch.linalg.lu_solve(factors, pivs, scale * identity, adjoint=True)
    return _completed(regular, singular, lambda a: _cofactors(a).conj(), grad, self)


def logdet_backward(grad: Tensor, self: Tensor, logdet: Tensor) -> Tensor:
    """The gradient of A (`self`) from that of log det A, g A^-H; both have the batch's
    shape.

    A singular matrix, whose `logdet` is -inf, has its cofactors / +0: infinities with
    the cofactors' signs, NaN where one is zero or complex. The rest of the batch is not
    touched.
    """
    if self.shape[-1] == 0:
        return torch.zeros_like(self)
    singular = logdet.detach().real == -torch.inf
    inverse = torch.linalg.inv_ex(_without(singular, self)).inverse
    regular = _matrices(grad) * inverse.mH
    return _completed(regular, singular, _slopes, grad, self.detach())


def linalg_det_backward(
    grad: Tensor, det: Tensor, A: Tensor, LU: Tensor, pivots: Tensor
) -> Tensor:
    """The same where PyTorch has factored the transpose of what is contiguous."""
    turned = A.is_contiguous() and not A.is_complex()
    matrices = A.mT if turned else A
    found = _det_lu_based_helper_backward(grad, det, matrices, LU, pivots)
    return found.mT if turned else found


def linalg_det_jvp(
    A_t: Tensor, det: Tensor, LU: Tensor, pivots: Tensor, turned: bool
) -> Tensor:
    """The tangent of det A, the sum of dA times the cofactors, from the factors of A,
    or `turned` of its transpose."""
    A_t = A_t.mT if turned else A_t
    permutation, lower, upper = torch.lu_unpack(LU, pivots)
    matrices = permutation @ lower @ upper
    ones = torch.ones_like(det)
    cofactors = _det_lu_based_helper_backward(ones, det, matrices, LU, pivots).conj()
    return (cofactors * A_t).sum((-2, -1))


def slogdet_backward(
    grad_sign: Tensor | None,
    grad_logabsdet: Tensor | None,
    A: Tensor,
    sign: Tensor,
    LU: Tensor,
    pivots: Tensor,
) -> Tensor | None:
    """The gradient of A from those of s and l, det A = s exp(l).

    With z = tr(A^-1 dA), dl = Re z and ds = i s Im z: it is (g_l - i Im(conj(g_s) s))
    A^-H. A real sign is locally constant.
    """
    total = grad_logabsdet
    if sign.is_complex() and grad_sign is not None:
        turned = (grad_sign.conj() * sign).imag
        real = torch.zeros_like(turned) if total is None else total
        total = torch.complex(real, -turned)
    if total is None:
        return None
    singular = (LU.diagonal(dim1=-2, dim2=-1) == 0).any(-1)
    return logdet_backward(total, A, torch.where(singular, -torch.inf, 0.0))


def slogdet_jvp(
    LU: Tensor, pivots: Tensor, A_t: Tensor, sign: Tensor, turned: bool
) -> tuple[Tensor, Tensor]:
    """The tangents of the sign and of the logarithm, as in `slogdet_backward`."""
    solved = torch.linalg.lu_solve(LU, pivots, A_t.mT if turned else A_t)
    change = solved.diagonal(dim1=-2, dim2=-1).sum(-1)
    if not sign.is_complex():
        return torch.zeros_like(sign), change
    return sign * torch.complex(torch.zeros_like(change.real), change.imag), change.real


def _slopes(matrices: Tensor) -> Tensor:
    """conj(cofactors) / +0; a cofactor that is nothing but rounding counts as zero."""
    cofactors = _cofactors(matrices)
    order = matrices.shape[-1]
    largest = torch.linalg.matrix_norm(matrices, 2) ** (order - 1)
    rounding = order**2 * torch.finfo(largest.dtype).eps * largest
    noise = cofactors.abs() <= _matrices(rounding)
    return cofactors.masked_fill(noise, 0).conj().sgn() * torch.inf


def _matrices(scalars: Tensor) -> Tensor:
    """A scalar for each matrix of a batch, to be broadcast over it."""
    return scalars[..., None, None]


def _without(singular: Tensor, matrices: Tensor) -> Tensor:
    """The matrices, and the identity in the place of those that are singular."""
    identity = torch.eye(
        matrices.shape[-1], dtype=matrices.dtype, device=matrices.device
    )
    return torch.where(_matrices(singular), identity, matrices)


def _completed(
    regular: Tensor,
    singular: Tensor,
    special: Callable[[Tensor], Tensor],
    grad: Tensor,
    matrices: Tensor,
) -> Tensor:
    """The gradients `regular`, or for singular matrices g `special`(A)."""
    if _is_batched(singular):
        found = _matrices(grad) * special(matrices)
        return torch.where(_matrices(singular), found, regular)
    if not singular.any():
        return regular
    if singular.ndim == 0:
        return _matrices(grad) * special(matrices)
    found = _matrices(grad[singular]) * special(matrices[singular])
    return regular.index_put((singular,), found)


def _is_batched(tensor: Tensor) -> bool:
    """Whether `vmap` runs over the tensor, so that nobody can ask for its elements."""
    while is_functorch_wrapped_tensor(tensor):
        if is_batchedtensor(tensor):
            return True
        tensor = get_unwrapped(tensor)
    return False


def _cofactors(matrices: Tensor) -> Tensor:
    """The derivatives of det A by A's elements, not conjugated, for n > 0.

    With constants U, V from A = U S V^H, X = U^H A V is diagonal in value and det A =
    det(U) det(V^H) det(X): the cofactors are those of X turned back. Where X11 has the
    large singular values, det X = det(X11) det(W) with W = X22 - X21 X11^-1 X12, and
    what is small is in W alone, as many rows as the worst matrix of the batch needs.
    """
    u, s, vh = torch.linalg.svd(matrices.detach())
    order, small = matrices.shape[-1], _small(s)
    large = order - small
    # Their geometric mean is one then: no product of them overflows needlessly.
    unit = s[..., :large].log().mean(-1).exp() if large else torch.ones_like(s[..., 0])
    middle = u.mH @ (matrices / _matrices(unit)) @ vh.mH
    found = _eliminated(middle, large) if large else _division_free(middle)
    sign = torch.linalg.det(u) * torch.linalg.det(vh)
    return u.conj() @ found @ vh.conj() * _matrices(sign * unit ** (order - 1))


def _small(s: Tensor) -> int:
    """How many singular values are too small to divide by, in the worst matrix."""
    if _is_batched(s):
        return s.shape[-1]
    least = torch.finfo(s.dtype).eps ** 0.5 * s[..., :1]
    return int((s <= least).sum(-1).max())


def _eliminated(matrices: Tensor, large: int) -> Tensor:
    """The cofactors of X, of which the first `large` rows and columns can be inverted.

    K are those of W. d det X = det(X11) (tr(K^T dW) + det(W) tr(X11^-1 dX11)), where
    dW = dX22 - dX21 Y - Z dX12 + Z dX11 Y with Y = X11^-1 X12 and Z = X21 X11^-1.
    """
    corner = matrices[..., :large, :large]
    inverse = torch.linalg.inv_ex(corner).inverse
    y = inverse @ matrices[..., :large, large:]
    z = matrices[..., large:, :large] @ inverse
    rest = matrices[..., large:, large:] - z @ matrices[..., :large, large:]
    if rest.shape[-1]:
        k = _division_free(rest)
        det = _matrices((rest[..., 0, :] * k[..., 0, :]).sum(-1))
    else:
        k, det = rest, 1
    first = torch.cat((z.mT @ k @ y.mT + det * inverse.mT, -z.mT @ k), -1)
    second = torch.cat((-k @ y.mT, k), -1)
    return torch.cat((first, second), -2) * _matrices(torch.linalg.det(corner))


def _division_free(matrices: Tensor) -> Tensor:
    """The cofactors of X by n products of matrices and no division.

    F_1 = X, F_k+1 = mu(F_k) X gives (-1)^(n-1) det X as the first element of F_n, where
    mu keeps what is above the diagonal and puts minus the sum of all later diagonal
    elements on it. With X nearly diagonal and positive no such sum cancels. G_k are the
    derivatives of that element by F_k, in reverse order.
    """
    order = matrices.shape[-1]
    powers = [matrices]
    for _ in range(order - 1):
        powers.append(_mu(powers[-1]) @ matrices)
    last = torch.diag_embed(torch.arange(order, device=matrices.device) == 0)
    by_power = last.to(matrices.dtype).expand(matrices.shape)
    found = torch.zeros_like(matrices)
    for power in reversed(powers[:-1]):
        found = found + _mu(power).mT @ by_power
        by_power = _mu_transposed(by_power @ matrices.mT)
    found = found + by_power
    return found if order % 2 else -found


def _mu(matrices: Tensor) -> Tensor:
    later = matrices.diagonal(dim1=-2, dim2=-1)[..., 1:]
    sums = later.flip(-1).cumsum(-1).flip(-1)
    return matrices.triu(1) - torch.diag_embed(pad(sums, (0, 1)))


def _mu_transposed(matrices: Tensor) -> Tensor:
    sums = matrices.diagonal(dim1=-2, dim2=-1)[..., :-1].cumsum(-1)
    return matrices.triu(1) - torch.diag_embed(pad(sums, (1, 0)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_det_lu_based_helper_backward": _det_lu_based_helper_backward,
    "linalg_det_backward": linalg_det_backward,
    "linalg_det_jvp": linalg_det_jvp,
    "logdet_backward": logdet_backward,
    "slogdet_backward": slogdet_backward,
    "slogdet_jvp": slogdet_jvp,
}
