"""Loops derive like the arithmetic that they repeat."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest

from fuser import dtypes, ir
from fuser.build import primitive
from fuser.expr import Expr
from fuser.interpret import interpret
from fuser.ir import Loop, Node
from fuser.simplify import simplify
from fuser.verify import GraphError, verify
from tests.fuser.oracles import deriver, expanded

F64, I64 = dtypes.float64, dtypes.int64
X, Y = ir.input_("x", F64), ir.input_("y", F64)
ONE = ir.const(1, F64)


def params(*dtypes_: dtypes.DType) -> list[Expr]:
    return [Expr(ir.param(i, d)) for i, d in enumerate(dtypes_)]


def power(x: Node, n: int) -> Node:
    """x**n by n products: the base is captured."""
    total, base = params(F64, F64)
    loop = Loop(((total * base).node,), None, n)
    return ir.iterate([ONE], [x], loop)[0]


def newton_sqrt(x: Node) -> Node:
    """The root by Newton's iteration, until it no longer gets smaller."""
    guess, last, value = params(F64, F64, F64)
    step = (((guess + value / guess) * 0.5).node, guess.node)
    proceed = (guess < last).node
    start = (Expr(x) + 1.0).node
    return ir.iterate([start, ir.const(math.inf, F64)], [x], Loop(step, proceed, 60))[0]


def counted(x: Node, y: Node) -> Node:
    """y x (x + 1) ... with as many factors as an integer state counts below x**2."""
    count, total, base = params(I64, F64, F64)
    here = base + Expr(ir.cast(count.node, F64))
    step = ((count + 1).node, (total * here).node)
    proceed = (Expr(ir.cast(count.node, F64)) < base * base).node
    return ir.iterate([ir.const(0, I64), y], [x], Loop(step, proceed, 50))[1]


def nested(x: Node, y: Node) -> Node:
    """(((y + x**1)**2 x + ...: a loop around a loop that captures the outer state."""
    total, base, inner_base = params(F64, F64, F64)
    product, factor = params(F64, F64)
    inner = Loop(((product * factor).node,), None, 3)
    cubed = Expr(ir.iterate([inner_base.node], [base.node], inner)[0])
    step = ((total * 0.5 + cubed).node, (base * 0.9).node)
    return ir.iterate([y, x], [y], Loop(step, None, 4))[0]


def slope(node: Node, wrt: Node, reverse: bool) -> Node:
    if reverse:
        (found,) = deriver().vjp([node], [ONE], [wrt])
    else:
        (found,) = deriver().jvp([node], {wrt: ONE})
    assert found is not None
    verify([found])
    (found,) = simplify(expanded([found]))
    verify([found])
    return found


def value(node: Node, **names: float) -> float:
    (found,) = interpret(expanded([node]), names)
    assert isinstance(found, float)
    return found


MODES = pytest.mark.parametrize("reverse", [True, False], ids=["reverse", "forward"])


@MODES
def test_powers(reverse: bool) -> None:
    x, n = 1.3, 7
    node = power(X, n)
    assert value(node, x=x) == pytest.approx(x**n)
    expected = 1.0
    for order in range(1, 5):
        expected *= n - order + 1
        node = slope(node, X, reverse)
        assert value(node, x=x) == pytest.approx(expected * x ** (n - order))


@MODES
def test_newtons_root(reverse: bool) -> None:
    node = newton_sqrt(X)
    assert value(node, x=2.0) == pytest.approx(math.sqrt(2))
    first = slope(node, X, reverse)
    assert value(first, x=2.0) == pytest.approx(0.5 / math.sqrt(2))
    assert value(slope(first, X, not reverse), x=2.0) == pytest.approx(-0.25 * 2**-1.5)


