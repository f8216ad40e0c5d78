"""Pieces of long programs: they compute the same, and keep to their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser import ir
from fuser.dtypes import bool_, complex128, float16, float32, float64, int64
from fuser.interpret import interpret
from fuser.ir import Loop, Node, Number
from fuser.optable import PRIMITIVES
from fuser.partition import MOST_READ, partition, weight
from fuser.program import Output, Program
from tests.fuser.graphs import all_same, graphs

X = ir.input_("x", float64)
Y = ir.input_("y", float64)
ALPHA = ir.scalar("alpha", float64)


def op(name: str, *args: Node) -> Node:
    return ir.make(name, args[-1].dtype, args)


def program(*roots: Node, inputs: Sequence[Node] = (X, Y)) -> Program:
    outputs = tuple(Output(f"out{i}", r, r.dtype) for i, r in enumerate(roots))
    return Program("long", tuple(inputs), (ALPHA,), outputs, lineage="long()")


def run(pieces: Sequence[Program], names: Mapping[str, Number]) -> dict[str, Number]:
    """What the pieces compute one after the other, by the names of the outputs."""
    known = dict(names)
    for piece in pieces:
        available = {str(n.attrs): known[str(n.attrs)] for n in piece.inputs}
        available |= {str(n.attrs): known[str(n.attrs)] for n in piece.scalars}
        found = interpret(piece.roots, available)
        known |= dict(zip((o.name for o in piece.outputs), found, strict=True))
    return known


def check(
    whole: Program, budget: int, names: Mapping[str, Number]
) -> tuple[Program, ...]:
    """The pieces, once they have been seen to be right."""
    pieces = partition(whole, budget)
    wanted = interpret(whole.roots, names)
    found = run(pieces, names)
    assert all_same([found[o.name] for o in whole.outputs], wanted)
    finals = [o.name for p in pieces for o in p.outputs if o.name.startswith("out")]
    assert sorted(finals) == sorted(o.name for o in whole.outputs)
    assert len({p.name for p in pieces}) == len({p.lineage for p in pieces})
    assert len({p.name for p in pieces}) == len(pieces)
    return pieces


def size(piece: Program) -> int:
    return sum(map(weight, piece.nodes))


VALUES: dict[str, Number] = {"x": 0.75, "y": -1.25, "alpha": 0.5}


def chain(length: int) -> Node:
    node = X
    for i in range(length):
        node = op("sin", node) if i % 2 else op("add", node, op("mul", node, Y))
    return node


def test_a_short_program_stays_whole() -> None:
    whole = program(chain(10))
    assert partition(whole) == (whole,)


def test_a_chain_is_cut_into_pieces_that_pass_on_one_value() -> None:
    whole = program(chain(1000))
    pieces = check(whole, 100, VALUES)
    assert 15 <= len(pieces) <= 30
    assert max(map(size, pieces)) <= 100
    assert [len(p.outputs) for p in pieces] == [1] * len(pieces)


def test_the_number_of_pieces_grows_with_the_length_and_not_faster() -> None:
    counts = [len(partition(program(chain(n)), 100)) for n in (1000, 2000, 4000)]
    assert counts[2] <= 4 * counts[0] + 2
    assert counts[1] <= 2 * counts[0] + 1


def test_a_derivative_computes_the_steps_again() -> None:
    """A forward chain, and its backward pass, which reads every step in reverse."""
    steps = [X]
    for _ in range(300):
        steps.append(op("sin", steps[-1]))
    gradient = Y
    for step in reversed(steps[:-1]):
        gradient = op("mul", gradient, op("cos", step))
    pieces = check(program(gradient), 128, VALUES)
    assert max(map(size, pieces)) <= 2 * 128
    stored = sum(len(p.outputs) for p in pieces)
    assert stored <= 3 * len(pieces)
    total = sum(map(size, pieces))
    assert total <= 900 * 1.6


def test_many_outputs_share_what_is_common() -> None:
    shared = chain(60)
    roots = [op("add", op("exp", shared), ir.const(i, float64)) for i in range(50)]
    pieces = check(program(*roots), 64, VALUES)
    assert sum(len(p.outputs) for p in pieces) <= 50 + 6


def test_a_sum_over_many_inputs() -> None:
    inputs = [ir.input_(f"x{i}", float64) for i in range(400)]
    total = inputs[0]
    for one, other in pairwise(inputs):
        total = op("add", total, op("exp", op("mul", one, other)))
    names: dict[str, Number] = {f"x{i}": i / 400 for i in range(400)}
    pieces = check(program(total, inputs=inputs), 128, names | VALUES)
    assert max(len(p.inputs) for p in pieces) <= MOST_READ + 2


def test_a_layer_of_values_that_are_all_read_twice() -> None:
    """Wide: nothing but storing a whole layer can cut it."""
    layer = [op("mul", X, ir.const(1 / (i + 1), float64)) for i in range(20)]
    for _ in range(12):
        turned = [*layer[1:], layer[0]]
        layer = [op("sin", op("add", a, b)) for a, b in zip(layer, turned, strict=True)]
    pieces = check(program(*layer), 100, VALUES)
    assert len(pieces) >= 4


def test_intermediates_are_not_rounded() -> None:
    half = ir.input_("x", float16)
    node = ir.cast(half, float32)
    for _ in range(40):
        node = op("mul", node, ir.const(1.1, float32))
    whole = Program("long", (half,), (), (Output("out0", node, float16),))
    pieces = check(whole, 16, {"x": 0.3})
    cuts = [o for p in pieces for o in p.outputs if o.name.startswith("cut")]
    assert cuts
    assert all(o.dtype == float32 for o in cuts)
    assert pieces[-1].outputs[0].dtype == float16


def test_a_loop_is_not_cut() -> None:
    p0, p1, p2 = (ir.param(i, float64) for i in range(3))
    loop = Loop((op("add", p0, op("sin", p1)), op("mul", p1, p2)), None, 5)
    first, second = X, Y
    for i in range(30):
        factor = ir.const(0.9 + i / 100, float64)
        first, second = ir.iterate((first, second), (factor,), loop)
    pieces = check(program(first, second), 20, VALUES)
    assert len(pieces) > 3


def test_names_of_cuts_avoid_those_of_arguments() -> None:
    given = ir.input_("cut0", float64)
    node = given
    for _ in range(30):
        node = op("sin", node)
    whole = Program("long", (given,), (), (Output("out0", node, float64),))
    pieces = check(whole, 8, {"cut0": 0.5})
    assert [o.name for p in pieces for o in p.outputs][:2] == ["cut1", "cut2"]


def test_numbers_are_computed_where_they_are_needed() -> None:
    factor = op("exp", op("mul", ALPHA, ALPHA))
    node = X
    for _ in range(50):
        node = op("sin", op("mul", node, factor))
    pieces = check(program(node), 20, VALUES)
    assert all(p.scalars == (ALPHA,) for p in pieces)
    assert [len(p.inputs) for p in pieces] == [1] * len(pieces)


def test_outputs_that_are_arguments_or_quick_to_compute() -> None:
    roots = [X, op("mul", X, ALPHA), op("exp", ALPHA), chain(60)]
    check(program(*roots), 20, VALUES)


def test_complex_outputs() -> None:
    z = ir.input_("z", complex128)
    re, im = ir.make("real", float64, (z,)), ir.make("imag", float64, (z,))
    for _ in range(30):
        re, im = op("sin", op("add", re, im)), op("mul", re, im)
    root = ir.make("complex", z.dtype, (re, im))
    whole = Program("long", (z,), (), (Output("out0", root, z.dtype),))
    pieces = check(whole, 20, {"z": 0.5 + 0.25j})
    assert len(pieces) > 2


ROWS = [
    r
    for r in PRIMITIVES.values()
    if r.rule in ("same", "bool") and r.kinds & {"float"} and r.name != "pow"
]


@given(st.data())
def test_random_graphs(data: st.DataObject) -> None:
    roots = [
        data.draw(graphs([X, Y, ALPHA], ROWS, size=30, casts=[float32, int64, bool_]))
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    budget = data.draw(st.integers(1, 12))
    numbers = st.floats(-4, 4)
    names = {name: data.draw(numbers) for name in ("x", "y", "alpha")}
    check(program(*roots), budget, names)


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_small_budgets(budget: int) -> None:
    check(program(chain(20), op("mul", chain(5), Y)), budget, VALUES)


def test_long_programs_are_cut_quickly() -> None:
    assert isclose(len(partition(program(chain(20_000)), 128)), 300, rel_tol=0.5)
