"""Triton's kernels, run by Triton's interpreter, against the reference."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from atentriton.reference import evaluate
from fuser import dtypes, ir
from fuser.dtypes import DType, bool_, float32, float64, int64
from fuser.ir import Loop, Node
from fuser.kernel import Access, Layout
from fuser.optable import PRIMITIVES
from fuser.program import Output, Program
from fuser.schedule import schedule
from tests import rows

pytest.importorskip("triton")
pytestmark = pytest.mark.interpreter

# Of -0 and 0, which the one is that comes out as the greater or the lesser is open.
ZEROS_ALIKE = ("maximum", "minimum", "fmax", "fmin")


def assert_same(actual: Tensor, expected: Tensor, zeros_alike: bool = False) -> None:
    """Equal but for rounding: NaNs in the same places, zeros of the same sign."""
    accurate = {torch.float32: 1e-6, torch.float64: 1e-14}
    rtol = accurate.get(expected.dtype)
    atol = None if rtol is None else 0.0
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    if expected.is_floating_point() and not zeros_alike:
        known = ~expected.isnan()
        assert torch.equal(actual.signbit()[known], expected.signbit()[known])


def op(name: str, dtype: DType, *args: Node) -> Node:
    return ir.make(name, dtype, args)


@pytest.mark.parametrize("case", rows.CASES, ids=rows.name)
def test_every_row_on_dense_tensors(case: rows.Case) -> None:
    program = rows.program(*case)
    tensors = rows.samples(*case, 300)
    assert_same(
        rows.run(program, tensors)[0],
        evaluate(program, tensors)[0],
        case[0].name in ZEROS_ALIKE,
    )


@pytest.mark.parametrize("case", rows.CASES, ids=rows.name)
def test_every_row_on_strided_tensors(case: rows.Case) -> None:
    program = rows.program(*case)
    tensors = [t.transpose(0, 2) for t in rows.samples(*case, 3, 5, 4)]
    # An argument that is the same along a row, one that is along columns, one number.
    tensors[-1] = tensors[-1][:, :, :1] if len(tensors) > 1 else tensors[-1]
    tensors[0] = tensors[0][:1]
    tensors[0] = tensors[0] if len(tensors) < 3 else tensors[0][0, 0, 0]
    out = torch.empty(4, 5, 6, dtype=evaluate(program, tensors)[0].dtype)[..., ::2]
    out = out if len(tensors) > 1 else out[:1]
    rows.run(program, tensors, out=[out])
    expected = evaluate(program, tensors)[0]
    assert_same(out.contiguous(), expected, case[0].name in ZEROS_ALIKE)


@pytest.mark.parametrize("dtype", [float32, float64, dtypes.bfloat16], ids=str)
def test_one_element_for_all(dtype: DType) -> None:
    program = rows.program(PRIMITIVES["sub"], dtype)
    a, b = rows.domain(PRIMITIVES["sub"], dtype, 40)
    for tensors in ([a, b[0]], [a[0], b], [a[:1], b[:1]], [a[0], b[0]]):
        assert_same(rows.run(program, tensors)[0], evaluate(program, tensors)[0])


def test_results_that_are_constant() -> None:
    flag = ir.input_("flag", bool_)
    outputs = (
        Output("flag", flag, bool_),
        Output("one", ir.const(1.0, float32), dtypes.float16),
        Output("yes", ir.const(True, bool_), bool_),
        Output("three", ir.const(3, dtypes.uint8), dtypes.uint8),
    )
    program = Program("constants", (flag,), (), outputs)
    for tensor in (torch.tensor(True), torch.tensor([True, False]).expand(3, 2).t()):
        for actual, expected in zip(
            rows.run(program, [tensor]), evaluate(program, [tensor]), strict=True
        ):
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("index", [dtypes.int32, int64], ids=str)
def test_either_type_of_index(index: DType) -> None:
    from atentriton import tritonkernels

    program = rows.program(PRIMITIVES["exp"], float32)
    x, out = torch.randn(100), torch.empty(100)
    tritonkernels.load(rows.dense(program, index))([x, out], (), (100,))
    torch.testing.assert_close(out, x.exp())


def test_more_elements_than_a_program_has() -> None:
    x = torch.randn(2 * 65536 + 3)
    (y,) = rows.run(rows.program(PRIMITIVES["neg"], float32), [x])
    assert torch.equal(y, -x)


def test_no_elements_and_wrong_counts() -> None:
    from atentriton import tritonkernels

    kernel = tritonkernels.load(rows.dense(rows.program(PRIMITIVES["neg"], float32)))
    kernel([torch.empty(0), torch.empty(0)], (), (0,))
    with pytest.raises(ValueError, match="takes 2 tensors, got 1"):
        kernel([torch.empty(1)], (), (1,))
    with pytest.raises(ValueError, match="takes 0 numbers, got 1"):
        kernel([torch.empty(1)] * 2, (1.0,), (1,))


def test_numbers_are_exact() -> None:
    x = ir.input_("x", float64)
    k = ir.input_("k", int64)
    alpha, count, flag = (
        ir.scalar("alpha", float64),
        ir.scalar("count", int64),
        ir.scalar("flag", bool_),
    )
    outputs = (
        Output("product", op("mul", float64, x, alpha), float64),
        Output("sum", op("add", int64, k, count), int64),
        Output("chosen", op("where", float64, flag, x, alpha), float64),
        Output("third", op("mul", float64, x, ir.const(1 / 3, float64)), float64),
    )
    program = Program("numbers", (x, k), (alpha, count, flag), outputs)
    tensors = [torch.randn(9, dtype=torch.float64), torch.arange(9)]
    for numbers in ((0.1, 2**53 + 1, True), (1e300, -(2**63), False), (7, 1, False)):
        found = rows.run(program, tensors, numbers)
        for actual, expected in zip(
            found, evaluate(program, tensors, numbers), strict=True
        ):
            assert torch.equal(actual, expected)


def test_offsets_get_64_bits_where_they_need_them() -> None:
    from atentriton.tritonkernels import load, needs_int64

    kernel = rows.dense(rows.program(PRIMITIVES["neg"], float32))
    assert not needs_int64(kernel, (2**31 - 1024,), (), 1024)
    assert needs_int64(kernel, (2**31 - 1023,), (), 1024)
    z = ir.input_("z", dtypes.complex64)
    program = rows.of(op("real", float32, z))
    kernel = rows.dense(program)
    assert not needs_int64(kernel, (2**30,), (), 1024)
    assert needs_int64(kernel, (2**30 + 1,), (), 1024)
    layout = Layout(2, (Access.STRIDED, Access.LINEAR), dtypes.int32)
    kernel = schedule(program, layout)
    assert not needs_int64(kernel, (3, 5), (2**28, 2**20, 5, 1), 1024)
    assert needs_int64(kernel, (3, 5), (2**29, 2**20, 5, 1), 1024)
    wide = load(kernel).wide
    assert "tl.program_id(0).to(tl.int64)" in wide.source
    values, out = torch.randn(3, 5, dtype=torch.complex64), torch.empty(3, 5)
    wide([values, out], (), (3, 5), (5, 1, 5, 1))
    assert torch.equal(out, values.real)


@pytest.mark.parametrize("dtype", [dtypes.complex64, dtypes.complex128], ids=str)
def test_complex_tensors_are_pairs(dtype: DType) -> None:
    z, real = ir.input_("z", dtype), dtype.real
    a, b = op("real", real, z), op("imag", real, z)
    s = ir.scalar("s", dtype)
    turned = op("complex", dtype, op("neg", real, b), a)
    shifted = op("complex", dtype, op("add", real, a, op("real", real, s)), b)
    program = Program(
        "complex",
        (z,),
        (s,),
        (Output("turned", turned, dtype), Output("shifted", shifted, dtype)),
    )
    if dtype == dtypes.complex64:  # numbers come in full precision
        program = rows.of(turned)
    numbers = () if dtype == dtypes.complex64 else (2.5, 1.0)
    scalars = () if dtype == dtypes.complex64 else (2.5 + 1j,)
    for tensor in (torch.randn(3, 5, 2), torch.randn(5, 3, 2).transpose(0, 1)):
        z_ = torch.view_as_complex(tensor.to(getattr(torch, real.name)))
        found = rows.run(program, [z_], numbers)
        for actual, expected in zip(
            found, evaluate(program, [z_], scalars), strict=True
        ):
            assert torch.equal(actual, expected)


def test_conditions_on_numbers_meet_conditions_on_elements() -> None:
    x, s = ir.input_("x", float64), ir.scalar("s", float64)
    zero = ir.const(0.0, float64)
    positive = op("gt", bool_, x, zero)
    for name, numbers in (("logical_and", (1.0,)), ("logical_xor", (-1.0,))):
        both = op(name, bool_, op("gt", bool_, s, zero), positive)
        tensor = torch.randn(20, dtype=torch.float64)
        program = rows.of(both)
        expected = evaluate(program, [tensor], numbers)[0]
        assert torch.equal(rows.run(program, [tensor], numbers)[0], expected)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_literals_are_arguments_of_functions(dtype: DType) -> None:
    x, third = ir.input_("x", dtype), ir.const(1 / 3, dtype)
    for node in (
        op("pow", dtype, x, third),
        op("fmod", dtype, third, x),
        op("maximum", dtype, x, third),
        op("where", dtype, op("lt", bool_, x, third), third, x),
        op("exp", dtype, third),
    ):
        program = Program("literal", (x,), (), (Output("result", node, dtype),))
        (tensor,) = rows.domain(PRIMITIVES["sqrt"], dtype, 30)
        assert_same(rows.run(program, [tensor])[0], evaluate(program, [tensor])[0])


def counting(limit: int, proceed: bool) -> Program:
    """Newton's square root of x in at most `limit` rounds, and how many it took."""
    root, count, x = ir.param(0, float32), ir.param(1, int64), ir.param(2, float32)
    half = ir.const(0.5, float32)
    sum_ = op("add", float32, root, op("div", float32, x, root))
    change = op("sub", float32, op("mul", float32, root, root), x)
    away = op("gt", bool_, op("abs", float32, change), op("mul", float32, x, half))
    loop = Loop(
        (op("mul", float32, half, sum_), op("add", int64, count, ir.const(1, int64))),
        away if proceed else None,
        limit,
    )
    given = ir.input_("x", float32)
    start = (ir.const(1.0, float32), ir.const(0, int64))
    state = ir.iterate(start, (given,), loop)
    outputs = (Output("root", state[0], float32), Output("rounds", state[1], int64))
    return Program("root", (given,), (), outputs)


