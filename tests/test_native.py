"""C kernels: layouts, aliasing, numbers, loops, threads, errors."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton import native
from fuser import dtypes, ir
from fuser.dtypes import (
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int32,
    int64,
)
from fuser.ir import Loop, Node
from fuser.kernel import Access, Layout
from fuser.program import Output, Program
from fuser.schedule import schedule
from tests import rows
from tests.native import run

A, B = ir.input_("a", float32), ir.input_("b", float32)


def op(name: str, *args: Node) -> Node:
    return ir.make(name, args[-1].dtype, args)


def mixed() -> Program:
    """exp(a) * b - a, which a wrong stride of either argument would spoil."""
    return rows.of(op("sub", op("mul", op("exp", A), B), A))


def mixed_reference(a: Tensor, b: Tensor) -> Tensor:
    return a.exp() * b - a


SHAPES: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "dense": lambda: (torch.randn(1000), torch.randn(1000)),
    "one element": lambda: (torch.randn(1), torch.randn(1)),
    "no dimensions": lambda: (torch.randn(()), torch.randn(())),
    "a number": lambda: (torch.randn(33, 7), torch.randn(())),
    "a row": lambda: (torch.randn(33, 7), torch.randn(7)),
    "a column": lambda: (torch.randn(33, 7), torch.randn(33, 1)),
    "an outer sum": lambda: (torch.randn(33, 1), torch.randn(1, 7)),
    "transposed": lambda: (torch.randn(33, 7), torch.randn(7, 33).t()),
    "several tiles": lambda: (torch.randn(150, 70), torch.randn(70, 150).t()),
    "tiles in tiles": lambda: (
        torch.randn(3, 40, 130),
        torch.randn(130, 3, 40).permute(1, 2, 0),
    ),
    "stepped": lambda: (torch.randn(33, 14)[:, ::2], torch.randn(66, 7)[::2]),
    "both stepped": lambda: (torch.randn(70)[::7], torch.randn(30)[::3]),
    "middle": lambda: (torch.randn(5, 6, 7), torch.randn(5, 1, 7)),
    "permuted": lambda: (
        torch.randn(3, 4, 5, 6).permute(2, 0, 3, 1),
        torch.randn(5, 3, 6, 4),
    ),
    "five dimensions": lambda: (
        torch.randn(2, 3, 4, 3, 2).permute(4, 2, 0, 3, 1),
        torch.randn(4, 1, 3, 1),
    ),
    "channels last": lambda: (
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(3, 1, 1),
    ),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_layouts(shapes: Callable[[], tuple[Tensor, Tensor]]) -> None:
    a, b = shapes()
    want = mixed_reference(a, b)
    assert_close(run(mixed(), [a, b])[0], want)
    backwards = torch.empty(want.shape[::-1]).permute(tuple(range(want.dim()))[::-1])
    assert_close(run(mixed(), [a, b], out=[backwards])[0], want)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("columns", [1, 3, 5000])
def test_large_tensors_are_shared_among_threads(threads: int, columns: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        a = torch.randn(100_003 // columns, columns)
        b = torch.randn(columns, a.shape[0]).t()
        assert_close(run(mixed(), [a, b])[0], mixed_reference(a, b))
        a, b = a.flatten(), torch.randn(a.numel())
        assert_close(run(mixed(), [a, b])[0], mixed_reference(a, b))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 63, 64, 65, 4097])
def test_nothing_is_written_outside(count: int) -> None:
    out = torch.full((count + 32,), 7.0)
    a, b = torch.randn(count), torch.randn(count)
    run(mixed(), [a, b], out=[out[16:-16]])
    assert_close(out[16:-16], mixed_reference(a, b))
    assert (out[:16] == 7).all() and (out[-16:] == 7).all()


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_addresses_need_no_alignment(offset: int) -> None:
    a, b, out = (torch.randn(1000)[offset:] for _ in range(3))
    assert_close(run(mixed(), [a, b], out=[out])[0], mixed_reference(a, b))
    for dtype in (float16, bfloat16, float64):
        x, y = ir.input_("x", dtype), ir.input_("y", dtype)
        total = op("add", ir.cast(x, dtype.opmath), ir.cast(y, dtype.opmath))
        t = getattr(torch, dtype.name)
        a, b = (torch.randn(1000, dtype=t)[offset:] for _ in range(2))
        assert_close(run(rows.of(total, dtype), [a, b])[0], a + b)


def test_an_output_may_be_an_input() -> None:
    a, b = torch.randn(100_000), torch.randn(100_000)
    want = mixed_reference(a, b)
    run(mixed(), [a, b], out=[a])
    assert_close(a, want)
    a = torch.randn(300, 200).t()
    want = mixed_reference(a, a)
    run(mixed(), [a, a], out=[a])
    assert_close(a, want)


def test_outputs_may_trade_places_with_inputs() -> None:
    swap = Program(
        "swap", (A, B), (), (Output("first", B, float32), Output("second", A, float32))
    )
    a, b = torch.randn(1000), torch.randn(1000)
    want = b.clone(), a.clone()
    run(swap, [a, b], out=[a, b])
    assert_close((a, b), want)


def test_numbers() -> None:
    alpha, count = ir.scalar("alpha", float64), ir.scalar("count", int64)
    flag = ir.scalar("flag", bool_)
    factor = op("mul", ir.cast(alpha, float32), ir.cast(count, float32))
    scaled = op("mul", A, factor)
    root = ir.make("where", float32, (flag, scaled, op("neg", scaled)))
    output = Output("result", root, float32)
    program = Program("scaled", (A,), (alpha, count, flag), (output,))
    a = torch.randn(100)
    for given, sign in (((0.1, 3, True), 1), ((0.1, 3, False), -1)):
        (got,) = run(program, [a], given)
        assert_close(got, sign * 3 * a * 0.1)


def test_whole_numbers_keep_all_their_bits() -> None:
    x = ir.input_("x", int64)
    total = rows.of(op("add", x, ir.scalar("n", int64)))
    x = torch.tensor([0, 1, -5])
    (got,) = run(total, [x], [2**62 + 1])
    assert got.tolist() == [2**62 + 1, 2**62 + 2, 2**62 - 4]


def test_constants_are_exact() -> None:
    values = [0.1, -0.0, 1e-45, 1.5e-310, math.pi, 3.4e38, 1e300, -math.inf, math.nan]
    for dtype in (float32, float64):
        for value in values:
            choices = (ir.const(value, dtype), ir.const(0.0, dtype))
            root = ir.make("where", dtype, (ir.input_("x", bool_), *choices))
            (got,) = run(rows.of(root), [torch.tensor([True])])
            want = torch.tensor([value], dtype=getattr(torch, dtype.name))
            assert_close(got, want, rtol=0, atol=0, equal_nan=True)
            assert value != 0 or got.signbit().item() == want.signbit().item()
    for dtype in (dtypes.int8, dtypes.uint8, int32, int64):
        info = torch.iinfo(getattr(torch, dtype.name))
        for value in (info.min, info.max, 0):
            root = ir.make(
                "add", dtype, (ir.input_("x", dtype), ir.const(value, dtype))
            )
            (got,) = run(
                rows.of(root), [torch.zeros(1, dtype=getattr(torch, dtype.name))]
            )
            assert got.item() == value


@pytest.mark.parametrize("dtype", [complex64, complex128], ids=str)
def test_complex_tensors(dtype: dtypes.DType) -> None:
    """(x + iy) * alpha of complex elements, taken apart as the compiler does."""
    z, alpha = ir.input_("z", dtype), ir.scalar("alpha", complex128)
    real = dtype.real

    def parts(node: Node) -> tuple[Node, Node]:
        kind = node.dtype.real
        re, im = (ir.make(p, kind, (node,)) for p in ("real", "imag"))
        return ir.cast(re, real), ir.cast(im, real)

    (x, y), (u, v) = parts(z), parts(alpha)
    re = op("sub", op("mul", x, u), op("mul", y, v))
    im = op("add", op("mul", x, v), op("mul", y, u))
    product = rows.of(ir.make("complex", dtype, (re, im)))
    tensor = getattr(torch, dtype.name)
    for values in (
        torch.randn(100, dtype=tensor),
        torch.randn(7, 9, dtype=tensor).t(),
        torch.randn(50, dtype=tensor)[::3],
        torch.randn(5, 6, 8, dtype=tensor)[:, 1:4].permute(2, 0, 1),
    ):
        assert_close(run(product, [values], [0.5, -2.0])[0], values * (0.5 - 2j))
    same = rows.of(z)
    values = torch.randn(8, dtype=tensor)
    assert_close(run(same, [values])[0], values)


def test_conversions() -> None:
    values = torch.tensor([0.0, -0.0, 0.4, -1.9, 2.5, 100.0, math.nan])
    for source in (float32, float64, float16, bfloat16):
        for target in (bool_, int32, int64, float16, bfloat16, float32, float64):
            x = ir.input_("x", source)
            program = rows.of(ir.cast(ir.cast(x, source.opmath), target))
            given = values.to(getattr(torch, source.name))
            if target.is_integral:
                given = given[:-1]
            want = given.to(getattr(torch, target.name))
            assert_close(run(program, [given])[0], want, rtol=0, atol=0, equal_nan=True)
    wrapping = torch.tensor([-1.5, 255.0, 256.5, 300.0, -200.0, 127.0, 128.0])
    for target in (dtypes.int8, dtypes.uint8, dtypes.int16):
        program = rows.of(ir.cast(A, target))
        assert_close(
            run(program, [wrapping])[0], wrapping.to(getattr(torch, target.name))
        )


def test_bools_are_bytes_of_any_value() -> None:
    x = torch.tensor([0, 1, 2, 255], dtype=torch.uint8).view(torch.bool)
    program = rows.of(ir.make("logical_not", bool_, (ir.input_("x", bool_),)))
    assert run(program, [x])[0].tolist() == [True, False, False, False]


# -- loops -----------------------------------------------------------------------------


def param(index: int) -> Node:
    return ir.param(index, float64)


def test_a_loop_until_it_converges() -> None:
    """Newton's iteration for the square root, each element with its own count."""
    x = ir.input_("x", float64)
    guess, target = param(0), param(1)
    better = op(
        "mul", op("add", guess, op("div", target, guess)), ir.const(0.5, float64)
    )
    off = op("abs", op("sub", op("mul", guess, guess), target))
    proceed = ir.make("gt", bool_, (off, op("mul", target, ir.const(1e-12, float64))))
    (root,) = ir.iterate([x], [x], Loop((better,), proceed, 100))
    program = rows.of(root)
    values = torch.rand(1000, dtype=torch.float64) * 1e6
    want = values.sqrt()
    assert_close(run(program, [values])[0], want)
    assert_close(run(program, [values[:1]])[0], want[:1])
    assert_close(run(program, [values.view(40, 25).t()])[0], want.view(40, 25).t())
    guarded = torch.full((1032,), 7.0, dtype=torch.float64)
    guarded[:1000] = values
    run(program, [guarded[:1000]], out=[guarded[:1000]])
    assert_close(guarded[:1000], want)
    assert (guarded[1000:] == 7).all()


