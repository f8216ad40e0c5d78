"""Simplifying changes the graph and nothing that it computes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser import dtypes, ir
from fuser.build import primitive
from fuser.dtypes import DTYPES, DType
from fuser.interpret import interpret
from fuser.ir import Loop, Node
from fuser.optable import PRIMITIVES
from fuser.rules import POWERS, RULES
from fuser.simplify import Pattern, Rule, rules_of, simplify
from fuser.verify import verify
from tests.fuser.graphs import all_same, calls, graphs, odd, same, values_of

COMPUTED = [d for d in DTYPES.values() if not d.is_half]
F32, F64, I32, BOOL = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.bool_


def lines(text: str) -> list[str]:
    """The rules as they are written, without the lines that say where they apply."""
    stripped = map(str.strip, text.strip().splitlines())
    return [line for line in stripped if line and not line.startswith("#")]


ALL = list(zip(lines(RULES), rules_of(RULES), strict=True))


def build(pattern: Pattern, letters: dict[str, Node], dtype: DType) -> Node:
    """The pattern as it stands, nothing simplified; c is a bool."""
    if pattern.op == "const":
        assert pattern.value is not None
        kind = BOOL if isinstance(pattern.value, bool) else dtype
        return ir.const(pattern.value, kind)
    if pattern.op not in PRIMITIVES:
        kind = BOOL if pattern.op == "c" else dtype
        return letters.setdefault(pattern.op, ir.input_(pattern.op, kind))
    return primitive(pattern.op, *(build(p, letters, dtype) for p in pattern.args))


def sides(rule: Rule, dtype: DType) -> tuple[Node, Node, list[Node]] | None:
    """Both sides over letters of the dtype; None where the rule does not apply."""
    letters: dict[str, Node] = {}
    try:
        left = build(rule.left, letters, dtype)
        right = build(rule.right, letters, left.dtype)
    except TypeError:
        return None
    if left.op != rule.left.op or left.dtype.kind not in rule.kinds:
        return None
    return left, ir.cast(right, left.dtype), list(letters.values())


def has_number(pattern: Pattern) -> bool:
    number = pattern.op == "const" and not isinstance(pattern.value, bool)
    return number or any(map(has_number, pattern.args))


@pytest.mark.parametrize("line", [line for line, _ in ALL])
def test_every_rule_is_exact(line: str) -> None:
    rule = dict(ALL)[line]
    seen = 0
    for dtype in COMPUTED:
        both = sides(rule, dtype)
        if both is None:
            continue
        left, right, letters = both
        assert left.dtype == right.dtype
        scaling = dtype.is_complex and has_number(rule.left)
        step = 5 if len(letters) > 3 else 1
        for values in itertools.product(*(odd(n.dtype)[::step] for n in letters)):
            names = {str(n.attrs): v for n, v in zip(letters, values, strict=True)}
            (a,), (b,) = interpret([left], names), interpret([right], names)
            if not scaling:
                assert same(a, b), (dtype, names)
            elif all(math.isfinite(abs(complex(v))) for v in values):
                assert a == b, (dtype, names)  # see fuser.rules
            seen += 1
    assert seen


@pytest.mark.parametrize("line", [line for line, _ in ALL])
def test_every_rule_is_applied(line: str) -> None:
    rule = dict(ALL)[line]
    applied = 0
    for dtype in COMPUTED:
        both = sides(rule, dtype)
        if both is None:
            continue
        left, right, _ = both
        assert simplify([left]) == simplify([right]), dtype
        applied += simplify([left]) != (left,)
    assert applied


@pytest.mark.parametrize("line", lines(POWERS))
def test_powers_are_torchs(line: str) -> None:
    rule = next(iter(rules_of("# float\n" + line)))
    both = sides(rule, F64)
    assert both is not None
    left, right, _ = both
    assert simplify([left]) == simplify([right])
    assert simplify([left]) != (left,)
    values = [*odd(F64), *torch.randn(50).double().tolist()]
    tensor = torch.tensor(values, dtype=torch.float64)
    exponent = rule.left.args[1]
    if exponent.op == "const":
        expected = torch.pow(tensor, exponent.value)
    else:
        expected = torch.pow(rule.left.args[0].value, tensor)
    for value, known in zip(values, expected.tolist(), strict=True):
        (found,) = interpret([right], {"x": value})
        assert found == pytest.approx(known, rel=5e-16, nan_ok=True), value
        if known == 0:
            assert same(found, known), value


def test_what_is_no_rule() -> None:
    x = ir.input_("x", F32)
    zero, one = ir.const(0, F32), ir.const(1, F32)
    kept = [
        primitive("mul", x, zero),
        primitive("add", x, zero),
        primitive("sub", zero, x),
        primitive("sub", x, x),
        primitive("div", x, x),
        primitive("sub", x, ir.const(-0.0, F32)),
        primitive("add", x, one),
    ]
    assert simplify(kept) == tuple(kept)


def test_conversions() -> None:
    x, i, h = ir.input_("x", F32), ir.input_("i", I32), ir.input_("h", dtypes.float16)
    u, c = ir.input_("u", dtypes.uint8), ir.input_("c", BOOL)

    def one(node: Node) -> Node:
        return simplify([node])[0]

    assert one(ir.cast(ir.cast(x, F64), F32)) is x
    assert one(ir.cast(ir.cast(x, F64), I32)) is ir.cast(x, I32)
    assert one(ir.cast(ir.cast(u, I32), F32)) is ir.cast(u, F32)
    assert one(ir.cast(ir.cast(c, F64), I32)) is ir.cast(c, I32)
    assert one(ir.cast(ir.cast(h, F32), dtypes.float16)) is h
    kept = [
        ir.cast(ir.cast(x, dtypes.float16), F32),  # rounds
        ir.cast(ir.cast(h, F32), F64),  # derivatives go by the float32
        ir.cast(ir.cast(i, F32), F64),  # float32 does not hold every int32
        ir.cast(ir.cast(i, dtypes.uint8), dtypes.int64),
        ir.cast(ir.cast(u, dtypes.int8), I32),
    ]
    assert simplify(kept) == tuple(kept)
    rounded = ir.cast(ir.cast(ir.const(0.1, F32), dtypes.float16), F32)
    assert one(rounded) is ir.const(torch.tensor(0.1).half().item(), F32)
    z = ir.cast(x, dtypes.complex64)
    assert one(primitive("real", z)) is x
    assert one(primitive("conj", z)) is z
    assert one(primitive("real", ir.cast(x, dtypes.complex128))) is ir.cast(x, F64)


def loop_of(power: Node, start: Node) -> Node:
    """The sum of t**power over ten t, and an unused number handed in."""
    t, total, held = (ir.param(i, F64) for i in range(3))
    unused = ir.param(3, F64)
    step = (
        primitive("add", t, ir.const(1, F64)),
        primitive("add", total, primitive("pow", t, held)),
    )
    proceed = primitive("lt", t, primitive("mul", ir.const(1, F64), ir.const(10, F64)))
    del unused
    zero = ir.const(0, F64)
    return ir.iterate([start, zero], [power, start], Loop(step, proceed, 20))[1]


def test_bodies_of_loops_are_simplified_too() -> None:
    x, p = ir.input_("x", F64), ir.input_("p", F64)
    before = loop_of(ir.const(-1, F64), x)
    (after,) = simplify([before])
    verify([after])
    (whole,) = after.args
    assert isinstance(whole.attrs, Loop)
    assert len(whole.args) == 2  # the constant stands in the body, `start` was not read
    ops = {n.op for n in ir.topological(whole.attrs.roots)}
    assert "pow" not in ops
    assert "mul" not in ops
    assert interpret([after], {"x": 0.5}) == interpret([before], {"x": 0.5})
    general = loop_of(p, x)
    (kept,) = simplify([general])
    assert len(kept.args[0].args) == 3
    names = {"x": 0.5, "p": -1.5}
    assert interpret([kept], names) == interpret([general], names)


LEAVES = [
    ir.input_("x", F32),
    ir.input_("y", F64),
    ir.input_("i", I32),
    ir.input_("u", dtypes.uint8),
    ir.input_("b", BOOL),
    ir.input_("z", dtypes.complex64),
]
# Powers are not exact by intention.
ROWS = [r for r in PRIMITIVES.values() if r.name != "pow"]
# So are products of complex numbers with a real factor.
REAL_ROWS = [r for r in ROWS if r.name not in ("mul", "div", "sub")]


def draw_names(data: st.DataObject) -> Mapping[str, ir.Number]:
    return {str(n.attrs): data.draw(values_of(n.dtype)) for n in LEAVES}


@given(st.data())
@settings(max_examples=120)
def test_random_graphs_keep_their_values(data: st.DataObject) -> None:
    real = data.draw(st.booleans())
    leaves = LEAVES[:5] if real else LEAVES
    casts = [dtypes.float16, F32, F64, dtypes.int64, dtypes.uint8, I32]
    roots = [
        data.draw(graphs(leaves, ROWS if real else REAL_ROWS, casts=casts))
        for _ in range(2)
    ]
    after = simplify(roots)
    verify(after)
    assert [r.dtype for r in after] == [r.dtype for r in roots]
    assert simplify(after) == after
    for _ in range(3):
        names = draw_names(data)
        assert all_same(interpret(after, names), interpret(roots, names))


def test_work_is_linear() -> None:
    """Ten times the graph takes about ten times the calls, and is never deep."""

    def work(length: int) -> int:
        x = ir.input_("x", F32)
        node = x
        for _ in range(length):
            node = primitive("mul", primitive("neg", node), primitive("sin", node))
        return calls(lambda: simplify([node]))

    work(10)  # what is looked up once
    assert work(5_000) < 12 * work(500)
