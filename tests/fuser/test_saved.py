"""What a backward program reads: what has to be saved, as PyTorch saves it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fuser.ir import Static
from fuser.pipeline import Compiler, default_compiler
from fuser.specs import Spec
from tests.fuser.programs import (
    F64,
    NONE,
    REAL,
    B,
    X,
    Z,
    vjp,
)


@pytest.fixture
def compiler() -> Compiler:
    return default_compiler()


SAVED: list[tuple[str, tuple[Spec, ...], str, set[str]]] = [
    ("exp", (X,), "1", {"result"}),
    ("exp2", (X,), "1", {"result"}),
    ("expm1", (X,), "1", {"result"}),
    ("tanh", (X,), "1", {"result"}),
    ("sigmoid", (X,), "1", {"result"}),
    ("sqrt", (X,), "1", {"result"}),
    ("rsqrt", (X,), "1", {"result"}),
    ("reciprocal", (X,), "1", {"result"}),
    ("relu", (X,), "1", {"result"}),
    ("tan", (X,), "1", {"result"}),
    ("sin", (X,), "1", {"self"}),
    ("log", (X,), "1", {"self"}),
    ("atan", (X,), "1", {"self"}),
    ("acosh", (X,), "1", {"self"}),
    ("abs", (X,), "1", {"self"}),
    ("erf", (X,), "1", {"self"}),
    ("digamma", (X,), "1", {"self"}),
    ("hardswish", (X,), "1", {"self"}),
    ("neg", (X,), "1", set()),
    ("floor", (X,), "1", set()),
    ("deg2rad", (X,), "1", set()),
    ("clone", (X, NONE), "1", set()),
    ("add.Tensor", (X, X, REAL), "11", set()),
    ("sub.Tensor", (X, X, REAL), "11", set()),
    ("mul.Tensor", (X, X), "10", {"other"}),
    ("mul.Tensor", (X, X), "01", {"self"}),
    ("mul.Tensor", (X, X), "11", {"self", "other"}),
    ("mul.Scalar", (X, REAL), "1", set()),
    ("div.Tensor", (X, X), "10", {"other"}),
    ("div.Tensor", (X, X), "01", {"self", "other"}),
    ("div.Tensor_mode", (X, X, Static("floor")), "11", set()),
    ("addcmul", (X, X, X, REAL), "100", set()),
    ("addcmul", (X, X, X, REAL), "010", {"tensor2"}),
    ("addcdiv", (X, X, X, REAL), "001", {"tensor1", "tensor2"}),
    ("lerp.Tensor", (X, X, X), "110", {"weight"}),
    ("lerp.Tensor", (X, X, X), "001", {"self", "end"}),
    ("pow.Tensor_Scalar", (X, REAL), "1", {"self"}),
    ("pow.Tensor_Tensor", (X, X), "10", {"self", "exponent"}),
    ("pow.Scalar", (REAL, X), "1", {"exponent", "result"}),
    ("hypot", (X, X), "10", {"self", "result"}),
    ("atan2", (X, X), "11", {"self", "other"}),
    ("where.self", (B, X, X), "011", {"condition"}),
    ("masked_fill.Scalar", (X, B, REAL), "10", {"mask"}),
    ("maximum", (X, X), "11", {"self", "other"}),
    ("clamp", (X, REAL, REAL), "1", {"self"}),
    ("frexp.Tensor", (X,), "1", {"exponent"}),
    ("special_erfcx", (X,), "1", {"self", "result"}),
    ("polygamma", (Static(2), X), "1", {"self"}),
    ("special_zeta", (X, X), "01", {"self", "other"}),
    ("angle", (X,), "1", set()),
    ("abs", (Z,), "1", {"self"}),
    ("exp", (Z,), "1", {"result"}),
    ("_to_copy", (X, Static(F64), *[NONE] * 3, Static(False), NONE), "1", set()),
]


@pytest.mark.parametrize(
    ("name", "specs", "wanted", "saved"),
    SAVED,
    ids=[f"{n}-{w}-{'complex' if Z in s else 'real'}" for n, s, w, _ in SAVED],
)
def test_a_backward_reads_what_eager_saves(
    compiler: Compiler, name: str, specs: Sequence[Spec], wanted: str, saved: set[str]
) -> None:
    if compiler.operator(name).function is None:
        pytest.skip(f"{name} has no value yet")
    program = compiler.program(name, specs)
    derived = vjp(compiler, program, [w == "1" for w in wanted])
    names = {"input": program.inputs, "output": program.outputs}
    read = {
        str(names[kind][i].attrs) if kind == "input" else program.outputs[i].name
        for kind, i in derived.sources
        if kind != "cotangent"
    }
    assert read == saved