def test_a_loop_sets_its_state_all_at_once() -> None:
    """Fibonacci numbers: the second element becomes the sum of both old ones."""
    x, y = ir.input_("x", float64), ir.input_("y", float64)
    loop = Loop((param(1), op("add", param(0), param(1))), None, 10)
    first, second = ir.iterate([x, y], [], loop)
    program = rows.of(op("sub", op("mul", second, ir.const(1000.0, float64)), first))
    zero, one = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    assert run(program, [zero, one])[0].tolist() == [89 * 1000 - 55] * 3


def test_a_loop_in_a_loop() -> None:
    x = ir.input_("x", float64)
    inner = Loop((op("add", param(0), param(1)),), None, 3)
    (step,) = ir.iterate([param(0)], [param(1)], inner)
    (root,) = ir.iterate([x], [x], Loop((step,), None, 4))
    values = torch.randn(10, dtype=torch.float64)
    assert_close(run(rows.of(root), [values])[0], values * 13)


def test_a_loop_over_numbers_runs_once_a_call() -> None:
    alpha = ir.scalar("alpha", float64)
    (power,) = ir.iterate(
        [ir.const(1.0, float64)],
        [alpha],
        Loop((op("mul", param(0), param(1)),), None, 5),
    )
    x = ir.input_("x", float64)
    program = rows.of(op("mul", x, power))
    kernel = schedule(program, Layout(1, (Access.LINEAR,) * 2, int64))
    assert len(kernel.prologue) == 1
    assert (
        run(program, [torch.ones(2, dtype=torch.float64)], [2.0])[0].tolist()
        == [32.0] * 2
    )


