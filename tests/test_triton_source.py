"""What a Triton module looks like, and that nothing in it comes from a stranger."""

from __future__ import annotations

import ast
import math

import pytest

from fuser import dtypes, ir, targets
from fuser.dtypes import DType, bool_, float32, float64, int64
from fuser.ir import Loop, Node
from fuser.kernel import Access, Layout
from fuser.pressure import live_words
from fuser.program import Output, Program
from fuser.render import render
from fuser.schedule import schedule
from fuser.targets._triton_index import shape_parameters

LINEAR, UNIFORM, STRIDED = Access.LINEAR, Access.UNIFORM, Access.STRIDED


def op(name: str, dtype: DType, *args: Node) -> Node:
    return ir.make(name, dtype, args)


def source(program: Program, layout: Layout | None = None) -> str:
    count = len(program.inputs) + len(program.outputs)
    layout = layout or Layout(1, (LINEAR,) * count, dtypes.int32)
    return render(schedule(program, layout), targets.target("triton"))


def of(node: Node, stored: DType | None = None) -> Program:
    inputs = tuple(ir.leaves([node], "input"))
    scalars = tuple(ir.leaves([node], "scalar"))
    output = Output("result", node, stored or node.dtype)
    return Program("program", inputs, scalars, (output,))


def scaled_exp() -> Program:
    """result = exp(self * alpha) / (other + 0.5) of a bfloat16 self."""
    wide = ir.cast(ir.input_("self", dtypes.bfloat16), float32)
    other = ir.input_("other", float32)
    alpha = ir.scalar("alpha", float64)
    power = op("exp", float32, op("mul", float32, wide, ir.cast(alpha, float32)))
    result = op(
        "div", float32, power, op("add", float32, other, ir.const(0.5, float32))
    )
    return Program(
        "scaled_exp",
        (ir.input_("self", dtypes.bfloat16), other),
        (alpha,),
        (Output("result", result, dtypes.bfloat16),),
        ("result: (self * alpha).exp() / (other + 0.5)",),
    )


FLAT = """\
# result: (self * alpha).exp() / (other + 0.5)

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def scaled_exp_kernel(
    self_ptr,
    other_ptr,
    result_ptr,
    alpha: tl.float64,
    n: tl.int32,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n

    alpha_f32 = alpha.to(tl.float32)

    self_half = tl.load(self_ptr + offsets, mask)
    other = tl.load(other_ptr)
    self = self_half.to(tl.float32)
    mul_1 = self * alpha_f32
    exp_1 = libdevice.exp(mul_1)
    add_1 = other + 0.5
    div_1 = tl.div_rn(exp_1, add_1)

    tl.store(result_ptr + offsets, div_1.to(tl.bfloat16), mask)
"""


def test_a_flat_kernel() -> None:
    layout = Layout(1, (LINEAR, UNIFORM, LINEAR), dtypes.int32)
    assert source(scaled_exp(), layout) == FLAT


STRIDES = """\
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < size_0 * size_1 * size_2
    dim2 = index % size_2
    rest = index // size_2
    dim1 = rest % size_1
    rest = rest // size_1
    dim0 = rest
    self_at = dim0 * self_stride_0 + dim1 * self_stride_1 + dim2
    other_at = dim0 * other_stride_0 + dim1 * other_stride_1
    result_at = dim0 * result_stride_0 + dim1 * result_stride_1 + dim2 * result_stride_2
"""


def test_a_strided_kernel() -> None:
    layout = Layout(3, (LINEAR, UNIFORM, STRIDED), int64)
    text = source(scaled_exp(), layout)
    assert STRIDES in text
    assert "other = tl.load(other_ptr + other_at, mask)" in text
    names = [p.name for p in shape_parameters(schedule(scaled_exp(), layout))]
    strides = ["self_stride_0", "self_stride_1", "other_stride_0", "other_stride_1"]
    strides += ["result_stride_0", "result_stride_1", "result_stride_2"]
    assert names == ["size_0", "size_1", "size_2", *strides]
    assert all(f"    {name}: tl.int64,\n" in text for name in names)
    assert unspecialized(text) == names


