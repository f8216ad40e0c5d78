"""Scheduling: what is computed where, under which name, how often."""

from __future__ import annotations

import pytest

from fuser import ir
from fuser.dtypes import (
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int64,
)
from fuser.ir import CallTarget, Loop, Node
from fuser.kernel import (
    Access,
    Assign,
    Kernel,
    Layout,
    Load,
    Operand,
    Repeat,
    reads,
    writes,
)
from fuser.program import Output, Program
from fuser.schedule import ScheduleError, schedule

X, Y = ir.input_("self", float32), ir.input_("other", float32)
ALPHA = ir.scalar("alpha", float64)


def op(name: str, *args: Node) -> Node:
    return ir.make(name, args[-1].dtype, args)


def program(*roots: Node, dtype: DType | None = None) -> Program:
    inputs = tuple(ir.leaves(roots, "input"))
    scalars = tuple(ir.leaves(roots, "scalar"))
    names = ("result", *(f"out{i}" for i in range(1, len(roots))))
    outputs = tuple(
        Output(n, r, dtype or r.dtype) for n, r in zip(names, roots, strict=True)
    )
    return Program("test.Tensor", inputs, scalars, outputs)


def flat(program: Program) -> Layout:
    count = len(program.inputs) + len(program.outputs)
    return Layout(1, (Access.LINEAR,) * count, int64)


def kernel(*roots: Node, dtype: DType | None = None) -> Kernel:
    made = program(*roots, dtype=dtype)
    return schedule(made, flat(made))


def names(kernel: Kernel) -> list[str]:
    return [name for s in kernel.body for name in writes(s)]


def test_a_small_program() -> None:
    k = kernel(op("add", op("exp", X), Y))
    assert k.name == "test_Tensor"
    assert [o.name for o in k.operands] == ["self", "other", "result"]
    assert [o.is_output for o in k.operands] == [False, False, True]
    assert k.operands[0].pointer == "self_ptr"
    assert names(k) == ["self", "other", "exp_1", "add_1"]
    assert k.stores[0].values == ("add_1",)
    assert k.prologue == k.arguments == k.checks == ()


def test_what_is_shared_is_computed_once() -> None:
    square = op("mul", X, X)
    k = kernel(op("add", square, square), op("neg", square))
    assert names(k) == ["self", "mul_1", "add_1", "neg_1"]


def test_constants_are_arguments_of_their_users() -> None:
    two = ir.const(2.0, float32)
    k = kernel(op("mul", X, two))
    assert k.body[-1] == Assign("mul_1", op("mul", X, two), ("self", two))


def test_every_load_comes_first() -> None:
    """An output may be stored where an input lies."""
    k = kernel(op("add", op("exp", X), op("exp", Y)))
    kinds = [isinstance(s, Load) for s in k.body]
    assert kinds == sorted(kinds, reverse=True)


def test_numbers_are_computed_before_the_elements() -> None:
    factor = op("mul", ir.cast(ALPHA, float32), ir.const(0.5, float32))
    k = kernel(op("mul", X, factor))
    assert [s.name for s in k.prologue if isinstance(s, Assign)] == [
        "alpha_f32",
        "mul_1",
    ]
    assert [(a.name, a.dtype) for a in k.arguments] == [("alpha", float64)]
    assert names(k) == ["self", "mul_2"]


def test_a_half_is_loaded_raw_and_converted_under_the_name_of_its_argument() -> None:
    for dtype in (float16, bfloat16):
        half = ir.input_("self", dtype)
        k = kernel(op("exp", ir.cast(half, float32)), dtype=dtype)
        load, convert, _ = k.body
        assert isinstance(load, Load) and load.name == "self_half"
        assert load.dtype == dtype
        assert isinstance(convert, Assign) and convert.name == "self"
        assert k.stores[0].dtype == float32
        assert k.stores[0].operand.dtype == dtype


def test_parts_of_complex_operands() -> None:
    z, c = ir.input_("z", complex64), ir.scalar("c", complex128)
    re, im = (ir.make(part, float32, (z,)) for part in ("real", "imag"))
    factor = ir.cast(ir.make("imag", float64, (c,)), float32)
    k = kernel(ir.make("complex", complex64, (im, op("mul", re, factor))))
    loads = [s for s in k.body if isinstance(s, Load)]
    assert [(s.name, s.part, s.dtype) for s in loads] == [
        ("z_re", 0, float32),
        ("z_im", 1, float32),
    ]
    assert [a.name for a in k.arguments] == ["c_re", "c_im"]
    assert k.stores[0].values == ("z_im", "mul_1")
    assert k.stores[0].operand.dtype == complex64


def test_only_the_parts_that_are_read_are_loaded() -> None:
    z = ir.input_("z", complex64)
    k = kernel(ir.make("imag", float32, (z,)))
    assert names(k) == ["z_im"]


def test_an_output_that_is_an_argument() -> None:
    z = ir.input_("z", complex64)
    assert kernel(X).stores[0].values == ("self",)
    assert kernel(z).stores[0].values == ("z_re", "z_im")


def test_operands_are_those_of_the_program_whether_used_or_not() -> None:
    made = Program("f", (X, Y), (ALPHA,), (Output("result", X, float32),))
    k = schedule(made, flat(made))
    assert [o.name for o in k.operands] == ["self", "other", "result"]
    assert [a.name for a in k.arguments] == ["alpha"]
    assert names(k) == ["self"]


