"""Powers of integers, by squaring.

Comes in: a base and an exponent of one integer type. Goes out: the power in that type,
wrapped around as products of integers are. Below 0 the power is a fraction, cut to an
integer: 0, unless the base is 1 or -1.
"""

from __future__ import annotations

from fuser import ir
from fuser.errors import FormulaError
from fuser.expr import Expr
from fuser.ir import Loop, Node
from fuser.powers import is_small, product
from fuser.special import operator


@operator("integer_pow(Tensor self, Tensor exponent) -> Tensor", "default")
def integer_pow(self: Node, exponent: Node) -> Node:
    """self to the power of exponent: a product over the exponent's binary digits."""
    if not self.dtype.is_integral:
        raise FormulaError(f"integer_pow takes integers, not {self.dtype}")
    base, power = Expr(self), Expr(exponent)
    if exponent.op == "const" and is_small(known := ir.value_of(exponent)):
        whole = product(base, max(int(known.real), 0))
    else:
        whole = _by_squaring(base, power.apply("maximum", 0))
    if self.dtype.name.startswith("uint"):
        return whole.node
    odd = power.apply("bitwise_and", 1).equals(1)
    turned = odd.where(base.lift(-1), base.lift(1))
    below = base.equals(1).where(base.lift(1), base.equals(-1).where(turned, 0))
    return (power < 0).where(below, whole).node


def _by_squaring(base: Expr, power: Expr) -> Expr:
    dtype = base.node.dtype
    square, digit, product, given = (Expr(ir.param(i, dtype)) for i in range(4))
    unset = given.apply("bitwise_and", digit).equals(0)
    step = (
        (square * square).node,
        (digit + digit).node,
        unset.where(product, product * square).node,
    )
    one = base.lift(1).node
    # After the highest digit of the type the next one wraps around, to 0 or below.
    proceed = (digit > 0) & (digit <= given)
    loop = Loop(step, proceed.node, dtype.bits)
    return Expr(ir.iterate((base.node, one, one), (power.node,), loop)[2])
