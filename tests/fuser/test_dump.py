"""Stages can be looked at, in a text that reads from top to bottom."""

from __future__ import annotations

import pytest

from fuser import dtypes, ir
from fuser.build import primitive
from fuser.dump import dump, text
from fuser.ir import Loop, Static
from fuser.pipeline import default_compiler
from fuser.program import Output, Program
from fuser.specs import ScalarSpec, TensorSpec

F16, F32 = dtypes.float16, dtypes.float32


def test_text_of_a_program() -> None:
    program = default_compiler().program(
        "add.Tensor", [TensorSpec(F16), TensorSpec(F32), ScalarSpec("float")]
    )
    assert (
        text(program)
        == """\
# add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
# result: self + maybe_multiply(other, alpha)
add.Tensor(self: float16, other: float32, alpha: float64):
    v0: float32 = cast(self)
    v1: float32 = add.Tensor(v0, other, alpha)
    result = v1"""
    )


def test_calls_show_their_static_arguments() -> None:
    program = default_compiler().program("polygamma", [Static(2), TensorSpec(F16)])
    shown = text(program).splitlines()
    assert shown[-2].endswith("= polygamma[2](v0)")
    assert shown[-1] == "    result = v1 as float16"


def test_text_of_a_loop() -> None:
    x = ir.input_("x", F32)
    p, held = ir.param(0, F32), ir.param(1, F32)
    proceed = primitive("lt", p, ir.const(9, F32))
    loop = Loop((primitive("mul", p, held),), proceed, 5)
    (end,) = ir.iterate([ir.const(0.5, F32)], [x], loop)
    program = Program("powers", (x,), (), (Output("r", end, F32),))
    assert (
        text(program)
        == """\
powers(x: float32):
    v0: float32 = iterate at most 5 (0.5, x)
        v0: float32 = mul(%0, %1)
        v1: bool = lt(%0, 9.0)
        while v1
        next v0
    v5: float32 = item 0 of (v0)
    r = v5"""
    )


def test_stages_are_shown_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = default_compiler()
    monkeypatch.delenv("ATENTRITON_DUMP", raising=False)
    program = compiler.program("exp", [TensorSpec(F32)])
    assert dump("ir", program) is program
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("ATENTRITON_DUMP", "derive,source")
    compiler.program("exp", [TensorSpec(F32)])
    assert capsys.readouterr().err == ""
    compiler.vjp(program, [True], [True])
    assert capsys.readouterr().err.startswith("# derive: exp(float32).vjp(1, 1)\n")
    monkeypatch.setenv("ATENTRITON_DUMP", "all")
    compiler.kernels(program)
    assert "# schedule: exp(float32)" in capsys.readouterr().err
