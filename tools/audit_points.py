"""The points that operators are asked at: edges, round numbers, all magnitudes.

Comes in: a signature. Goes out: calls, whose tensors are columns of points, in each
dtype that derivatives are asked in.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atentriton import samples
from atentriton.edges import edges
from fuser.signatures import Signature
from tools.accuracy_points import line, scales
from tools.audit_values import HOLOMORPHIC

# Arguments that are easily read, besides the edges of a dtype.
ROUND = (4.0, 6.0, 10.0, 50.0, 1e4, 1e20, 1e160, 1e-4, 1e-8, 1e-20, 1e-160)

# Points of one argument, of two, of more; with integers beside; complex ones.
COUNT, MIXED, COMPLEX = 100, 40, 120

# Ways to call operators besides those that samples.py knows.
WAYS: dict[str, tuple[dict[str, Any], ...]] = {
    "celu": ({"alpha": 0.3},),
    "celu_": ({"alpha": 0.3},),
    "elu": ({"alpha": 1.0, "scale": 1.0, "input_scale": 1.0},),
    "leaky_relu": ({"negative_slope": 0.01},),
    "mvlgamma": ({"p": 1},),
    "pow.Scalar": ({"self": 0.5}, {"self": 0.0}),
    "pow.Tensor_Scalar": ({"exponent": -2.5}, {"exponent": 0.3}),
    "softplus": ({"beta": 1.0, "threshold": 20.0},),
    "special_xlog1py.self_scalar": ({"self": 0.0},),
    "special_zeta.self_scalar": ({"self": 1.5},),
    "xlogy.Scalar_Other": ({"other": 0.3},),
    "xlogy.Scalar_Self": ({"self": 0.0},),
}

# A tensor that is another function of the arguments, and no variable of its own.
BUFFER = "buffer"


@dataclass(frozen=True, slots=True)
class Call:
    """An operator's arguments, tensors as columns of points; which are variables."""

    values: tuple[Any, ...]
    places: tuple[int, ...]

    def at(self, index: int) -> Call:
        """One point of them, as tensors of one element."""
        values = (v[index : index + 1] if isinstance(v, Tensor) else v
                  for v in self.values)  # fmt: skip
        return Call(tuple(values), self.places)

    def numbers(self, index: int) -> list[Any]:
        """The arguments at that point as Python's numbers."""
        return [v[index].item() if isinstance(v, Tensor) else v for v in self.values]


def calls(signature: Signature, thorough: bool = True) -> Iterator[Call]:
    """All points that the operator is asked at, the same ones every time."""
    draw = random.Random(signature.name)
    for way in (*samples.settings(signature), *WAYS.get(signature.name, ())):
        for dtype in (torch.float64, torch.float32):
            plain = samples.arguments(signature, dtype, way)
            places = _variables(signature, plain)
            if not places:
                continue
            columns = _columns(len(places), dtype, draw, COUNT if thorough else 40)
            yield _call(signature, plain, places, columns)
    if signature.name in HOLOMORPHIC and thorough:
        plain = samples.arguments(signature, torch.complex128)
        places = _variables(signature, plain)
        yield _call(signature, plain, places, _complex_columns(len(places), draw))
    yield from _mixed(signature, draw)


def _variables(signature: Signature, values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(
        i
        for i, (a, v) in enumerate(zip(signature.arguments, values, strict=True))
        if isinstance(v, Tensor) and v.dtype != torch.bool and a.name != BUFFER
    )


def _call(
    signature: Signature,
    values: Sequence[Any],
    places: Sequence[int],
    columns: Sequence[Tensor],
) -> Call:
    """The columns in their places; other tensors are repeated, or computed."""
    count = columns[0].numel()
    given = list(values)
    for place, column in zip(places, columns, strict=True):
        given[place] = column
    for i, argument in enumerate(signature.arguments):
        if argument.name == BUFFER:
            given[i] = (-given[i - 1].abs()).exp()
        elif isinstance(given[i], Tensor) and i not in places:
            given[i] = given[i].flatten().repeat(count)[:count]
    return Call(tuple(given), tuple(places))


def _columns(
    number: int, dtype: torch.dtype, draw: random.Random, count: int
) -> list[Tensor]:
    about = torch.finfo(dtype)
    domain = {about.bits: (-about.max, about.max)}
    finite = [x for x in edges(dtype).tolist() if abs(x) > about.tiny] + [0.0]
    finite = [x for x in finite if math.isfinite(x)]
    finite += [sign * x for x in ROUND if x < about.max for sign in (1, -1)]
    if number == 1:
        drawn = line(domain, (-1.0, 1.0, 0.5, 3.0))(about.bits, draw, count)
        points = [(x,) for x in finite] + list(drawn)
    elif number == 2:
        points = draw.sample([(x, y) for x in finite for y in finite], 2 * count)
    else:
        points = [tuple(draw.choices(finite, k=number)) for _ in range(2 * count)]
    if number > 1:
        one = [scales(domain)(about.bits, draw, count) for _ in range(number)]
        points += list(zip(*one, strict=True))
        points += [
            tuple(draw.uniform(-4, 4) for _ in range(number)) for _ in range(count // 3)
        ]
        points += [
            tuple(draw.uniform(0, 1) for _ in range(number)) for _ in range(count // 3)
        ]
    return [torch.tensor(c, dtype=dtype) for c in zip(*points, strict=True)]


def _complex_columns(number: int, draw: random.Random) -> list[Tensor]:
    """Of all magnitudes and directions, those near the axes included."""

    def part() -> float:
        if draw.random() < 0.4:
            return draw.uniform(-3, 3)
        return draw.choice((1, -1)) * 10.0 ** draw.choice(
            (-200, -160, -20, -8, 0, 1, 2, 8, 20, 154, 160, 200, 300)
        )

    return [
        torch.tensor(
            [complex(part(), part()) for _ in range(COMPLEX)], dtype=torch.complex128
        )
        for _ in range(number)
    ]


def _mixed(signature: Signature, draw: random.Random) -> Iterator[Call]:
    """Integers in the places of all tensors but one."""
    if signature.base.endswith("_backward"):
        return
    plain = samples.arguments(signature, torch.float64)
    places = _variables(signature, plain)
    if len(places) < 2:
        return
    for place in places:
        for dtype, low, high in ((torch.int64, -4, 6), (torch.uint8, 0, 255)):
            columns = [
                torch.tensor(
                    [draw.uniform(-4, 4) for _ in range(MIXED)], dtype=torch.float64
                )
                if i == place
                else torch.tensor(
                    [draw.randint(low, high) for _ in range(MIXED)], dtype=dtype
                )
                for i in places
            ]
            made = _call(signature, plain, places, columns)
            yield Call(made.values, (place,))
