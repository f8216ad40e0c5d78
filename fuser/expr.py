"""Arithmetic on nodes that reads like arithmetic, for builders.

Comes in: nodes and Python numbers. Goes out: `Expr`, a node with operators; numbers
take the dtype of the node they meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuser import ir
from fuser.build import primitive
from fuser.ir import Node

Operand = "Expr | int | float"


@dataclass(frozen=True, slots=True)
class Expr:
    """A node with operators."""

    node: Node

    def lift(self, value: Expr | float) -> Expr:
        """The value as an expression of this one's dtype."""
        if isinstance(value, Expr):
            return value
        return Expr(ir.const(value, self.node.dtype))

    def apply(self, name: str, *others: Expr | float) -> Expr:
        """The primitive `name` of this and others."""
        nodes = [self.lift(o).node for o in others]
        return Expr(primitive(name, self.node, *nodes))

    def __add__(self, other: Expr | float) -> Expr:
        return self.apply("add", other)

    def __sub__(self, other: Expr | float) -> Expr:
        return self.apply("sub", other)

    def __mul__(self, other: Expr | float) -> Expr:
        return self.apply("mul", other)

    def __truediv__(self, other: Expr | float) -> Expr:
        return self.apply("div", other)

    def __radd__(self, other: float) -> Expr:
        return self.lift(other) + self

    def __rsub__(self, other: float) -> Expr:
        return self.lift(other) - self

    def __rmul__(self, other: float) -> Expr:
        return self.lift(other) * self

    def __rtruediv__(self, other: float) -> Expr:
        return self.lift(other) / self

    def __pow__(self, other: Expr | float) -> Expr:
        return self.apply("pow", other)

    def __neg__(self) -> Expr:
        return self.apply("neg")

    def __lt__(self, other: Expr | float) -> Expr:
        return self.apply("lt", other)

    def __le__(self, other: Expr | float) -> Expr:
        return self.apply("le", other)

    def __gt__(self, other: Expr | float) -> Expr:
        return self.apply("gt", other)

    def __ge__(self, other: Expr | float) -> Expr:
        return self.apply("ge", other)

    def equals(self, other: Expr | float) -> Expr:
        return self.apply("eq", other)

    def __and__(self, other: Expr) -> Expr:
        return self.apply("logical_and", other)

    def __or__(self, other: Expr) -> Expr:
        return self.apply("logical_or", other)

    def where(self, then: Expr, otherwise: Expr | float) -> Expr:
        """`then` where this (a bool) holds, else `otherwise`."""
        return Expr(primitive("where", self.node, then.node, then.lift(otherwise).node))


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The sum of coefficients[k] * x**k, for two coefficients or more.

    Even and odd powers are summed by themselves, each by Horner's rule: two chains of
    operations, neither of which waits for the other.
    """
    square = x * x
    even, odd = _horner(square, coefficients[::2]), _horner(square, coefficients[1::2])
    return even + x * odd


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    total = x.lift(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total
