"""The verifier finds what no stage should have made, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from fuser import dtypes, ir
from fuser.build import primitive
from fuser.classify import specs_of
from fuser.errors import FormulaError
from fuser.ir import Loop, Node
from fuser.optable import PRIMITIVES
from fuser.pipeline import default_compiler
from fuser.program import Output, Program
from fuser.specs import TensorSpec
from fuser.verify import GraphError, checked, verify
from tests.fuser.graphs import graphs

F32, F64, BOOL = dtypes.float32, dtypes.float64, dtypes.bool_
X, Y, C = ir.input_("x", F32), ir.input_("y", F64), ir.input_("c", BOOL)


@given(graphs([X, Y, C], list(PRIMITIVES.values()), casts=[F32, F64]))
@settings(max_examples=50)
def test_what_is_built_is_well_formed(root: Node) -> None:
    verify([root])


BROKEN: list[tuple[Callable[[], Node], str]] = [
    (lambda: ir.make("add", F32, (X,)), "add takes 2 arguments, not 1"),
    (lambda: ir.make("add", F32, (X, Y)), "one dtype, not float32, float64"),
    (lambda: ir.make("add", F64, (X, X)), "its dtype should be float32"),
    (lambda: ir.make("lt", F32, (X, X)), "its dtype should be bool"),
    (lambda: ir.make("where", F32, (X, X, X)), "selects by a bool"),
    (lambda: ir.make("exp", BOOL, (C,)), "exp takes complex, float, not bool"),
    (lambda: ir.make("frobnicate", F32, (X,)), "no row of the op table"),
    (lambda: ir.make("cast", F64, (X, X)), "a cast has one argument"),
    (lambda: ir.make("input", F32, (X,), "z"), "a leaf has no arguments"),
    (lambda: ir.param(0, F32), "a param stands in the body of a loop"),
    (lambda: ir.scalar("s", F32), "a number is wide"),
    (lambda: ir.make("call", F32, (X,), "exp"), "a call has a target"),
    (lambda: ir.make("item", F32, (X,), 0), "an item belongs to an iterate"),
    (lambda: ir.make("iterate", F32, (X,), 3), "an iterate has a Loop"),
    (lambda: item(1, F32), "no such state"),
    (lambda: item(0, F64), "its dtype is the state's"),
]


def item(index: int, dtype: dtypes.DType) -> Node:
    whole = ir.make("iterate", F32, (X,), Loop((ir.param(0, F32),), None, 2))
    return ir.make("item", dtype, (whole,), index)


@pytest.mark.parametrize(("build", "message"), BROKEN, ids=[m for _, m in BROKEN])
def test_what_is_broken_is_found(build: Callable[[], Node], message: str) -> None:
    node = build()
    with pytest.raises(GraphError, match=message):
        verify([node])
    if node.dtype != BOOL and not node.dtype.is_half:  # also somewhere deep down
        with pytest.raises(GraphError, match=message):
            verify([primitive("neg", primitive("mul", node, node))])


def test_every_packaged_operator_is_well_formed() -> None:
    """The operators' values on float32, as lowered and as made ready for kernels."""
    compiler = default_compiler()
    checked = 0
    for name in compiler.functions.by_name:
        try:
            arguments = compiler.operator(name).signature.arguments
            program = compiler.program(name, specs_of(arguments))
        except FormulaError:
            continue  # takes no float32, or a list
        verify(program.roots)
        for piece in compiler.kernels(program):
            verify(piece.roots)
        checked += 1
    assert checked > 150


def test_it_runs_between_the_stages_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = Program("broken", (X,), (), (Output("r", BROKEN[0][0](), F32),))
    monkeypatch.delenv("ATENTRITON_VERIFY", raising=False)
    assert checked(broken) is broken
    monkeypatch.setenv("ATENTRITON_VERIFY", "1")
    with pytest.raises(GraphError):
        checked(broken)
    compiler = default_compiler()
    program = compiler.program("logaddexp", [TensorSpec(F32), TensorSpec(F64)])
    compiler.kernels(compiler.vjp(program, [True, True], [True]).program)