@pytest.mark.parametrize("limit", [0, 3, 40])
@pytest.mark.parametrize("proceed", [False, True])
def test_loops(limit: int, proceed: bool) -> None:
    program = counting(limit, proceed)
    x = torch.logspace(-4, 6, 200)
    root, rounds = rows.run(program, [x])
    expected = evaluate(program, [x])
    torch.testing.assert_close(root, expected[0])
    assert torch.equal(rounds, expected[1])
    if proceed and limit == 40:
        assert rounds.min() < rounds.max() < 40


def test_loops_inside_loops_and_states_that_change_places() -> None:
    x, y = ir.param(0, float32), ir.param(1, float32)
    inner = ir.iterate(
        (x,), (y,), Loop((op("add", float32, x, y),), op("lt", bool_, x, y), 5)
    )
    outer = Loop((y, op("mul", float32, inner[0], ir.const(0.5, float32))), None, 4)
    given = (ir.input_("a", float32), ir.input_("b", float32))
    first, second = ir.iterate(given, (), outer)
    program = Program(
        "swap",
        given,
        (),
        (Output("first", first, float32), Output("second", second, float32)),
    )
    tensors = [torch.rand(50), torch.rand(50)]
    for actual, expected in zip(
        rows.run(program, tensors), evaluate(program, tensors), strict=True
    ):
        torch.testing.assert_close(actual, expected)


