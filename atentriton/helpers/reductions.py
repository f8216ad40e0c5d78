"""Derivatives of reductions, after torch/csrc/autograd/FunctionsManual.cpp.

`grad` is the gradient of the reduced tensor, `self` what was reduced, of the sizes
`sizes`. `dim` has the dimensions that were reduced, negative ones counting from the
end; none stands for all. With `keepdim` they are there in `grad`, of size 1. All of it
is for real and complex tensors, differentiable again, and linear in `grad`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

Dims = int | Sequence[int] | None


def sum_backward(
    grad: Tensor, sizes: Sequence[int], dim: Dims, keepdim: bool
) -> Tensor:
    """The gradient of a sum: every term has that of the sum it is in."""
    return _kept(grad, dim, len(sizes), keepdim).expand(sizes)


def _safe_size(sizes: Sequence[int], dim: Dims) -> Any:
    """How many elements were reduced to one; 1 for a tensor without dimensions."""
    return math.prod(sizes[d] for d in _wrapped(dim, len(sizes)))


def norm_backward(
    grad: Tensor,
    self: Tensor,
    p: float | None,
    norm: Tensor,
    dim: Dims = (),
    keepdim: bool = True,
) -> Tensor:
    """The gradient of norm = (sum |self|^p)^(1/p), with p = 2 for None.

    It is grad sgn(self) (|self| / norm)^(p - 1), and depends on quotients only, which
    do not overflow. At p = inf elements of the greatest magnitude share evenly, and at
    -inf those of the least. Where self is 0, or the norm, the gradient is 0, the least
    of the subgradients; so it is for p < 1, where the derivative is infinite. The count
    of what is not 0, p = 0, is locally constant.
    """
    p = 2.0 if p is None else float(p)
    grad = _kept(grad, dim, self.dim(), keepdim)
    norm = _kept(norm, dim, self.dim(), keepdim)
    if p == 0:
        return torch.zeros_like(self)
    if p == 1:
        return grad * self.sgn()
    if math.isinf(p):
        magnitude = self.abs()
        chosen = (magnitude == norm) | magnitude.isnan()
        return _shared(grad, chosen, dim) * self.sgn()
    vanishing = norm == 0
    ratio = self / torch.where(vanishing, 1, norm)
    return torch.where(vanishing, 0, grad * _power(ratio, self == 0, p))


def _power(ratio: Tensor, zero: Tensor, p: float) -> Tensor:
    """sgn(ratio) |ratio|^(p - 1), and 0 where `zero` says that `ratio` is.

    For an even p it is a polynomial, which has all derivatives at 0; for others the
    power is kept away from 0, where a derivative would be 0 times infinity.
    """
    if p % 2 == 0 and p > 0:
        square = (ratio * ratio.conj()).real if ratio.is_complex() else ratio * ratio
        return ratio * square ** (int(p) // 2 - 1)
    magnitude = torch.where(zero, 1, ratio).abs()
    return torch.where(zero, 0, ratio.sgn() * magnitude ** (p - 1))


def logsumexp_backward(
    grad: Tensor, self: Tensor, result: Tensor, dim: Dims, keepdim: bool
) -> Tensor:
    """The gradient of log(sum exp(self)): grad exp(self - result), conjugated.

    Where the result is infinite, the elements that are the same infinity share evenly.
    """
    grad = _kept(grad, dim, self.dim(), keepdim)
    result = _kept(result, dim, self.dim(), keepdim)
    tied = (self.real == result.real) & self.real.isinf()
    share = 1 / _count(tied, dim).to(result.real.dtype)
    weight = torch.where(tied, share, torch.where(tied, 0, self - result).exp())
    return grad * weight.conj()


def logsumexp_jvp(self_p: Tensor, self_t: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """The tangent of log(sum exp(self_p)): tangents, weighted as the gradient is."""
    dims = _wrapped(dim, self_p.dim())
    result = self_p.logsumexp(dims, keepdim=True)
    ones = torch.ones_like(result)
    weight = logsumexp_backward(ones, self_p, result, dims, True).conj()
    return (weight * self_t).sum(dims, keepdim)


def nansum_backward(grad: Tensor, self: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """The gradient of a sum that leaves NaN out."""
    return sum_backward(grad, self.shape, dim, keepdim).masked_fill(self.isnan(), 0)


def prod_backward(
    grad: Tensor,
    self: Tensor,
    result: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
) -> Tensor:
    """The gradient of a product, of all or along `dim`: that of all other factors.

    They are multiplied from both ends, and nothing is divided by: zeros need no case
    of their own, in derivatives of any order.
    """
    if dim is None:
        flat = self.reshape(-1)
        return (grad * _others(flat, 0).conj()).reshape(self.shape)
    return _kept(grad, dim, self.dim(), keepdim) * _others(self, dim).conj()


def _others(factors: Tensor, dim: int) -> Tensor:
    """For each factor along `dim`, the product of the others."""
    if factors.dim() == 0 or factors.shape[dim] < 2:
        return torch.ones_like(factors)
    return _before(factors, dim) * _before(factors.flip(dim), dim).flip(dim)


def _before(factors: Tensor, dim: int) -> Tensor:
    """For each factor along `dim`, the product of those before it."""
    first = torch.ones_like(factors.narrow(dim, 0, 1))
    rest = factors.narrow(dim, 0, factors.shape[dim] - 1)
    return torch.cat((first, rest), dim).cumprod(dim)


def softmax_double_backward(
    grad: Tensor, grad_output: Tensor, dim: int, output: Tensor
) -> Tensor:
    """The gradient of y (`output`) from that of y (g - sum(y g)), g = `grad_output`."""
    along = (output * grad).sum(dim, keepdim=True)
    return (
        grad * (grad_output - (output * grad_output).sum(dim, keepdim=True))
        - grad_output * along
    )


def amaxamin_jvp(
    self_p: Tensor, self_t: Tensor, result: Tensor, dim: Dims, keepdim: bool
) -> Tensor:
    """The tangent of an extremum: the mean of the ties'."""
    dims = _wrapped(dim, self_p.dim())
    chosen = _chosen(self_p, _kept(result, dim, self_p.dim(), keepdim))
    read = torch.where(chosen, self_t, 0).sum(dims, keepdim)
    return read / chosen.sum(dims, keepdim)


