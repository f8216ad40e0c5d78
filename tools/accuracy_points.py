"""Where to ask: points that cover a domain, its scales, its ends, and odd places in it.

Comes in: ranges, by the bits of the dtype. Goes out: makers of points, which draw as
many as they are asked for, near enough.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from tests.fuser.accuracy import BITS, LEAST

Range = dict[int, tuple[float, float]]
Draws = Callable[[int, random.Random, int], Iterator[float]]
Points = Callable[[int, random.Random, int], Iterable[tuple[float, ...]]]

# What a uniform sample is taken of, also where the domain is wider.
MIDDLE = 20.0


def scales(domain: Range) -> Draws:
    """Magnitudes spread evenly over their exponents, with either sign, and as many
    numbers spread evenly over the middle."""

    def draws(bits: int, draw: random.Random, count: int) -> Iterator[float]:
        low, high = domain[bits]
        most = math.log2(max(abs(low), abs(high)))
        made = 0
        while made < count:
            if made % 2:
                value = draw.uniform(max(low, -MIDDLE), min(high, MIDDLE))
            else:
                least = LEAST[bits] if draw.random() < 0.5 else -20
                value = 2.0 ** draw.uniform(least, most)
                value *= draw.choice((1, -1)) if low < 0 else 1
            if low < value < high:
                made += 1
                yield value

    return draws


def line(domain: Range, places: Sequence[float] = ()) -> Points:
    """Points of one argument: scales, the width where it is not huge, and closer and
    closer to the ends and the places."""

    def points(bits: int, draw: random.Random, count: int) -> Iterator[tuple[float]]:
        low, high = domain[bits]
        values = list(scales(domain)(bits, draw, count // 2))
        if max(abs(low), abs(high)) < 1e4:
            values += [draw.uniform(low, high) for _ in range(count // 4)]
        values += [
            end * draw.uniform(0.25, 1)
            for end in (low, high)
            for _ in range(count // 40)
        ]
        near = [*places, *(end for end in (low, high) if abs(end) < 1e4)]
        digits = BITS[bits] * math.log10(2)
        each = max(2, count // 2 // max(1, len(near)))
        for place in near:
            for _ in range(each):
                apart = draw.choice((1, -1)) * 10 ** -draw.uniform(0, digits)
                values.append(place + apart * max(1.0, abs(place)))
        yield from ((v,) for v in values if low < v < high and v not in near)

    return points


def pairs(first: Draws, second: Draws) -> Points:
    """Points of two arguments; in a quarter of them of like magnitudes."""

    def points(
        bits: int, draw: random.Random, count: int
    ) -> Iterator[tuple[float, ...]]:
        firsts, seconds = first(bits, draw, count), second(bits, draw, count)
        for x, y in zip(firsts, seconds, strict=True):
            like = draw.random() < 0.25
            yield (math.copysign(y * draw.uniform(0.5, 1.5), x) if like else x), y

    return points
