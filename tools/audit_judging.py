"""Which derivatives are right, and how far off a number may be.

Comes in: an operator, a point, and what was got there. Goes out: `Truth`, which has a
verdict on any number; or nothing, where nothing can be said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import mpmath
import torch
from mpmath import mpc, mpf
from torch import Tensor

from tools.audit_points import Call
from tools.audit_slopes import Undefined, slope, value
from tools.audit_values import VALUES

# Derivatives are wrong if they are further away than so many times the spacing of the
# dtype's numbers and what that spacing of the arguments does to them.
ALLOWED = 1e3
# Where that is more than this, nothing is said of the point.
STEEP = 1e-3
# What is counted as wrong where the derivative is 0 or too small for the dtype.
NOTABLE = 1e-3


@dataclass(frozen=True, slots=True)
class Truth:
    """The right derivative and how far away it is still right, relatively."""

    right: Any
    bound: float
    about: torch.finfo

    def verdict(self, got: complex) -> str | None:
        """What is wrong with the number, if something is."""
        if math.isnan(got.real) or math.isnan(got.imag):
            return "NaN"
        if not (math.isfinite(got.real) and math.isfinite(got.imag)):
            return "infinite"
        if abs(self.right) < self.about.tiny:
            return "wrong" if abs(got) > NOTABLE else None
        if not got:
            return "0"
        return "wrong" if self.error(got) > self.bound else None

    def error(self, got: complex) -> float:
        """The relative error; infinite for what is no number, or of what is 0."""
        whole = got if isinstance(self.right, mpc) else got.real
        if not (math.isfinite(got.real) and math.isfinite(got.imag)):
            return math.inf
        if not self.right:
            return math.inf if got else 0.0
        return float(abs(mpmath.mpmathify(whole) - self.right) / abs(self.right))


def truth(
    name: str,
    numbers: Sequence[Any],
    call: Call,
    place: int,
    mode: str,
    got: Sequence[complex],
) -> Truth | None:
    """What is right at that point; None where nothing can be said of it: no derivative,
    or one that the dtype does not hold, or that hangs on the last bits of the point.

    How far it does is asked only where one of the numbers that were got is not right.
    """
    about = torch.finfo(call.values[place].dtype)
    args = exactly(numbers, call)
    try:
        right = slope(VALUES[name], args, place)
        if abs(right) > about.max:
            return None
        turned = mode == "backward" and isinstance(right, mpc)
        wanted = mpmath.conj(right) if turned else right
        ideal = Truth(wanted, ALLOWED * about.eps, about)
        if all(ideal.verdict(x) is None for x in got):
            return ideal
        moved = mpf(0)
        for i in call.places:
            if _floating(call.values[i]):
                moved += _change(name, args, i, place, about.eps, right)
    except Undefined:
        return None
    change = float(moved / abs(right)) if abs(right) >= about.tiny else 0.0
    if change + about.eps > STEEP / ALLOWED or abs(right) + moved > about.max:
        return None
    return Truth(wanted, ALLOWED * (about.eps + change), about)


def _change(
    name: str, args: Sequence[Any], i: int, place: int, eps: float, right: Any
) -> Any:
    """What the derivative changes by where argument i moves by a unit in its last
    place, up or down; Undefined where it can do neither."""
    found: list[Any] = []
    for sign in (1, -1):
        more, less = 1 + sign * mpf(eps), 1 - sign * mpf(eps)
        x, moved = args[i], list(args)
        whole = isinstance(x, mpc)
        moved[i] = mpc(x.real * more, x.imag * less) if whole else x * more
        with suppress(Undefined):
            found.append(abs(slope(VALUES[name], moved, place) - right))
    if not found:
        raise Undefined("it is defined at the point alone")
    return max(found)


def exactly(numbers: Sequence[Any], call: Call) -> list[Any]:
    """The numbers of tensors in mpmath, those of other arguments as they are."""
    return [
        v
        if not isinstance(t, Tensor) or isinstance(v, bool)
        else mpc(v)
        if isinstance(v, complex)
        else mpf(v)
        for v, t in zip(numbers, call.values, strict=True)
    ]


def computes(name: str, numbers: Sequence[Any], call: Call, got: complex) -> bool:
    """Whether arguments and value are normal numbers, or 0, and the value is right: the
    derivative of another one says nothing about a formula."""
    about = torch.finfo(next(v.dtype for v in call.values if _floating(v)))
    variables = [numbers[i] for i in call.places if _floating(call.values[i])]
    if not all(_normal(x, about) for x in (*variables, got)):
        return False
    try:
        right = value(VALUES[name], exactly(numbers, call))
    except Undefined:
        return False
    whole = mpmath.mpmathify(got if isinstance(right, mpc) else got.real)
    return bool(abs(whole - right) <= 1e-3 * abs(right))


def _normal(number: complex, about: torch.finfo) -> bool:
    size = abs(number)
    return math.isfinite(size) and (not size or size >= about.tiny)


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and (
        value.is_floating_point() or value.is_complex()
    )
