"""Special functions as builders: the registry, and what they share.

Comes in: builders, which make a node of nodes of one floating dtype. Goes out:
`SPECIAL`, which the library reads. A builder is written once, over the primitives and
`iterate`, and so runs, in that dtype, wherever the primitives do. The functions
themselves stand in modules by family.
Source: Abramowitz and Stegun, Handbook of Mathematical Functions (A&S), by formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from fuser.functions import Builder


@dataclass(frozen=True, slots=True)
class Special:
    """A builder with the signature and the promotion of its ATen operator."""

    signature: str
    promotes: str
    builder: Builder


SPECIAL: list[Special] = []

B = TypeVar("B", bound=Builder)


def operator(signature: str, promotes: str) -> Callable[[B], B]:
    """Register the builder as the value of an operator."""

    def register(builder: B) -> B:
        SPECIAL.append(Special(signature, promotes, builder))
        return builder

    return register


def bernoulli(count: int) -> Iterator[Fraction]:
    """B_2, B_4, ..., the even Bernoulli numbers (A&S 23.1.3)."""
    known = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        total = sum((math.comb(n + 1, k) * b for k, b in enumerate(known)), Fraction(0))
        known.append(-total / (n + 1))
        if n % 2 == 0:
            yield known[n]
