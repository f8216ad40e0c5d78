"""Triton's kernels on a GPU, against PyTorch's operators there."""

from __future__ import annotations

import pytest
import torch

from atentriton.reference import evaluate
from fuser import dtypes, ir
from fuser.dtypes import bool_, float32, float64, int64
from fuser.ir import Loop, Node
from fuser.optable import PRIMITIVES
from fuser.program import Output, Program
from tests import rows

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu

# In units of the last place, of float32: two libraries may each be a few off.
ULPS = 8


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    rtol = atol = None
    if expected.dtype in (torch.float32, torch.float64):
        rtol = ULPS * torch.finfo(expected.dtype).eps
        atol = ULPS * torch.finfo(expected.dtype).smallest_normal
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("case", rows.CASES, ids=rows.name)
@pytest.mark.parametrize("layout", ["dense", "strided"])
def test_every_row(case: rows.Case, layout: str) -> None:
    program = rows.program(*case)
    tensors = [t.cuda() for t in rows.samples(*case, 8, 12, 50)]
    if layout == "strided":
        tensors = [t.transpose(0, 2) for t in tensors]
        tensors[0] = tensors[0][:, :, :1] if len(tensors) > 1 else tensors[0]
    assert_close(rows.run(program, tensors)[0], evaluate(program, tensors)[0])


def test_numbers_are_exact_and_compile_nothing() -> None:
    from atentriton import tritonkernels

    x = ir.input_("x", float64)
    alpha, k, flag = (
        ir.scalar("alpha", float64),
        ir.scalar("k", int64),
        ir.scalar("flag", bool_),
    )
    product = ir.make("mul", float64, (x, alpha))
    node = ir.make("where", float64, (flag, product, ir.cast(k, float64)))
    program = rows.of(node)
    program = Program("numbers", (x,), (alpha, k, flag), program.outputs)
    kernel = tritonkernels.load(rows.dense(program))
    tensor = torch.randn(64, dtype=torch.float64, device="cuda")
    out = torch.empty_like(tensor)
    for numbers in ((0.1, 1, True), (1.0, 2**53 - 1, False), (1e300, -16, True)):
        kernel([tensor, out], numbers, (64,))
        assert torch.equal(out, evaluate(program, [tensor], numbers)[0])
    (compiled, *_), *_ = kernel.function.device_caches.values()
    assert len(compiled) == 1


def test_another_device_than_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    x = torch.rand(100, device="cuda:1")
    (y,) = rows.run(rows.program(PRIMITIVES["exp"], float32), [x])
    assert_close(y, x.exp())


def test_pointers_that_are_not_aligned() -> None:
    storage = torch.rand(1025, device="cuda")
    program = rows.program(PRIMITIVES["neg"], float32)
    for x in (storage[1:], storage[:-1], storage[:1000], storage[:1], storage[3:20]):
        (y,) = rows.run(program, [x])
        assert torch.equal(y, -x)


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64, torch.bfloat16])
def test_how_elements_lie_in_memory(dtype: torch.dtype) -> None:
    x = torch.randn(3000, device="cuda")
    if dtype == torch.complex64:
        z = ir.input_("z", dtypes.complex64)
        a, b = (ir.make(part, float32, (z,)) for part in ("real", "imag"))
        program = rows.of(ir.make("complex", dtypes.complex64, (b, a)))
        given = torch.view_as_complex(x.reshape(-1, 2))
        expected = torch.complex(given.imag, given.real)
    elif dtype == torch.bool:
        node: Node = ir.make("logical_not", bool_, (ir.input_("m", bool_),))
        program, given, expected = rows.of(node), x > 0, ~(x > 0)
    else:
        program = rows.of(ir.input_("x", float32), dtypes.bfloat16)
        given, expected = x, x.bfloat16()
    assert torch.equal(rows.run(program, [given])[0], expected)


def test_a_loop() -> None:
    x, count = ir.param(0, float32), ir.param(1, int64)
    loop = Loop(
        (
            ir.make("mul", float32, (x, ir.const(0.5, float32))),
            ir.make("add", int64, (count, ir.const(1, int64))),
        ),
        ir.make("ge", bool_, (x, ir.const(1.0, float32))),
        30,
    )
    start = (ir.input_("x", float32), ir.const(0, int64))
    state = ir.iterate(start, (), loop)
    outputs = (Output("x", state[0], float32), Output("rounds", state[1], int64))
    program = Program("halve", (ir.input_("x", float32),), (), outputs)
    tensor = torch.logspace(-3, 12, 5000, device="cuda")
    for actual, expected in zip(
        rows.run(program, [tensor]), evaluate(program, [tensor]), strict=True
    ):
        assert torch.equal(actual, expected)