def test_loops_over_numbers_alone() -> None:
    n = ir.scalar("n", float64)
    value, at = ir.param(0, float64), ir.param(1, float64)
    one = ir.const(1.0, float64)
    loop = Loop((op("mul", float64, value, at), op("sub", float64, at, one)), None, 5)
    factorial = ir.iterate((one, n), (), loop)[0]
    program = rows.of(op("mul", float64, ir.input_("x", float64), factorial))
    x = torch.rand(7, dtype=torch.float64)
    torch.testing.assert_close(rows.run(program, [x], (5.0,))[0], 120 * x)


CASTS = [
    (source, target)
    for source in dtypes.DTYPES.values()
    for target in dtypes.DTYPES.values()
    if source != target and not source.is_complex and not target.is_complex
]


@pytest.mark.parametrize("pair", CASTS, ids=lambda p: f"{p[0]}-{p[1]}")
def test_every_conversion(pair: tuple[DType, DType]) -> None:
    source, target = pair
    program = rows.of(ir.cast(ir.input_("x", source), target))
    values = torch.tensor(
        [0.0, 1.0, 2.0, 3.7, 100.0, -1.0, -2.6, 0.1, 1 / 3, 1.00390625]
    )
    if source.kind in ("bool", "int") and not source.signed:
        values = values.abs()
    x = values.to(getattr(torch, source.name))
    assert torch.equal(rows.run(program, [x])[0], evaluate(program, [x])[0])


def test_bfloat16_is_rounded_to_nearest() -> None:
    x = torch.cat(
        [torch.randn(1000), torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, math.nan])]
    )
    (y,) = rows.run(rows.of(ir.input_("x", float32), dtypes.bfloat16), [x])
    torch.testing.assert_close(y, x.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_a_result_may_overwrite_an_argument() -> None:
    x, y = torch.rand(20), torch.rand(20)
    expected = x - y
    rows.run(rows.program(PRIMITIVES["sub"], float32), [x, y], out=[y])
    assert torch.equal(y, expected)


def test_the_interpreter_is_left_as_it_was() -> None:
    from triton.runtime.interpreter import interpreter_builder

    before = dict(vars(interpreter_builder))
    rows.run(rows.program(PRIMITIVES["fmax"], float32), [torch.rand(3), torch.rand(3)])
    after = dict(vars(interpreter_builder))
    places = ("grid_idx", "grid_dim")  # where it stands, which it sets itself
    assert {k: v for k, v in after.items() if k not in places} == {
        k: v for k, v in before.items() if k not in places
    }


def test_square_roots_are_rounded_once() -> None:
    values = torch.rand(4096, dtype=torch.float64)
    x = ir.input_("x", float64)
    root = Output("root", op("sqrt", float64, x), float64)
    (found,) = rows.run(Program("root", (x,), (), (root,)), [values])
    assert found.tolist() == [math.sqrt(v) for v in values.tolist()]
