"""Values and gradients where dtypes meet, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from fuser import dtypes, ir
from fuser.dtypes import DType
from fuser.ir import Static
from fuser.pipeline import Compiler, default_compiler
from fuser.specs import Spec, TensorSpec
from tests.fuser.programs import (
    F16,
    F32,
    F64,
    NONE,
    REAL,
    WHOLE,
    B,
    D,
    H,
    I,
    X,
    Z,
    carries,
    close,
    draw,
    eager,
    pick,
    run,
    vjp,
)


@pytest.fixture
def compiler() -> Compiler:
    return default_compiler()


MIXED: list[tuple[str, tuple[Spec, ...], Callable[..., Tensor], tuple[float, ...]]] = [
    ("mul.Tensor", (X, D), torch.mul, ()),
    ("mul.Tensor", (H, X), torch.mul, ()),
    ("mul.Tensor", (H, D), torch.mul, ()),
    ("mul.Tensor", (I, X), torch.mul, ()),
    ("mul.Tensor", (X, Z), torch.mul, ()),
    ("mul.Tensor", (TensorSpec(dtypes.bfloat16), H), torch.mul, ()),
    ("mul.Scalar", (I, REAL), lambda a: a * 2.5, (2.5,)),
    ("mul.Scalar", (H, REAL), lambda a: a * 2.5, (2.5,)),
    ("add.Tensor", (X, D, REAL), lambda a, b: torch.add(a, b, alpha=2.5), (2.5,)),
    ("add.Tensor", (H, H, WHOLE), lambda a, b: torch.add(a, b, alpha=3), (3,)),
    ("div.Tensor", (I, X), torch.div, ()),
    ("div.Tensor", (X, I), torch.div, ()),
    ("exp", (H,), torch.exp, ()),
    ("tanh", (H,), torch.tanh, ()),
    ("hypot", (H, H), torch.hypot, ()),
    ("logaddexp", (X, D), torch.logaddexp, ()),
    ("atan2", (H, X), torch.atan2, ()),
    ("where.self", (B, X, D), torch.where, ()),
    ("where.ScalarOther", (B, H, REAL), lambda c, a: torch.where(c, a, 2.5), (2.5,)),
    ("pow.Tensor_Scalar", (H, WHOLE), lambda a: a.pow(3), (3,)),
    ("pow.Tensor_Tensor", (X, D), lambda a, b: torch.pow(a.abs(), b), ()),
    ("lerp.Tensor", (X, X, X), torch.lerp, ()),
    ("masked_fill.Scalar", (H, B, REAL), lambda a, m: a.masked_fill(m, 2.5), (2.5,)),
    ("_to_copy", (X, Static(F16), *[NONE] * 3, Static(False), NONE), Tensor.half, ()),
    ("_to_copy", (H, Static(F64), *[NONE] * 3, Static(False), NONE), Tensor.double, ()),
    ("clamp", (H, REAL, REAL), lambda a: a.clamp(0.1, 0.7), (0.1, 0.7)),
]


@pytest.mark.parametrize(
    ("name", "specs", "function", "numbers"),
    MIXED,
    ids=[f"{n}({', '.join(map(str, s))})" for n, s, _, _ in MIXED],
)
def test_mixed_and_half_dtypes(
    compiler: Compiler,
    name: str,
    specs: Sequence[Spec],
    function: Callable[..., Tensor],
    numbers: Sequence[float],
) -> None:
    """Values and gradients have PyTorch's dtypes, and values within its roundings."""
    program = compiler.program(name, specs)
    tensors = [draw(s, name) for s in specs if isinstance(s, TensorSpec)]
    (value,) = run(program, tensors, numbers)
    expected = function(*tensors)
    assert value.dtype == expected.dtype
    close(value, expected)
    if not any(map(carries, tensors)):
        return
    weight = torch.randn(6).to(expected.dtype)
    derived = vjp(compiler, program)
    known = {"cotangent": [weight], "input": tensors, "output": [value]}
    places = [str(n.attrs) for n in program.scalars]
    used = [numbers[places.index(str(n.attrs))] for n in derived.program.scalars]
    found = run(derived.program, pick(derived, **known), used)
    grads = eager(function, tensors, weight)
    assert [f.dtype for f in found] == [g.dtype for g in grads]
    for mine, theirs in zip(found, grads, strict=True):
        close(mine, theirs, tensors)


def test_half_gradients_round_once(compiler: Compiler) -> None:
    """In between they are float32: this product leaves the range of float16."""
    program = compiler.program("addcmul", [H, H, H, REAL])
    derived = vjp(compiler, program, [False, True, False])
    tensors = [torch.tensor([v], dtype=torch.float16) for v in (1.0, 2.0, 300.0)]
    known = {"cotangent": [torch.tensor([400.0]).half()], "input": tensors}
    (found,) = run(derived.program, pick(derived, **known), [0.25])
    assert found.item() == 30_000.0


def test_second_derivatives_reach_a_half_input(compiler: Compiler) -> None:
    """Also beside a float64, where a cast might skip the float32 that is derived by."""
    program = compiler.program("mul.Tensor", [H, D])
    first = vjp(compiler, program)
    second = vjp(compiler, first.program)
    wanted = [str(n.attrs) for n in first.program.inputs]
    zeros = [
        name
        for name, output in zip(wanted, second.program.outputs, strict=True)
        if ir.is_const(output.node)
    ]
    assert zeros == []


def test_the_default_dtype(compiler: Compiler) -> None:
    for default in (F32, F64):
        program = compiler.program("div.Tensor", [I, I], default)
        assert program.outputs[0].dtype == default
        number = compiler.program("mul.Scalar", [I, REAL], default)
        assert number.outputs[0].dtype == default
    assert compiler.program("mul.Scalar", [X, REAL], F64).outputs[0].dtype == F32


@pytest.mark.parametrize("dtype", [F16, dtypes.bfloat16, F32, F64], ids=str)
def test_programs_of_every_float(compiler: Compiler, dtype: DType) -> None:
    program = compiler.program("tanh", [TensorSpec(dtype)])
    assert [o.dtype for o in program.outputs] == [dtype]
    assert program.roots[0].dtype == dtype.opmath
    derived = vjp(compiler, program).program
    assert [n.dtype for n in derived.inputs] == [dtype, dtype]
    assert [o.dtype for o in derived.outputs] == [dtype]
    assert derived.roots[0].dtype == dtype.opmath