# -- integer division ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["idiv", "imod"])
def test_division_by_zero_is_reported(name: str) -> None:
    x, y = ir.input_("x", int64), ir.input_("y", int64)
    program = rows.of(op(name, x, y))
    a, b = torch.arange(100_000), torch.ones(100_000, dtype=torch.int64)
    run(program, [a, b])
    b[77_777] = 0
    with pytest.raises(ZeroDivisionError):
        run(program, [a, b])
    with pytest.raises(ZeroDivisionError):
        run(program, [a, torch.zeros((), dtype=torch.int64)])


def test_division_by_a_number() -> None:
    x = ir.input_("x", int64)
    by_number = rows.of(op("idiv", x, ir.scalar("n", int64)))
    a = torch.arange(-10, 10)
    want = torch.div(a, 3, rounding_mode="trunc")
    assert torch.equal(run(by_number, [a], [3])[0], want)
    with pytest.raises(ZeroDivisionError):
        run(by_number, [a], [0])
    by_constant = rows.of(op("idiv", x, ir.const(3, int64)))
    assert torch.equal(run(by_constant, [a])[0], want)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int16, int32, int64], ids=str)
def test_the_least_number_by_minus_one(dtype: dtypes.DType) -> None:
    """It wraps around, where the processor would stop the process."""
    info = torch.iinfo(getattr(torch, dtype.name))
    a = torch.tensor([info.min, 5], dtype=getattr(torch, dtype.name))
    x, y = ir.input_("x", dtype), ir.input_("y", dtype)
    quotient = run(rows.of(op("idiv", x, y)), [a, torch.full_like(a, -1)])[0]
    assert quotient.tolist() == [info.min, -5]
    remainder = run(rows.of(op("imod", x, y)), [a, torch.full_like(a, -1)])[0]
    assert remainder.tolist() == [0, 0]