@pytest.mark.parametrize("build", [counted, nested])
@MODES
def test_two_arguments(build: Callable[[Node, Node], Node], reverse: bool) -> None:
    """All first and second derivatives, against mpmath's differences."""
    node, point = build(X, Y), (1.2, 0.7)

    def plain(x: mpmath.mpf, y: mpmath.mpf) -> mpmath.mpf:
        if build is counted:
            total = y
            for k in range(50):
                if k >= mpmath.mpf("1.2") ** 2:
                    break
                total *= x + k
            return total
        total, base = y, x
        for _ in range(4):
            total, base = total / 2 + y * base**3, base * mpmath.mpf(0.9)
        return total

    at = dict(zip("xy", point, strict=True))
    assert value(node, **at) == pytest.approx(float(plain(*map(mpmath.mpf, point))))
    for i, a in enumerate((X, Y)):
        first = slope(node, a, reverse)
        order = [int(i == 0), int(i == 1)]
        with mpmath.workdps(40):
            expected = mpmath.diff(plain, point, tuple(order))
        assert value(first, **at) == pytest.approx(float(expected))
        for j, b in enumerate((X, Y)):
            twice = (order[0] + (j == 0), order[1] + (j == 1))
            with mpmath.workdps(40):
                expected = mpmath.diff(plain, point, twice)
            if not expected:
                assert deriver().vjp([first], [ONE], [b]) == (None,) or value(
                    slope(first, b, not reverse), **at
                ) == pytest.approx(0)
                continue
            found = value(slope(first, b, not reverse), **at)
            assert found == pytest.approx(float(expected), rel=1e-9)


def test_the_first_state_may_be_an_integer() -> None:
    """The loop's own dtype is that of its first state; tangents pass it by."""
    assert counted(X, Y).args[0].dtype == I64
    (tangent,) = deriver().jvp([counted(X, Y)], {Y: ONE})
    assert tangent is not None


def test_operators_called_in_a_body_are_derived_and_expanded() -> None:
    """The derivative of a power brings calls into the body of the loop."""
    total, t, exponent = params(F64, F64, F64)
    step = ((total + t**exponent).node, (t + 1.0).node)
    node = ir.iterate([ir.const(0, F64), X], [Y], Loop(step, None, 4))[0]
    at = {"x": 1.5, "y": -2.25}
    for wrt, name in ((X, "x"), (Y, "y")):
        first = slope(node, wrt, reverse=True)
        assert not any(n.op == "call" for n in bodies(first))
        with mpmath.workdps(30):
            order = (int(name == "x"), int(name == "y"))
            expected = mpmath.diff(
                lambda x, y: sum((x + k) ** y for k in range(4)), (1.5, -2.25), order
            )
        assert value(first, **at) == pytest.approx(float(expected))


def bodies(root: Node) -> list[Node]:
    nodes = ir.topological([root])
    inside = [n.attrs.roots for n in nodes if isinstance(n.attrs, Loop)]
    return nodes + [m for roots in inside for root in roots for m in bodies(root)]


def test_what_does_not_move_is_not_carried() -> None:
    """A state that no tangent reaches gets none, and the loop stays as small."""
    total, other, base = params(F64, F64, F64)
    step = ((total * base).node, (other * 0.5).node)
    first, second = ir.iterate([ONE, Y], [X], Loop(step, None, 3))
    pushed = deriver().jvp([first, second], {X: ONE})
    assert pushed[1] is None
    assert pushed[0] is not None
    (whole,) = pushed[0].args
    assert isinstance(whole.attrs, Loop)
    assert len(whole.attrs.step) == 3


def test_a_loop_of_integers_alone_has_no_derivative() -> None:
    count, bound = params(I64, I64)
    loop = Loop(((count + 1).node,), (count < bound).node, 9)
    (steps,) = ir.iterate([ir.const(0, I64)], [ir.cast(X, I64)], loop)
    node = primitive("mul", ir.cast(steps, F64), Y)
    assert deriver().vjp([node], [ONE], [X]) == (None,)
    assert deriver().jvp([node], {X: ONE}) == (None,)
    assert value(slope(node, Y, reverse=True), x=5.5, y=1.0) == 5.0


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        (Loop((), None, 1), "a loop has a state"),
        (Loop((ir.param(0, F64),), None, 0), "a loop is bounded"),
        (Loop((ir.const(1, I64),), None, 1), "state 0 changes its dtype"),
        (Loop((ir.param(2, F64),), None, 1), "the loop has 2 params"),
        (Loop((ir.param(1, F64),), ir.param(0, F64), 1), "proceed is a bool"),
        (Loop((X,), None, 1), "reads its params alone"),
        (Loop((ir.param(1, F64),), None, 1), "it is int64 there"),
    ],
)
def test_loops_that_are_none(loop: Loop, message: str) -> None:
    args = (ONE, ir.const(1, I64) if "int64 there" in message else ONE)
    with pytest.raises(GraphError, match=message):
        verify([ir.make("iterate", F64, args, loop)])
