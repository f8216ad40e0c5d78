"""Fingerprints: alike for programs that are alike, and else different."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from fuser import dtypes, ir
from fuser.build import primitive
from fuser.fingerprint import fingerprint
from fuser.ir import Loop, Node, Static
from fuser.pipeline import default_compiler
from fuser.program import Output, Program
from fuser.specs import TensorSpec

F32, F64 = dtypes.float32, dtypes.float64
X, Y = ir.input_("x", F32), ir.input_("y", F32)


def program_of(node: Node, inputs: tuple[Node, ...] = (X, Y)) -> Program:
    return Program("p", inputs, (), (Output("r", node, F32),))


def looped(limit: int = 5, least: float = 9, proceeds: bool = True) -> Node:
    p, held = ir.param(0, F32), ir.param(1, F32)
    proceed = primitive("lt", p, ir.const(least, F32)) if proceeds else None
    loop = Loop((primitive("mul", p, held),), proceed, limit)
    (end,) = ir.iterate([ir.const(0.5, F32)], [X], loop)
    return end


def variants() -> list[Program]:
    whole = program_of(primitive("sub", X, Y))
    other = Output("s", *(whole.outputs[0].node, F32))
    known = default_compiler()
    return [
        whole,
        program_of(primitive("sub", Y, X)),
        program_of(primitive("sub", X, Y), (Y, X)),
        program_of(primitive("add", X, Y)),
        program_of(primitive("sub", X, ir.input_("z", F32)), (X, ir.input_("z", F32))),
        program_of(primitive("sub", X, ir.const(0.0, F32))),
        program_of(primitive("sub", X, ir.const(-0.0, F32))),
        program_of(primitive("sub", X, ir.const(float("nan"), F32))),
        program_of(primitive("sub", X, ir.cast(ir.scalar("y", F64), F32))),
        program_of(looped()),
        program_of(looped(limit=6)),
        program_of(looped(least=8)),
        program_of(looped(proceeds=False)),
        replace(whole, name="q"),
        replace(whole, order=1),
        replace(whole, formulas=("a - b",)),
        replace(whole, outputs=(other,)),
        replace(whole, outputs=(*whole.outputs, other)),
        replace(whole, outputs=(Output("r", whole.outputs[0].node, F64),)),
        known.program("polygamma", [Static(1), TensorSpec(F32)]),
        known.program("polygamma", [Static(2), TensorSpec(F32)]),
    ]


def test_every_difference_counts() -> None:
    found = [fingerprint(p) for p in variants()]
    assert len(set(found)) == len(found)
    assert [fingerprint(p) for p in variants()] == found
    renamed = replace(variants()[0], lineage="of another kind")
    assert fingerprint(renamed) == found[0]


def test_another_process_finds_the_same() -> None:
    script = "from tests.fuser.test_fingerprint import *\n"
    script += "print(*map(fingerprint, variants()))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [fingerprint(p) for p in variants()]
