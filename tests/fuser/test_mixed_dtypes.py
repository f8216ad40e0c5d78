"""Values and gradients where dtypes meet, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from atentriton.specs import TO_TORCH
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


FLAT = TensorSpec(F64, zero_dim=True)
NUMBERS = ["eq", "gt", "le", "mul", "add", "div", "fmod", "remainder"]
ZERO_DIM = ["eq", "mul", "add", "div", "fmod", "remainder", "maximum", "atan2", "xlogy"]


@pytest.mark.parametrize("dtype", [F16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("base", NUMBERS)
def test_numbers_beside_halves(compiler: Compiler, base: str, dtype: DType) -> None:
    """They are rounded to the half first, but in arithmetic; as PyTorch has it."""
    specs: list[Spec] = [TensorSpec(dtype), REAL]
    if base == "add":
        specs.append(Static(1))
    x = torch.tensor([0.1, 21.9, -64.1, 300.0, 0.0999]).to(TO_TORCH[dtype])
    (found,) = run(compiler.program(f"{base}.Scalar", specs), [x], [0.1])
    assert found.tolist() == getattr(torch, base)(x, 0.1).tolist()


@pytest.mark.parametrize("dtype", [F16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("base", ZERO_DIM)
def test_wide_tensors_without_dimensions_beside_halves(
    compiler: Compiler, base: str, dtype: DType
) -> None:
    name = base if base in ("maximum", "atan2") else f"{base}.Tensor"
    specs: list[Spec] = [TensorSpec(dtype), FLAT]
    if base == "add":
        specs.append(Static(1))
    x = torch.tensor([0.1, 21.9, -64.1, 300.0, 0.0999]).to(TO_TORCH[dtype])
    flat = torch.tensor(0.1999, dtype=torch.float64)
    (found,) = run(compiler.program(name, specs), [x, flat])
    assert found.dtype == x.dtype or base == "eq"
    close(found, getattr(torch, base)(x, flat))


def test_integers_beside_halves(compiler: Compiler) -> None:
    """2049 is no float16, and is 2048 before it is halved."""
    program = compiler.program("mul.Tensor", [H, I])
    x, i = torch.tensor([0.5]).half(), torch.tensor([2049])
    assert run(program, [x, i])[0].item() == torch.mul(x, i).item() == 1024.0


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


# Where a derivative is linear over the reals only, forward mode is no conjugate of
# reverse mode.
COMPLEX: dict[str, tuple[tuple[Spec, ...], Callable[..., Tensor]]] = {
    "abs": ((Z,), torch.abs),
    "angle": ((Z,), torch.angle),
    "sgn": ((Z,), torch.sgn),
    "real": ((Z,), lambda z: torch.real(z).clone()),
    "imag": ((Z,), lambda z: torch.imag(z).clone()),
    "_conj_physical": ((Z,), torch.conj_physical),
    "complex": ((X, X), torch.complex),
    # Not torch.polar, whose gradient turns around where the modulus is negative.
    "polar": ((X, X), lambda r, t: torch.complex(r * t.cos(), r * t.sin())),
    "mul.Tensor": ((X, Z), torch.mul),
    "div.Tensor": ((Z, X), torch.div),
    "pow.Tensor_Tensor": ((Z, Z), torch.pow),
    "exp": ((Z,), torch.exp),
    "atan": ((Z,), torch.atan),
    "sqrt": ((Z,), torch.sqrt),
    "reciprocal": ((Z,), torch.reciprocal),
    "addcdiv": ((Z, Z, Z, Static(1)), lambda a, b, c: torch.addcdiv(a, b, c)),
    "lerp.Tensor": ((Z, Z, Z), torch.lerp),
    "where.self": ((B, Z, Z), torch.where),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_derivatives_in_both_modes(compiler: Compiler, name: str) -> None:
    specs, function = COMPLEX[name]
    program = compiler.program(name, specs)
    tensors = [draw(s, name) for s in specs if isinstance(s, TensorSpec)]
    (value,) = run(program, tensors)
    expected = function(*tensors).resolve_conj()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
    smooth = [carries(t) for t in tensors]
    weight = torch.randn(6).to(expected.dtype) * (1 + 0.5j if value.is_complex() else 1)
    pulled = vjp(compiler, program)
    known = {"cotangent": [weight], "input": tensors, "output": [value]}
    found = run(pulled.program, pick(pulled, **known))
    for mine, theirs in zip(found, eager(function, tensors, weight), strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    tangents = [torch.randn(6).to(t.dtype) for t in tensors]
    tangents = [t * (1 - 0.5j) if t.is_complex() else t for t in tangents]
    pushed = compiler.jvp(program, smooth)
    (mine,) = run(pushed.program, pick(pushed, **known, tangent=tangents))
    fixed = [t for t, s in zip(tensors, smooth, strict=True) if not s]
    moving = [i for i, s in enumerate(smooth) if s]
    _, theirs = torch.func.jvp(
        lambda *x: function(*fixed, *x),
        tuple(tensors[i] for i in moving),
        tuple(tangents[i] for i in moving),
    )
    torch.testing.assert_close(mine, theirs.resolve_conj(), rtol=1e-4, atol=1e-5)