def unspecialized(text: str) -> list[str]:
    """The arguments that the decorator tells Triton not to specialise on."""
    (function,) = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    (decorator,) = function.decorator_list
    if not isinstance(decorator, ast.Call):
        return []
    (keyword,) = decorator.keywords
    assert keyword.arg == "do_not_specialize"
    return ast.literal_eval(keyword.value)


def test_integers_given_at_run_time_are_not_specialised_on() -> None:
    k, flag = ir.scalar("k", int64), ir.scalar("flag", bool_)
    x = ir.input_("x", int64)
    text = source(of(op("where", int64, flag, op("add", int64, x, k), x)))
    assert "    k_1: tl.int64," in text and "    flag: tl.int1," in text
    assert unspecialized(text) == ["k_1"]


def test_a_loop_waits_for_its_last_element() -> None:
    x, count = ir.param(0, float32), ir.param(1, int64)
    loop = Loop(
        (
            op("mul", float32, x, ir.const(0.5, float32)),
            op("add", int64, count, ir.const(1, int64)),
        ),
        op("ge", bool_, x, ir.const(1.0, float32)),
        10,
    )
    start = (ir.input_("x", float32), ir.const(0, int64))
    text = source(of(ir.iterate(start, (), loop)[1]))
    expected = """\
    state_1 = tl.broadcast_to(x, [BLOCK])
    state_2 = tl.full([BLOCK], 0, tl.int64)
    alive_1 = mask
    round_1 = 0
    while (round_1 < 10) & (tl.max(alive_1.to(tl.int32), 0) > 0):
        ge_1 = state_1 >= 1.0
        alive_1 = alive_1 & ge_1
        mul_1 = state_1 * 0.5
        add_1 = state_2 + 1
        state_1, state_2 = (
            tl.where(alive_1, mul_1, state_1),
            tl.where(alive_1, add_1, state_2),
        )
        round_1 += 1
"""
    assert expected in text


@pytest.mark.parametrize(
    ("value", "dtype", "bare", "typed"),
    [
        (0.1, float64, "0.1", "tl.full((), 0.1, tl.float64)"),
        (0.1, float32, "0.1", "0.1"),
        (-0.0, float32, "-0.0", "-0.0"),
        (1e-40, float32, "1e-40", "tl.full((), 1e-40, tl.float32)"),
        (1e40, float32, 'float("inf")', 'float("inf")'),
        (-1e40, float64, "-1e+40", "tl.full((), -1e+40, tl.float64)"),
        (-math.inf, float32, 'float("-inf")', 'float("-inf")'),
        (math.nan, float64, 'float("nan")', 'tl.full((), float("nan"), tl.float64)'),
        (3, dtypes.int32, "3", "3"),
        (2**40, int64, "1099511627776", "tl.full((), 1099511627776, tl.int64)"),
        (300, dtypes.uint8, "44", "tl.full((), 44, tl.uint8)"),
    ],
)
def test_literals_get_the_type_of_the_constant(
    value: float, dtype: DType, bare: str, typed: str
) -> None:
    x, constant = ir.input_("x", dtype), ir.const(value, dtype)
    assert f"add_1 = x + {bare}\n" in source(of(op("add", dtype, x, constant)))
    chosen = op("where", dtype, ir.input_("c", bool_), x, constant)
    assert f"where_1 = tl.where(c, x, {typed})\n" in source(of(chosen))


def test_two_literals_are_not_left_to_python() -> None:
    one = ir.const(1.0, float32)
    text = source(of(op("add", float32, one, one)))
    literal = "tl.full((), 1.0, tl.float32)"
    assert f"add_1 = {literal} + {literal}\n" in text


def test_quotients_and_roots_of_float32_are_rounded_correctly() -> None:
    for dtype, quotient, root in (
        (float32, "tl.div_rn(x, 3.0)", "tl.sqrt_rn(x)"),
        (float64, "x / 3.0", "libdevice.sqrt(x)"),
    ):
        x = ir.input_("x", dtype)
        three = ir.const(3.0, dtype)
        assert f"div_1 = {quotient}\n" in source(of(op("div", dtype, x, three)))
        assert f"sqrt_1 = {root}\n" in source(of(op("sqrt", dtype, x)))