# -- compiling -------------------------------------------------------------------------


def test_names_of_arguments_may_be_words_of_the_language() -> None:
    names = ["double", "int", "n", "exp", "begin", "threads", "status", "i", "lambda"]
    inputs = tuple(ir.input_(name, float32) for name in names)
    total = inputs[0]
    for node in inputs[1:]:
        total = op("add", op("exp", total), node)
    outputs = (Output("double", total, float32), Output("a.b", total, float32))
    program = Program("exp", inputs, (), outputs, ("*/ } \\\n evil ??/",))
    got = run(program, [torch.zeros(3)] * len(names))
    assert_close(got[0], got[1])


def test_contraction_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    program = rows.of(op("add", op("mul", A, B), ir.const(-1.0, float32)))
    a = 1 + torch.rand(10_000)
    b = 1 / a
    monkeypatch.setattr(native, "contract", False)
    assert torch.equal(run(program, [a, b])[0], a * b - 1)
    monkeypatch.setattr(native, "contract", True)
    assert not torch.equal(run(program, [a, b])[0], a * b - 1)


def test_a_kernel_is_loaded_once() -> None:
    kernel = schedule(mixed(), Layout(1, (Access.LINEAR,) * 3, int64))
    assert native.load(kernel) is native.load(kernel)


def test_threads_may_load_and_run_at_once() -> None:
    a, b = torch.randn(1000), torch.randn(1000)
    wrong: list[float] = []

    def work() -> None:
        for shift in range(4):
            root = op("add", op("mul", A, B), ir.const(shift + 0.125, float32))
            (got,) = run(rows.of(root), [a, b])
            wrong.extend((got - (a * b + shift + 0.125)).abs()[:1].tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 16 and max(wrong) < 1e-5