def test_names_do_not_clash() -> None:
    inputs = tuple(
        ir.input_(n, float32)
        for n in (
            "exp",
            "for",
            "n",
            "a.b",
            "a_b",
            "add_1",
            "exp_ptr",
            "round_1",
            "size",
        )
    )
    total = inputs[0]
    for node in inputs[1:]:
        total = op("add", op("round", op("exp", total)), node)
    outputs = tuple(Output(n, total, float32) for n in ("exp", "for", "result"))
    made = Program("for", inputs, (ir.scalar("exp", float64),), outputs)
    k = schedule(made, flat(made))
    given = [o.name for o in k.operands] + [a.name for a in k.arguments]
    made_up = [n for n in names(k) if n not in given]
    assert len(set(given)) == len(given)
    assert len(set(made_up)) == len(made_up)
    pointers = {o.pointer for o in k.operands}
    assert len(pointers) == len(k.operands)
    assert not pointers & set(given + made_up)
    assert not {"exp", "for", "n", "round"} & set(given + made_up)
    assert all(n.isidentifier() and n.isascii() for n in given + made_up)


# -- loops -----------------------------------------------------------------------------


def p(index: int) -> Node:
    return ir.param(index, float32)


def test_a_loop() -> None:
    proceed = ir.make("lt", bool_, (p(0), p(2)))
    loop = Loop((op("add", p(0), p(1)), op("mul", p(1), p(2))), proceed, 9)
    first, second = ir.iterate([X, ir.const(1.0, float32)], [Y], loop)
    k = kernel(op("sub", first, second))
    repeat = k.body[2]
    assert isinstance(repeat, Repeat)
    assert repeat.state == ("state_1", "state_2")
    assert repeat.start == ("self", ir.const(1.0, float32))
    assert repeat.proceed == "lt_1"
    assert [n for s in repeat.guard for n in writes(s)] == ["lt_1"]
    assert [n for s in repeat.body for n in writes(s)] == ["add_1", "mul_1"]
    assert repeat.next == ("add_1", "mul_1")
    assert repeat.limit == 9
    assert reads(repeat) == {"self", "other"}
    assert k.body[3].args == ("state_1", "state_2")  # type: ignore[union-attr]


def test_what_the_guard_computed_the_body_uses() -> None:
    product = op("mul", p(0), p(1))
    loop = Loop((product,), ir.make("lt", bool_, (product, p(1))), 9)
    (root,) = ir.iterate([X], [Y], loop)
    repeat = kernel(root).body[2]
    assert isinstance(repeat, Repeat)
    assert repeat.body == ()
    assert repeat.next == ("mul_1",)


def test_loops_in_loops_have_names_of_their_own() -> None:
    (step,) = ir.iterate([p(0)], [p(1)], Loop((op("add", p(0), p(1)),), None, 3))
    (root,) = ir.iterate([X], [Y], Loop((step,), None, 4))
    outer = kernel(root).body[2]
    assert isinstance(outer, Repeat)
    (inner,) = outer.body
    assert isinstance(inner, Repeat)
    assert not set(inner.state) & set(outer.state)
    assert inner.start == outer.state
    assert outer.next == inner.state


def test_a_loop_over_numbers_runs_once_a_call() -> None:
    alpha = ir.cast(ALPHA, float32)
    (power,) = ir.iterate([alpha], [alpha], Loop((op("mul", p(0), p(1)),), None, 3))
    k = kernel(op("mul", X, power))
    assert isinstance(k.prologue[-1], Repeat)
    assert names(k) == ["self", "mul_2"]


# -- integer division ------------------------------------------------------------------


def test_a_divisor_that_may_be_zero_is_checked() -> None:
    a, b = ir.input_("a", int64), ir.input_("b", int64)
    k = kernel(op("idiv", a, b), op("imod", a, b))
    assert k.checks == ("division_by_zero_1",)
    test = k.body[2]
    assert isinstance(test, Assign) and test.node.op == "eq"
    assert test.args == ("b", ir.const(0, int64))


def test_a_constant_divisor_is_not_checked() -> None:
    a = ir.input_("a", int64)
    assert kernel(op("idiv", a, ir.const(3, int64))).checks == ()
    assert len(kernel(op("idiv", a, ir.const(0, int64))).checks) == 1


# -- what cannot be scheduled ----------------------------------------------------------


def test_a_call_is_refused() -> None:
    node = ir.call(CallTarget("acosh", (None,)), float32, (X,))
    with pytest.raises(ScheduleError, match='"acosh" of float32 is left'):
        kernel(node)


def test_a_complex_value_inside_is_refused() -> None:
    z = ir.input_("z", complex64)
    with pytest.raises(ScheduleError, match='"exp" of complex64 is left'):
        kernel(ir.make("real", float32, (op("exp", z),)))
    with pytest.raises(ScheduleError, match='"exp" of complex64 is left'):
        kernel(op("exp", z))


def test_a_layout_of_another_program_is_refused() -> None:
    with pytest.raises(ScheduleError, match="has 2 operands, the layout 3"):
        schedule(program(op("exp", X)), Layout(1, (Access.LINEAR,) * 3, int64))


def test_an_output_of_another_kind_is_refused() -> None:
    with pytest.raises(ScheduleError, match="output result"):
        kernel(X, dtype=complex64)


def test_flat_layouts() -> None:
    linear, uniform, strided = Access.LINEAR, Access.UNIFORM, Access.STRIDED
    assert Layout(1, (linear, uniform), int64).flat
    assert not Layout(1, (linear, strided), int64).flat
    assert not Layout(2, (linear, linear), int64).flat
    assert Operand("x", float32, linear, False).pointer == "x_ptr"