def test_bools_are_added_as_pytorch_adds_them() -> None:
    a, b = ir.input_("a", bool_), ir.input_("b", bool_)
    assert "add_1 = a | b\n" in source(of(op("add", bool_, a, b)))
    assert "mul_1 = a & b\n" in source(of(op("mul", bool_, a, b)))


def test_complex_elements_are_pairs() -> None:
    z = ir.input_("z", dtypes.complex64)
    a, b = op("real", float32, z), op("imag", float32, z)
    text = source(of(op("complex", dtypes.complex64, b, a)))
    assert "z_re = tl.load(z_ptr + 2 * offsets, mask)\n" in text
    assert "z_im = tl.load(z_ptr + 2 * offsets + 1, mask)\n" in text
    assert "tl.store(result_ptr + 2 * offsets, z_im, mask)\n" in text
    assert "tl.store(result_ptr + 2 * offsets + 1, z_re, mask)\n" in text


HOSTILE = [
    '"""\nimport os\n"""',
    "x\n    import os",
    "x\r\nimport os",
    "\\\nimport os",
    "x\x0bimport os\x0c\x1c\x85\u2028import os",
    "{{ 7 * 7 }} {% for x in y %}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_a_formula_stays_a_comment(text: str) -> None:
    x = ir.input_("x", float32)
    program = Program(
        text, (x,), (), (Output(text, op("neg", float32, x), float32),), (text,), text
    )
    tree = ast.parse(source(program))
    imports = [ast.unparse(n) for n in tree.body[:-1]]
    assert imports == ["import triton", "import triton.language as tl"]
    assert isinstance(tree.body[-1], ast.FunctionDef)
    assert "49" not in source(program)


NAMES = ["tl", "triton", "n", "offsets", "mask", "BLOCK", "libdevice", "None", "dim0"]
NAMES += ["size_0", "x_stride_0", "x_at", "λ", "lambda", "x", "float", "index"]


@pytest.mark.parametrize("layout", ["flat", "strided"])
def test_no_name_of_an_argument_means_something_else(layout: str) -> None:
    inputs = [ir.input_(name, float32) for name in NAMES]
    total = inputs[0]
    for node in inputs[1:]:
        total = op("exp", float32, op("add", float32, total, node))
    program = Program("tl", tuple(inputs), (), (Output("tl", total, float32),))
    rank = 1 if layout == "flat" else 2
    shape = Layout(rank, (LINEAR,) * (len(NAMES) + 1), dtypes.int32)
    text = source(program, shape)
    (function,) = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    parameters = [a.arg for a in function.args.args]
    assigned = [
        target.id
        for n in ast.walk(function)
        if isinstance(n, ast.Assign)
        for target in n.targets
        if isinstance(target, ast.Name) and target.id != "rest"
    ]
    given = [function.name, *parameters, *assigned, "tl", "libdevice", "triton"]
    assert len(given) == len(set(given))


def test_every_row_can_be_spelled_for_every_dtype() -> None:
    from tests import rows

    for case in rows.CASES:
        text = source(rows.program(*case))
        assert "{" not in text
        ast.parse(text)


def test_few_registers_are_counted_for_few_values() -> None:
    x = ir.input_("x", float32)
    node: Node = x
    for _ in range(100):
        node = op("sin", float32, node)
    layout = Layout(1, (LINEAR, LINEAR), dtypes.int32)
    assert live_words(schedule(of(node), layout)) == 1
    terms = [op(name, float32, x) for name in ("sin", "cos", "tan", "exp")]
    total = op("add", float32, op("mul", float32, *terms[:2]), x)
    for term in terms[2:]:
        total = op("fmod", float32, total, term)
    assert live_words(schedule(of(total), layout)) == 3
    wide = Layout(2, (LINEAR, LINEAR), int64)
    assert live_words(schedule(of(node), wide)) == 1 + 2 * 2
