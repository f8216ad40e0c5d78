"""The reference evaluator, against Python's numbers, the interpreter and PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from atentriton.reference import evaluate
from atentriton.specs import TO_TORCH
from fuser import dtypes, ir
from fuser.dtypes import DType, bool_, complex128, float32, float64, int64
from fuser.interpret import interpret
from fuser.ir import CallTarget, Loop, Node
from fuser.optable import PRIMITIVES
from fuser.program import Output, Program
from tests import rows

WIDEST = ("bool", "int64", "float64", "complex128")
PYTHON_CASES = [
    case
    for case in (*rows.CASES, *rows.COMPLEX_CASES)
    if case[1].name in WIDEST or case[1].is_integral
]


def op(name: str, dtype: DType, *args: Node) -> Node:
    return ir.make(name, dtype, args)


@pytest.mark.parametrize("case", PYTHON_CASES, ids=rows.name)
def test_every_row_means_the_same_in_python(case: rows.Case) -> None:
    row, dtype = case
    tensors = rows.domain(row, dtype, 50)
    if row.rule == "select":
        tensors[0] = torch.rand(50) < 0.5
    (actual,) = evaluate(rows.program(row, dtype), tensors)
    columns = zip(*(t.tolist() for t in tensors), strict=True)
    values = [row.python(*column) for column in columns]
    if actual.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        values = [ir.wrap_integer(int(v), dtype) for v in values]
    expected = torch.tensor(values, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-13)


def test_the_parts_of_a_complex_number() -> None:
    a, b = ir.input_("a", float64), ir.input_("b", float64)
    z = op("complex", complex128, a, b)
    found = evaluate(
        rows.of(op("mul", complex128, z, z)), [torch.tensor(2.0).double()] * 2
    )
    assert found[0] == torch.tensor(8j, dtype=torch.complex128)


def test_constants_and_numbers_are_exact() -> None:
    x = ir.input_("x", float64)
    alpha, k = ir.scalar("alpha", float64), ir.scalar("k", int64)
    outputs = (
        Output("third", op("add", float64, x, ir.const(1 / 3, float64)), float64),
        Output("alpha", op("add", float64, x, alpha), float64),
        Output("narrow", ir.cast(alpha, float32), float32),
        Output("count", k, int64),
    )
    program = Program("exact", (x,), (alpha, k), outputs)
    zero = torch.zeros(2, dtype=torch.float64)
    third, given, narrow, count = evaluate(program, [zero], [0.1, 2**53 + 1])
    assert third.tolist() == [1 / 3] * 2
    assert given.tolist() == [0.1] * 2
    assert narrow.dtype == torch.float32 and narrow[0].item() != 0.1
    assert count.tolist() == [2**53 + 1] * 2


def test_half_types_are_widened_and_rounded_once() -> None:
    x = ir.input_("x", dtypes.float16)
    wide = ir.cast(x, float32)
    square = op("mul", float32, wide, wide)
    back = op("sqrt", float32, square)
    (found,) = evaluate(
        rows.of(back, dtypes.float16), [torch.tensor([300.0, 1e-4]).half()]
    )
    assert torch.equal(found, torch.tensor([300.0, 1e-4]).half())  # 300**2 overflows
    (found,) = evaluate(rows.of(square, dtypes.float16), [torch.tensor([300.0]).half()])
    assert found.isinf().all()


@pytest.mark.parametrize("kind", ["complex", "bool"])
def test_conversions(kind: str) -> None:
    if kind == "complex":
        z = torch.tensor([1.5 - 2j, -0.5 + 1j])
        node = ir.cast(ir.input_("z", dtypes.complex64), float32)
        assert evaluate(rows.of(node), [z])[0].tolist() == [1.5, -0.5]
    else:
        node = ir.cast(ir.input_("x", float32), bool_)
        x = torch.tensor([0.0, -0.0, 0.1, math.nan])
        assert evaluate(rows.of(node), [x])[0].tolist() == [False, False, True, True]


def test_results_are_new_and_of_the_broadcast_shape() -> None:
    a, b = ir.input_("a", float32), ir.input_("b", float32)
    program = Program(
        "two", (a, b), (), (Output("a", a, float32), Output("b", b, dtypes.int32))
    )
    x, y = torch.rand(3, 1), torch.rand(2)
    first, second = evaluate(program, [x, y])
    assert first.shape == second.shape == (3, 2)
    assert first.is_contiguous() and second.dtype == torch.int32
    first.zero_()
    assert x.all()
    nothing = evaluate(program, [torch.empty(0, 1), y])
    assert [t.shape for t in nothing] == [(0, 2)] * 2


def test_gradients_are_not_recorded() -> None:
    x = torch.rand(3, requires_grad=True)
    (y,) = evaluate(rows.program(PRIMITIVES["exp"], float32), [x])
    assert not y.requires_grad


def counted(limit: int) -> Program:
    """x halved until it is below one, in at most `limit` rounds; the rounds."""
    x, count = ir.param(0, float64), ir.param(1, int64)
    loop = Loop(
        (
            op("mul", float64, x, ir.const(0.5, float64)),
            op("add", int64, count, ir.const(1, int64)),
        ),
        op("ge", bool_, x, ir.const(1.0, float64)),
        limit,
    )
    start = (ir.input_("x", float64), ir.const(0, int64))
    state = ir.iterate(start, (), loop)
    outputs = (Output("x", state[0], float64), Output("rounds", state[1], int64))
    return Program("halve", (ir.input_("x", float64),), (), outputs)


def test_a_loop_ends_for_each_element_by_itself() -> None:
    x = torch.tensor([0.3, 1.0, 5.0, 1e9, math.nan], dtype=torch.float64)
    halved, rounds = evaluate(counted(10), [x])
    assert rounds.tolist() == [0, 1, 3, 10, 0]
    assert torch.equal(halved[:4], x[:4] / 2 ** rounds[:4])


def test_loops_agree_with_the_interpreter() -> None:
    program = counted(20)
    for value in (0.5, 3.0, 1e5):
        found = evaluate(program, [torch.tensor([value], dtype=torch.float64)])
        assert interpret(program.roots, {"x": value}) == tuple(t.item() for t in found)


def test_division_by_zero() -> None:
    a, b = ir.param(0, int64), ir.param(1, int64)
    given = (ir.input_("a", int64), ir.input_("b", int64))
    for name, expected in (("idiv", [0, 2]), ("imod", [0, 1])):
        loop = Loop((op(name, int64, a, b),), None, 1)
        program = rows.of(ir.iterate(given[:1], given[1:], loop)[0])
        tensors = [torch.tensor([7, 7]), torch.tensor([0, 3])]
        assert evaluate(program, tensors)[0].tolist() == expected
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            evaluate(rows.of(op(name, int64, *given)), tensors)


def test_what_is_refused() -> None:
    x = ir.input_("x", float32)
    call = ir.call(CallTarget("polygamma", (None,)), float32, (x,))
    with pytest.raises(ValueError, match='"polygamma" is left'):
        evaluate(rows.of(call), [torch.rand(2)])
    program = rows.program(PRIMITIVES["exp"], float32)
    with pytest.raises(ValueError, match="takes 1 tensors, 0 were given"):
        evaluate(program, [])
    with pytest.raises(ValueError, match="takes 0 numbers, 1 were given"):
        evaluate(program, [torch.rand(2)], [1.0])
    with pytest.raises(ValueError, match=r"a is float32, got torch\.float64"):
        evaluate(program, [torch.rand(2).double()])


def test_values_are_let_go_after_their_last_use() -> None:
    node = ir.input_("x", float32)
    for _ in range(50):
        node = op("add", float32, node, ir.const(1.0, float32))
    alive: list[int] = []

    class Counted(torch.utils._python_dispatch.TorchDispatchMode):
        """Counts the results of operators that are still referred to."""

        def __init__(self) -> None:
            super().__init__()
            self.results: list[object] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            from weakref import ref

            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                self.results.append(ref(result))
            alive.append(sum(r() is not None for r in self.results))  # type: ignore[operator]
            return result

    with Counted():
        evaluate(rows.of(node), [torch.rand(4)])
    assert max(alive) < 8


def test_every_dtype_has_a_tensor_type() -> None:
    assert set(TO_TORCH) == set(dtypes.DTYPES.values())
