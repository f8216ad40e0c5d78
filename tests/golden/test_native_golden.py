"""The C of a few kernels, letter by letter.

After a change that is meant: ATENTRITON_UPDATE_GOLDEN=1 pytest tests/golden, and read
the difference before it is committed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fuser import ir
from fuser.dtypes import (
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    int32,
    int64,
)
from fuser.ir import Loop, Node
from fuser.kernel import Access, Layout
from fuser.program import Output, Program
from fuser.render import render
from fuser.schedule import schedule
from fuser.targets import target

FOLDER = Path(__file__).parent / "native"
LINEAR, UNIFORM, STRIDED = Access.LINEAR, Access.UNIFORM, Access.STRIDED


def op(name: str, *args: Node) -> Node:
    return ir.make(name, args[-1].dtype, args)


def flat() -> tuple[Program, Layout]:
    """tanh's backward in half precision: grad * (1 - result**2), with a number."""
    grad, result = ir.input_("grad", float16), ir.input_("result", float16)
    alpha = ir.cast(ir.scalar("alpha", float64), float32)
    g, r = ir.cast(grad, float32), ir.cast(result, float32)
    root = op(
        "mul", op("mul", g, alpha), op("sub", ir.const(1, float32), op("mul", r, r))
    )
    return (
        Program(
            "tanh_backward",
            (grad, result),
            (ir.scalar("alpha", float64),),
            (Output("grad_self", root, float16),),
            (
                "tanh(Tensor self) -> Tensor",
                "self: tanh_backward(grad, result) * alpha",
            ),
            "tanh(float16).vjp(self)",
        ),
        Layout(1, (LINEAR, LINEAR, LINEAR), int64),
    )


def strided() -> tuple[Program, Layout]:
    """Three dimensions, every kind of access, integers that are divided."""
    a, b = ir.input_("a", int32), ir.input_("b", int32)
    x, z = ir.input_("x", bfloat16), ir.input_("z", complex64)
    quotient = ir.cast(op("idiv", a, b), float32)
    re, im = (ir.make(part, float32, (z,)) for part in ("real", "imag"))
    scaled = op("mul", op("exp", ir.cast(x, float32)), re)
    total = ir.make("complex", complex64, (op("add", quotient, scaled), im))
    below = ir.make("lt", bool_, (quotient, scaled))
    return (
        Program(
            "mixture",
            (a, b, x, z),
            (),
            (Output("total", total, complex64), Output("below", below, bool_)),
        ),
        Layout(3, (LINEAR, UNIFORM, STRIDED, LINEAR, STRIDED, LINEAR), int64),
    )


def loop() -> tuple[Program, Layout]:
    """A loop until convergence, and a short one after it."""
    x = ir.input_("x", float64)
    p0, p1 = ir.param(0, float64), ir.param(1, float64)
    half = ir.const(0.5, float64)
    better = op("mul", op("add", p0, op("div", p1, p0)), half)
    off = op("abs", op("sub", op("mul", p0, p0), p1))
    proceed = ir.make("gt", bool_, (off, ir.const(1e-12, float64)))
    (root,) = ir.iterate([x], [x], Loop((better,), proceed, 100))
    (power,) = ir.iterate([root], [x], Loop((op("mul", p0, p1),), None, 3))
    return (
        Program("heron", (x,), (), (Output("result", power, float64),)),
        Layout(1, (LINEAR, LINEAR), int64),
    )


CASES: list[Callable[[], tuple[Program, Layout]]] = [flat, strided, loop]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_source(case: Callable[[], tuple[Program, Layout]]) -> None:
    source = render(schedule(*case()), target("native"))
    path = FOLDER / f"{case.__name__}.c"
    if os.environ.get("ATENTRITON_UPDATE_GOLDEN") == "1":
        FOLDER.mkdir(exist_ok=True)
        path.write_text(source)
    assert source == path.read_text()
