"""The bits of an element do not depend on its place in a tensor.

Nor on the length of the tensor, its strides, what is broadcast, or how many threads
share the work: what a kernel does in vectors it does so for every element.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import Tensor

from atentriton.specs import TO_TORCH
from fuser import ir
from fuser.dtypes import DType, bfloat16, bool_, complex64, float32, float64, int32
from fuser.ir import Node, Static
from fuser.pipeline import default_compiler
from fuser.program import Output, Program
from fuser.specs import TensorSpec
from tests.native import run

UNARY = ("exp", "log", "sin", "tanh", "erf", "gelu")
BINARY = ("pow.Tensor_Tensor", "atan2", "hypot", "xlogy.Tensor", "remainder.Tensor")
LENGTHS = (1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 200)
OFFSETS = (0, 1, 5, 16, 131)
COUNT = 331

named = pytest.mark.parametrize("name", [*UNARY, *BINARY])
typed = pytest.mark.parametrize("dtype", [float32, float64, bfloat16], ids=str)


def op(name: str, *args: Node) -> Node:
    return ir.make(name, args[-1].dtype, args)


@cache
def programs(name: str, dtype: DType) -> tuple[Program, ...]:
    """The operator and its backward, each as one kernel."""
    compiler = default_compiler()
    specs = [
        TensorSpec(dtype) if str(a.type) == "Tensor" else Static("none")
        for a in compiler.operator(name).signature.arguments
    ]
    program = compiler.program(name, specs)
    wanted = (True,) * len(program.inputs)
    backward = compiler.vjp(program, wanted, (True,)).program
    return (*compiler.kernels(program), *compiler.kernels(backward))


def draw(program: Program) -> list[Tensor]:
    """Arguments of the program, among them what vector functions treat apart."""
    values = torch.rand(len(program.inputs), COUNT) * 4 + 0.01
    values[:, 20] = 1e30
    values[:, 21] = torch.inf
    values[:, 40::37] *= -1
    return [
        v.to(TO_TORCH[i.dtype]) for v, i in zip(values, program.inputs, strict=True)
    ]


def same(found: list[Tensor], right: list[Tensor]) -> bool:
    """Whether all bits agree, those of a NaN aside."""
    return all(
        a.shape == b.shape
        and torch.equal(a.isnan(), b.isnan())
        and torch.equal(bits(a), bits(b))
        for a, b in zip(found, right, strict=True)
    )


def bits(values: Tensor) -> Tensor:
    values = torch.where(values.isnan(), 0, values).flatten()
    return values if values.dtype == torch.bool else values.view(torch.uint8)


def check_slices(program: Program, given: list[Tensor]) -> None:
    whole = run(program, given)
    for offset in OFFSETS:
        for length in LENGTHS:
            part = slice(offset, offset + length)
            found = run(program, [x[part].clone() for x in given])
            assert same(found, [w[part] for w in whole]), (offset, length)


@named
@typed
def test_neither_on_the_length_nor_the_offset(name: str, dtype: DType) -> None:
    for program in programs(name, dtype):
        check_slices(program, draw(program))


@named
@typed
def test_nor_on_the_strides(name: str, dtype: DType) -> None:
    for program in programs(name, dtype):
        given = draw(program)
        whole = run(program, given)
        stepped = [torch.stack([x, x], 1)[:, 1] for x in given]
        assert same(run(program, stepped), whole)
        out = [torch.stack([w, w], 1)[:, 0] for w in whole]
        assert same(run(program, given, out=out), whole)
        for height, width in ((15, 22), (110, 3), (2, 165)):
            flat = [x[:330].view(height, width) for x in given]
            want = [w[:330].view(height, width) for w in whole]
            turned = [x.t().contiguous().t() for x in flat]
            assert same(run(program, turned), want)
            assert same(run(program, [flat[0], *turned[1:]]), want)
            out = [torch.empty_like(w.t().contiguous()).t() for w in want]
            assert same(run(program, flat, out=out), want)


@pytest.mark.parametrize("name", BINARY)
@typed
def test_nor_on_what_is_broadcast(name: str, dtype: DType) -> None:
    """What is computed once a row comes out as it does in every element."""
    for program in programs(name, dtype):
        given = draw(program)
        for kept in range(len(given)):
            mixed = [
                x[:15].view(15, 1).expand(15, 22)
                if k == kept
                else x[:22].expand(15, 22)
                for k, x in enumerate(given)
            ]
            want = run(program, [x.reshape(-1) for x in mixed])
            assert same(run(program, mixed), [w.view(15, 22) for w in want])


@named
def test_nor_on_a_tensor_that_has_no_dimensions(name: str) -> None:
    for program in programs(name, float32):
        given = draw(program)
        whole = run(program, given)
        for k in range(0, COUNT, 9):
            found = run(program, [x[k].clone() for x in given])
            assert same(found, [w[k] for w in whole])


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["exp", "tanh", "atan2", "gelu"])
def test_nor_on_the_threads(name: str, threads: int) -> None:
    del threads
    for program in programs(name, float32):
        given = [x.repeat(301) for x in draw(program)]
        for count in (99_631, 50_001):
            (found, *_) = run(program, [x[:count] for x in given])
            for part in random.Random(count).sample(range(count - 40), 50):
                piece = [x[part : part + 33].clone() for x in given]
                assert same(run(program, piece)[:1], [found[part : part + 33]])


def test_types_of_all_widths_in_one_kernel() -> None:
    """A byte, halves, pairs and double precision, and a division that is checked."""
    x, y = ir.input_("x", bfloat16), ir.input_("y", float64)
    n, z, flag = ir.input_("n", int32), ir.input_("z", complex64), ir.input_("b", bool_)
    wave = ir.cast(op("sin", ir.cast(x, float32)), float64)
    power = op("pow", y, wave)
    re = ir.make("real", float32, (z,))
    im = op("exp", ir.make("imag", float32, (z,)))
    below = ir.make("lt", bool_, (ir.cast(power, float32), im))
    program = Program(
        "widths",
        (x, y, n, z, flag),
        (),
        (
            Output("power", power, float64),
            Output("half", ir.cast(im, float32), bfloat16),
            Output("pair", ir.make("complex", complex64, (im, re)), complex64),
            Output("below", ir.make("logical_and", bool_, (below, flag)), bool_),
            Output("quotient", op("idiv", ir.const(97, int32), n), int32),
        ),
    )
    given = draw(program)
    given[2] = given[2].clamp(1, 9)
    check_slices(program, given)
    with pytest.raises(ZeroDivisionError):
        run(program, [*given[:2], torch.zeros_like(given[2]), *given[3:]])
