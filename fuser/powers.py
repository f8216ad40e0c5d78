"""Powers with a small whole exponent, as products.

Comes in: nodes whose exponents may be constants. Goes out: the same powers from
squares, and of the reciprocal where the exponent is below 0. They stand there for the
kernels alone: a derivative is taken of the power itself, and is a power again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from fuser import ir
from fuser.expr import Expr
from fuser.ir import Node

# The largest exponent, above 0 and below, that is worth products: the error grows with
# it as that of the argument does, and by no more than the argument's own.
MOST = 16


def is_small(value: object) -> bool:
    """Whether the value is a whole number that products are made for."""
    return isinstance(value, int | float | complex) and value in _SMALL


_SMALL = frozenset(range(-MOST, MOST + 1))


def with_products(roots: Sequence[Node]) -> tuple[Node, ...]:
    """The roots with products for the powers with small exponents, in loops too."""

    def visit(node: Node, args: tuple[Node, ...]) -> Node:
        node = ir.rebuild_body(ir.rebuild(node, args), with_products)
        if node.op != "pow" or not ir.is_const(node.args[1]):
            return node
        base, exponent = node.args
        value = ir.value_of(exponent)
        if not is_small(value):
            return node
        return product(Expr(base), int(value.real)).node

    values = ir.fold(roots, visit)
    return tuple(values[r] for r in roots)


def product(base: Expr, exponent: int) -> Expr:
    """base to the power of the exponent.

    Nothing on the way is out of range where the result is not: below 0 it is the
    reciprocal that is multiplied, and not the product that is inverted.
    """
    if exponent < 0:
        return product(1 / base, -exponent)
    if exponent == 0:
        return base.lift(1)
    square, factors = base, list[Expr]()
    for digit in reversed(f"{exponent:b}"):
        if digit == "1":
            factors.append(square)
        square = square * square
    return reduce(lambda total, factor: factor * total, factors)
