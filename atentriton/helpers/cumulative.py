"""Derivatives of scans: cumulative sums, products, extrema, along one dimension.

`grad` is the gradient of the result, `self` what was scanned. What is not a sum itself
is a linear recurrence, s[j] = c[j] s[j - 1] + u[j], solved in log2(n) steps: nothing is
divided by, so that zeros need no case of their own. All of it is differentiable again,
and linear in `grad` or the tangent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def cumsum_backward(grad: Tensor, dim: int) -> Tensor:
    """The gradient of a cumulative sum: the sum of the gradients from there on."""
    return grad if grad.dim() == 0 else grad.flip(dim).cumsum(dim).flip(dim)


def cumprod_jvp(self_t: Tensor, self_p: Tensor, result: Tensor, dim: int) -> Tensor:
    """The tangent of y = cumprod(x) with x = self_p.

    By the product rule on y[j] = x[j] y[j - 1] it is the solution of
    y'[j] = x[j] y'[j - 1] + x'[j] y[j - 1].
    """
    if self_t.dim() == 0 or self_t.shape[dim] == 0:
        return self_t
    first = torch.ones_like(result.narrow(dim, 0, 1))
    before = torch.cat((first, _neighbours(result, dim)[0]), dim)
    return _recurrence(_neighbours(self_p, dim)[1], self_t * before, dim)


def logcumsumexp_backward(
    grad: Tensor, self: Tensor, result: Tensor, dim: int
) -> Tensor:
    """The gradient of y = log(cumsum(exp(x))) with x = self, y = result.

    dy[j]/dx[k] = exp(x[k] - y[j]) from j = k on, so that the gradient is, up to
    conjugates, exp(x[k] - y[k]) s[k] with s[k] = grad[k] + exp(y[k] - y[k + 1])
    s[k + 1]. Real exponents are not positive, so that nothing overflows. Where y[j] is
    infinite, those of x[0] to x[j] that are the same infinity share evenly.
    """
    if self.dim() == 0 or self.shape[dim] == 0:
        return grad
    count = _infinities(self, result, dim)
    y, y_next = _neighbours(result, dim)
    here, there = _neighbours(count, dim)
    own = _exp_difference(self, result, 1 / count)
    step = _exp_difference(y, y_next, here / there)
    found = _recurrence(step.conj().flip(dim), grad.flip(dim), dim).flip(dim)
    return own.conj() * found


def logcumsumexp_jvp(self_p: Tensor, self_t: Tensor, dim: int) -> Tensor:
    """The tangent of y = log(cumsum(exp(x))) with x = self_p, as in the gradient:
    y'[j] = exp(y[j - 1] - y[j]) y'[j - 1] + exp(x[j] - y[j]) x'[j].
    """
    if self_p.dim() == 0 or self_p.shape[dim] == 0:
        return self_t
    result = self_p.logcumsumexp(dim)
    count = _infinities(self_p, result, dim)
    y, y_next = _neighbours(result, dim)
    here, there = _neighbours(count, dim)
    own = _exp_difference(self_p, result, 1 / count)
    step = _exp_difference(y, y_next, here / there)
    return _recurrence(step, own * self_t, dim)


def _infinities(x: Tensor, y: Tensor, dim: int) -> Tensor:
    """How many elements of x have so far been the infinity that y is; at least 1."""
    high, low = (x.real == value for value in (torch.inf, -torch.inf))
    count = torch.where(y.real > 0, high.cumsum(dim), low.cumsum(dim))
    return count.clamp(min=1).to(y.real.dtype)


def _exp_difference(a: Tensor, b: Tensor, limit: Tensor) -> Tensor:
    """exp(a - b), and `limit` where both are the same infinity."""
    tied = (a.real == b.real) & b.real.isinf()
    return torch.where(tied, limit, torch.where(tied, 0, a - b).exp())


def cummaxmin_backward(grad: Tensor, self: Tensor, indices: Tensor, dim: int) -> Tensor:
    """The gradient of a cumulative extremum: added up where each was found."""
    return torch.zeros_like(self, dtype=grad.dtype).scatter_add(dim, indices, grad)


def _neighbours(tensor: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """All but the last along `dim`, and all but the first."""
    size = tensor.shape[dim] - 1
    return tensor.narrow(dim, 0, size), tensor.narrow(dim, 1, size)


def _recurrence(factors: Tensor, terms: Tensor, dim: int) -> Tensor:
    """s with s[0] = terms[0] and s[j] = factors[j - 1] s[j - 1] + terms[j].

    After each step the last of `terms` is what as many terms as `reach` says give, and
    `factors` has the products of as many, for all that come after the first ones.
    """
    size, reach = terms.shape[dim], 1
    while reach < size:
        left = size - reach
        first, rest = terms.narrow(dim, 0, reach), terms.narrow(dim, reach, left)
        rest = rest + _times(factors, terms.narrow(dim, 0, left))
        terms = torch.cat((first, rest), dim)
        left -= reach
        if left > 0:
            factors = factors.narrow(dim, reach, left) * factors.narrow(dim, 0, left)
        reach *= 2
    return terms


def _times(product: Tensor, term: Tensor) -> Tensor:
    """Their product, 0 where the term is, although the product of many overflows."""
    if product.is_complex():
        return product * term
    limit = torch.finfo(product.dtype).max
    return torch.where(term == 0, product.clamp(-limit, limit), product) * term


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cumsum_backward": cumsum_backward,
    "cumprod_jvp": cumprod_jvp,
    "logcumsumexp_backward": logcumsumexp_backward,
    "logcumsumexp_jvp": logcumsumexp_jvp,
    "cummaxmin_backward": cummaxmin_backward,
}
