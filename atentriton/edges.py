"""What operators give at the edges: zeros, ties, infinities, NaN, huge, tiny numbers.

Comes in: a signature and a dtype, or results to compare. Goes out: values in which each
edge meets each other, and what is wrong with an element of a result. A mean says
nothing here: every element is compared by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fuser.signatures import Signature

# The error of an element that is allowed, in eps of its own size; and in units of the
# least normal number, as what is subnormal may be flushed to zero.
ALLOWED = 64
FLUSHED = 1

# Arguments that are numbers from 0 to 1 by definition, by operator: those that are not
# have no right result, and some operators refuse them.
FRACTIONS: dict[str, tuple[str, ...]] = {
    "binary_cross_entropy": ("self", "target"),
    "binary_cross_entropy_backward": ("self", "target"),
    "binary_cross_entropy_with_logits": ("target",),
    "log_sigmoid_backward": ("buffer",),
}


def edges(dtype: torch.dtype) -> Tensor:
    """The edges of a dtype, one-dimensional."""
    about = torch.finfo(dtype)
    least = float(torch.tensor(about.tiny, dtype=dtype)) * about.eps
    positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 20.0, 100.0]
    positive += [about.max, about.max**0.5, about.tiny, about.tiny**0.5, least]
    positive += [math.inf]
    return torch.tensor([*positive, *(-x for x in positive), math.nan], dtype=dtype)


def arguments(
    signature: Signature, values: Sequence[Any], dtype: torch.dtype
) -> list[Any] | None:
    """The values with edges for the tensors; None where there is none to take them.

    The first two tensors meet in all pairs, further ones are the first shifted. In
    fractions 1/2 takes the place of what is none.
    """
    places = [
        i
        for i, v in enumerate(values)
        if isinstance(v, Tensor) and v.dtype == dtype and v.dim() == 2
    ]
    if not places:
        return None
    one = edges(dtype)
    count = one.numel()
    pairs = len(places) > 1
    first = one.repeat_interleave(count) if pairs else one
    given = list(values)
    for number, i in enumerate(places):
        if number == 0:
            given[i] = first
        else:
            given[i] = one.repeat(count) if number == 1 else first.roll(7 * number)
    for i, value in enumerate(values):
        if i not in places and isinstance(value, Tensor) and value.dim() == 2:
            given[i] = value.flatten().repeat(first.numel())[: first.numel()]
    for i in places:
        if signature.arguments[i].name in FRACTIONS.get(signature.base, ()):
            given[i] = given[i].where((given[i] >= 0) & (given[i] <= 1), 0.5)
    return given


def wrong(got: Tensor, wanted: Sequence[Tensor], inaccuracy: float = 0.0) -> list[int]:
    """The elements of `got` that are none of those `wanted`, which may themselves have
    that relative error."""
    fits = torch.zeros(got.shape, dtype=torch.bool)
    for want in wanted:
        fits |= _fits(got, want, inaccuracy)
    return (~fits).nonzero().flatten().tolist()


def _fits(got: Tensor, want: Tensor, inaccuracy: float) -> Tensor:
    if not got.is_floating_point() and not got.is_complex():
        return got == want
    if got.is_complex():
        got, want = torch.view_as_real(got), torch.view_as_real(want)
        return _fits(got, want.to(got.dtype), inaccuracy).all(-1)
    about = torch.finfo(got.dtype)
    a, b = got.double(), want.double()
    same = (a == b) | (a.isnan() & b.isnan())
    allowed = max(ALLOWED * about.eps, inaccuracy)
    near = (a - b).abs() <= allowed * b.abs() + FLUSHED * about.tiny
    # What rounds to infinity in the dtype is one, and so is its largest number nearly.
    rounded = b.to(got.dtype).double()
    same |= a == rounded
    return same | (near & a.isfinite() & b.isfinite())
