"""How far two results are apart, and where.

Comes in: a result and what it should be, the latter in the same dtype or a wider one.
Goes out: a `Difference`, relative to the size of what is compared: that of the element,
or the mean of all elements where that is larger, as near a zero of a function nothing
can be said of the error relative to the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# The largest error allowed, in units of eps times the size of what is compared: the
# rounding of some dozens of operations, more of them with each derivative.
ALLOWED: dict[str, float] = {
    "value": 32,
    "first": 64,
    "second": 256,
    "jvp": 64,
    "vmap": 32,
    "layouts": 64,
}

# The least size that an error of a derivative is relative to: weights are of the order
# of 1, and where their contributions cancel the rounding of each is left.
LEAST = 0.1


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest error: absolute, relative, and the eps of the dtype that it is in.

    `place` is the index of the element, `got` and `want` its values.
    """

    absolute: float
    relative: float
    eps: float
    place: tuple[int, ...] = ()
    got: Any = None
    want: Any = None

    def describe(self, values: Sequence[Any], allowed: float) -> str:
        """The error and what led to it, in a line."""
        given = ", ".join(f"{_element(v, self.place)}" for v in values)
        return (
            f"got {self.got}, expected {self.want} at {list(self.place)}: an error of "
            f"{self.relative / self.eps:.3g} eps, "
            f"allowed are {allowed / self.eps:.3g}; arguments {given}"
        )


def _element(value: Any, place: tuple[int, ...]) -> Any:
    if isinstance(value, Tensor):
        if value.dim() == len(place) and value.numel() > 1:
            sizes = zip(place, value.shape, strict=True)
            return value[tuple(min(i, n - 1) for i, n in sizes)].item()
        return value.item() if value.numel() == 1 else f"<{list(value.shape)}>"
    return value


def compare(got: Tensor, want: Tensor, least: float = 0.0) -> Difference:
    """The largest difference between tensors of one shape.

    `least` is the least size that an error is relative to.

    NaN differs from all but NaN, an infinity from all but itself, and integers and
    booleans from whatever they do not equal: the difference is then infinite.
    """
    got, want = got.detach().resolve_conj(), want.detach().resolve_conj()
    inexact = got.is_floating_point() or got.is_complex()
    eps = torch.finfo(got.dtype).eps if inexact else 1.0
    if got.numel() == 0:
        return Difference(0.0, 0.0, eps)
    wide = torch.complex128 if want.is_complex() or got.is_complex() else torch.float64
    if not inexact:
        unequal = got != want.to(got.dtype)
        if not unequal.any():
            return Difference(0.0, 0.0, eps)
        absolute = relative = torch.where(unequal, torch.inf, 0.0).double()
    else:
        a, b = got.to(wide), want.to(wide)
        same = (a == b) | (a.isnan() & b.isnan())
        apart = ~same & ~(a.isfinite() & b.isfinite())
        size = b.abs()
        finite = size[size.isfinite()]
        typical = finite.mean() if finite.numel() else size.new_ones(())
        scale = torch.maximum(size, typical).clamp_min(least or torch.finfo(wide).tiny)
        absolute = torch.where(same, 0.0, (a - b).abs()).masked_fill(apart, torch.inf)
        relative = torch.where(same, 0.0, absolute / scale).masked_fill(
            apart, torch.inf
        )
    worst = int(relative.argmax())
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), got.shape))
    return Difference(
        float(absolute.max()),
        float(relative.max()),
        eps,
        place,
        got[place].item(),
        want[place].item(),
    )


def mismatch(
    got: Tensor, want: Tensor, *, dtype: bool = True, strides: bool = True
) -> str | None:
    """What differs besides the values: shape, and if asked for dtype and strides."""
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, torch has {list(want.shape)}"
    if dtype and got.dtype != want.dtype:
        return f"dtype {got.dtype}, torch has {want.dtype}"
    if strides and want.numel() and got.stride() != want.stride():
        return f"strides {got.stride()}, torch has {want.stride()}"
    return None
