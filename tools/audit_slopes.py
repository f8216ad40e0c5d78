"""Derivatives in mpmath that can be relied on.

Comes in: a function of mpmath, and its arguments as numbers of mpmath. Goes out: the
value, or `slope`, the partial derivative by one argument: differences at several
precisions, which have to agree with one another, from both sides, or there is no
answer.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mpmath
from mpmath import mpc, mpf
from mpmath.libmp import NoConvergence

Value = Callable[..., Any]

# The precisions that differences are tried at, in digits; what a slope may take.
LEVELS = (50, 130, 1200)
SECONDS = 3.0


class Undefined(ValueError):
    """The operator has no value there, or none that can be had in a short time."""


def slope(value: Value, args: Sequence[Any], place: int) -> Any:
    """The derivative by the argument at `place`; Undefined where there is none, at a
    kink or a step, or where it cannot be had for certain.

    It may be from one side, where the other is not in the domain; the derivative by a
    complex number is that of a holomorphic function.
    """
    with _limited():
        flat = False
        for digits in LEVELS:
            if flat and digits != LEVELS[-1]:
                continue
            for scale in _scales(args, place):
                with mpmath.workdps(digits):
                    found = _agreed(value, args, place, scale, digits)
                if found is not None and (found or digits == LEVELS[-1]):
                    return found
                if found is not None:  # 0 may be what is too small for these digits
                    flat = True
                    break
    raise Undefined(f"no derivative at {args}")


def value(function: Value, args: Sequence[Any]) -> Any:
    """The value itself; Undefined where there is none."""
    with _limited(), mpmath.workdps(LEVELS[0]):
        return _at(function, args)


@contextmanager
def _limited() -> Iterator[None]:
    """Undefined for what takes too long."""

    def late(*_: object) -> None:
        raise Undefined("it takes too long")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _scales(args: Sequence[Any], place: int) -> list[mpf]:
    """On which scales of that argument the operator may change."""
    others = [abs(a) for a in args if isinstance(a, mpf | mpc) and a]
    size = abs(args[place])
    if not size:
        return [min([mpf(1), *others])]
    return [size, mpf(1), 1 / size] if size > 1 else [size]


def _agreed(
    function: Value, args: Sequence[Any], place: int, scale: mpf, digits: int
) -> Any:
    """The derivative, or None where differences of two widths, or those to the left and
    to the right, do not agree."""
    wide = scale * mpf(10) ** -(digits // 3)
    narrow = wide / 1024
    if not _near(args[place] + narrow - args[place], narrow, 1e-12):
        return None
    ways = [1, mpc(0, 1)] if isinstance(args[place], mpc) else [1]
    found: list[Any] = []
    for way in ways:
        here = _at(function, args)
        sides = [
            [_moved(function, args, place, s * way * h) for h in (wide, narrow)]
            for s in (1, -1)
        ]
        there = [
            [
                (y - here) / (s * way * h)
                for y, h in zip(ys, (wide, narrow), strict=True)
            ]
            for s, ys in zip((1, -1), sides, strict=True)
            if None not in ys
        ]
        if not there:
            return None
        for one in there:
            if not _near(one[0], one[1], 1e-8):
                return None
        if len(there) == 2:
            right, left = there
            if not _near(right[1], left[1], 1e-8):
                return None
            both = [(r + e) / 2 for r, e in zip(right, left, strict=True)]
            if not _near(both[0], both[1], 1e-14):
                return None
            found.append(both[1])
        else:
            found.append(there[0][1])
    return found[0] if all(_near(f, found[0], 1e-12) for f in found) else None


def _near(a: Any, b: Any, relative: float) -> bool:
    return abs(a - b) <= relative * abs(b)


def _moved(function: Value, args: Sequence[Any], place: int, by: Any) -> Any:
    """The value beside the point, None where it is not defined."""
    moved = list(args)
    moved[place] = args[place] + by
    try:
        return _at(function, moved)
    except Undefined as error:
        if "long" in str(error):
            raise
        return None


def _at(function: Value, args: Sequence[Any]) -> Any:
    try:
        found = function(*args)
    except Undefined:
        raise
    except (ValueError, ArithmeticError, TypeError, NoConvergence) as error:
        raise Undefined(str(error)) from error
    whole = any(isinstance(a, mpc) for a in args)
    if isinstance(found, mpc) and not whole and found.imag:
        raise Undefined("the value is complex")
    found = (
        found.real if isinstance(found, mpc) and not whole else mpmath.mpmathify(found)
    )
    if not mpmath.isfinite(found):
        raise Undefined("the value is not finite")
    return found
