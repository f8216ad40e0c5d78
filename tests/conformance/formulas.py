"""Random formulas over the tensors a, b and c, and what PyTorch makes of them.

Comes in: hypothesis. Goes out: `formulas`, which draws a `Term`: the text, and the same
as PyTorch's functions, put together without a parser; and `Evaluation` of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

Draw = Callable[..., Any]
Names = Mapping[str, Any]


class Evaluation:
    """Values of the terms of a formula; `size` is the greatest number that came up.

    With `noise`, every step is wrong by about that much of its value, so that one can
    see what rounding does to the result.
    """

    def __init__(self, names: Names, noise: float = 0.0) -> None:
        self.names = names
        self.noise = noise
        self.size = 0.0

    def __call__(self, term: Term) -> Any:
        value = term.value(*map(self, term.args)) if term.args else term.leaf(self)
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        self.size = max(self.size, float(value.detach().abs().max()))
        if self.noise and term.args:
            value = value * (1 + self.noise * torch.randn_like(value))
        return value


@dataclass(frozen=True, slots=True, repr=False)
class Term:
    """A piece of a formula as text, which binds as `level` says, and what it means."""

    text: str
    level: int
    value: Callable[..., Any]
    args: tuple[Term, ...] = ()

    def leaf(self, evaluation: Evaluation) -> Any:
        return self.value(evaluation.names)

    def within(self, level: int) -> str:
        """The text where something stands that binds so tightly."""
        return self.text if self.level >= level else f"({self.text})"

    def __repr__(self) -> str:
        return self.text


def number(value: float) -> Term:
    return Term(repr(value), 12 if value >= 0 else 11, lambda _: value)


def name(text: str) -> Term:
    return Term(text, 12, lambda names: names[text])


def minus(x: Term) -> Term:
    return Term(f"-{x.within(12)}", 11, operator.neg, (x,))


def infix(sign: str, x: Term, y: Term) -> Term:
    level, value = OPERATORS[sign]
    text = f"{x.within(level)} {sign} {y.within(level + 1)}"
    return Term(text, level, value, (x, y))


def call(function: str, *args: Term, value: Callable[..., Any] | None = None) -> Term:
    text = f"{function}({', '.join(a.text for a in args)})"
    return Term(text, 12, value or TORCH[function.removeprefix("at::")], args)


def method(function: str, x: Term, *args: Term) -> Term:
    text = f"{x.within(12)}.{function}({', '.join(a.text for a in args)})"
    return Term(text, 12, TORCH[function], (x, *args))


OPERATORS: dict[str, tuple[int, Callable[..., Any]]] = {
    "*": (10, operator.mul),
    "/": (10, operator.truediv),
    "+": (9, operator.add),
    "-": (9, operator.sub),
    "<": (7, operator.lt),
    "<=": (7, operator.le),
    ">": (7, operator.gt),
    ">=": (7, operator.ge),
    "&": (5, operator.and_),
    "|": (3, operator.or_),
}
# Smooth everywhere; smooth for what is positive; of two arguments. Not lgamma: of its
# second derivative PyTorch has nine digits only.
EVERYWHERE = ["sin", "cos", "tanh", "atan", "asinh", "erf", "sigmoid", "exp", "expm1"]
POSITIVE = ["log", "log2", "sqrt", "rsqrt", "reciprocal", "log1p"]
PAIRS = ["maximum", "minimum", "atan2", "logaddexp", "hypot"]
TORCH: dict[str, Callable[..., Any]] = {
    f: getattr(torch, f) for f in (*EVERYWHERE, *POSITIVE, *PAIRS, "pow", "where")
} | {
    "abs": torch.abs,
    "square": torch.square,
    "clamp": torch.clamp,
    "clamp_min": torch.clamp_min,
    "logical_not": torch.logical_not,
    "softplus": torch.nn.functional.softplus,
    "xlogy": torch.xlogy,
    "addcmul": torch.addcmul,
    "lerp": torch.lerp,
}


@st.composite
def formulas(draw: Draw, depth: int = 4) -> Term:
    """A tensor over a, b and c."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return name(draw(st.sampled_from("abc")))
    below = formulas(depth - 1)
    x = draw(below)
    scalar = st.sampled_from([2, 3, 0.5, 1.25, -0.75, -1]).map(number)
    positive = infix("+", infix("*", x, x), number(0.5))
    match draw(st.integers(0, 11)):
        case 0 | 1 | 2:
            y = draw(st.one_of(below, below, scalar))
            sign = draw(st.sampled_from("+-*"))
            x, y = (x, y) if draw(st.booleans()) else (y, x)
            return infix(sign, x, y)
        case 3:
            x = draw(st.one_of(below, scalar))
            if draw(st.booleans()):
                return infix("/", draw(below), draw(scalar))
            y = draw(below)
            return infix("/", x, infix("+", method("square", y), number(1)))
        case 4:
            return minus(x)
        case 5 | 6:
            function = draw(st.sampled_from(EVERYWHERE))
            if draw(st.booleans()):
                return method(function, x)
            return call(draw(st.sampled_from(["", "at::"])) + function, x)
        case 7:
            if draw(st.integers(0, 3)) == 0:
                return call("pow", positive, draw(st.one_of(below, scalar)))
            return call(draw(st.sampled_from(POSITIVE)), positive)
        case 8:
            y, otherwise = draw(below), draw(st.one_of(below, scalar))
            return call("at::where", draw(conditions(depth - 1)), y, otherwise)
        case 9:
            if draw(st.booleans()):
                return method("clamp", x, number(-0.625), number(1.25))
            return method("clamp_min", x, number(0.25))
        case 10:
            return call(draw(st.sampled_from(PAIRS)), x, draw(below))
        case _:
            y, z = draw(below), draw(below)
            return draw(
                st.sampled_from(
                    [
                        infix("*", x, draw(conditions(depth - 1))),
                        call("xlogy", y, positive),
                        call("lerp", x, y, z),
                        method("pow", x, number(3)),
                        method("abs", x),
                    ]
                )
            )


@st.composite
def conditions(draw: Draw, depth: int) -> Term:
    """A tensor of bools."""
    sides = formulas(max(depth - 1, 0))
    right = draw(st.one_of(sides, st.sampled_from([0.125, -0.5, 1]).map(number)))
    test = infix(draw(st.sampled_from(["<", "<=", ">", ">="])), draw(sides), right)
    if depth < 1 or draw(st.booleans()):
        return test
    if draw(st.integers(0, 2)) == 0:
        return Term(f"!{test.within(12)}", 11, torch.logical_not, (test,))
    return infix(draw(st.sampled_from("&|")), test, draw(conditions(depth - 1)))