def aminmax_backward(
    self: Tensor,
    dim: int | None,
    keepdim: bool,
    grad_min: Tensor | None,
    grad_max: Tensor | None,
    min: Tensor,
    max: Tensor,
) -> Tensor | None:
    """The gradient of both extrema; ties share it evenly."""
    dims = () if dim is None else (dim,)
    found = None
    for grad, value in ((grad_min, min), (grad_max, max)):
        if grad is not None:
            grad, value = (_kept(t, dims, self.dim(), keepdim) for t in (grad, value))
            part = _shared(grad, _chosen(self, value), dims)
            found = part if found is None else found + part
    return found


def evenly_distribute_backward(grad: Tensor, self: Tensor, value: Tensor) -> Tensor:
    """The gradient of a `value` chosen from all of self: ties share it evenly."""
    return _shared(grad, _chosen(self, value), ())


def evenly_read_jvp(self_t: Tensor, self_p: Tensor, value: Tensor) -> Tensor:
    """The tangent of a `value` chosen from all of self_p: the mean of the ties'."""
    chosen = _chosen(self_p, value)
    return torch.where(chosen, self_t, 0).sum() / chosen.sum()


def gather_with_keepdimed_indices(
    self: Tensor, dim: int, indices: Tensor, keepdim: bool
) -> Tensor:
    """What of self lies at the indices that a reduction along `dim` has given.

    For a tangent as self it is the tangent of max and its like.
    """
    if keepdim or self.dim() == 0:
        return self.gather(dim, indices)
    return self.gather(dim, indices.unsqueeze(dim)).squeeze(dim)


def scale_grad_by_count(grad: Tensor, mask: Tensor, dim: Dims) -> Tensor:
    """`grad`, shared evenly along `dim` by the elements that are in the mask.

    It is NaN where there are none: the maximum was NaN.
    """
    return grad / _count(mask, dim) * mask


def restore_reduced_dims(output: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """`output`, with the dimensions that were reduced, of size 1; none where all were.

    Without dimensions it fits a tensor of any number of them.
    """
    dims = _listed(dim)
    if keepdim or not dims:
        return output
    return _with_dims(output, _wrapped(dims, output.dim() + len(dims)))


def _wrapped(dim: Dims, rank: int) -> list[int]:
    """The dimensions among `rank`, from 0 on and in order."""
    if rank == 0:
        return []
    return sorted(d % rank for d in _listed(dim)) or list(range(rank))


def _listed(dim: Dims) -> Sequence[int]:
    return [dim] if isinstance(dim, int) else dim or ()


def _kept(tensor: Tensor, dim: Dims, rank: int, keepdim: bool) -> Tensor:
    """A reduced tensor, as if the dimensions had been kept."""
    return tensor if keepdim else _with_dims(tensor, _wrapped(dim, rank))


def _with_dims(tensor: Tensor, dims: Iterable[int]) -> Tensor:
    for d in dims:
        tensor = tensor.unsqueeze(d)
    return tensor


def _chosen(self: Tensor, value: Tensor) -> Tensor:
    """Where self is the value, NaN included."""
    return (self == value) | (self.isnan() & value.isnan())


def _shared(grad: Tensor, mask: Tensor, dim: Dims) -> Tensor:
    return torch.where(mask, grad / _count(mask, dim), 0)


def _count(mask: Tensor, dim: Dims) -> Tensor:
    return mask.sum(_wrapped(dim, mask.dim()), keepdim=True)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum_backward": sum_backward,
    "_safe_size": _safe_size,
    "norm_backward": norm_backward,
    "logsumexp_backward": logsumexp_backward,
    "logsumexp_jvp": logsumexp_jvp,
    "safe_logsumexp_jvp": logsumexp_jvp,
    "nansum_backward": nansum_backward,
    "prod_backward": prod_backward,
    "softmax_double_backward": softmax_double_backward,
    "amaxamin_jvp": amaxamin_jvp,
    "aminmax_backward": aminmax_backward,
    "aminmax_jvp": amaxamin_jvp,
    "evenly_distribute_backward": evenly_distribute_backward,
    "evenly_read_jvp": evenly_read_jvp,
    "gather_with_keepdimed_indices": gather_with_keepdimed_indices,
    "scale_grad_by_count": scale_grad_by_count,
    "restore_reduced_dims": restore_reduced_dims,
}
