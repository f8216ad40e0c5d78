"""Random formulas, graphs and layouts: every way to compute one thing agrees.

A formula is held against PyTorch's autograd, which evaluates it without the parser or
the compiler; a graph against the interpreter and the other target; a layout against
PyTorch's own operator.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import grad

from atentriton import native as c_target
from atentriton import ops
from atentriton.specs import TO_TORCH
from fuser import dtypes, ir
from fuser.build import primitive
from fuser.dtypes import DType
from fuser.entries import load_functions
from fuser.functions import Function, Functions
from fuser.interpret import interpret
from fuser.ir import Node, Number
from fuser.library import library
from fuser.optable import PRIMITIVES
from fuser.pipeline import Compiler, Derived, default_compiler
from fuser.program import Output, Program
from fuser.rounding import rounded
from fuser.specs import TensorSpec
from tests import native, rows
from tests.conformance.formulas import Evaluation, Term, formulas
from tests.fuser.graphs import graphs, odd

F32, F64 = dtypes.float32, dtypes.float64
F64_ = torch.float64
Draw = Callable[..., Any]
Target = Callable[[Program, Sequence[Tensor]], list[Tensor]]
# Long formulas take a while to draw, and some are too steep to be compared.
PATIENT = [
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.data_too_large,
]
few = settings(max_examples=25, suppress_health_check=PATIENT)
many = settings(few, max_examples=200)
layouts = settings(few, max_examples=30)


@pytest.fixture(autouse=True, scope="module")
def one_operation_after_the_other():
    """Multiplications and additions stay apart, so that results can be equal."""
    before, c_target.contract = c_target.contract, False
    yield
    c_target.contract = before


# -- formulas --------------------------------------------------------------------------

LIBRARY = library()
ARGUMENTS = ("a", "b", "c")
# An error of the size of `NOISE` shows what one of the size of `ROUNDING` does.
NOISE, ROUNDING = 1e-8, 1e-13


def compiler_of(formula: str) -> Compiler:
    """The packaged formulas and `random`, which has no entry of its own."""
    (entry,) = load_functions(
        "- name: random(Tensor a, Tensor b, Tensor c) -> Tensor\n"
        f"  promotes: default\n  result: {json.dumps(formula)}\n"
    )
    made = Function(entry.signature, "default", None, entry)
    functions = Functions([*LIBRARY.functions.by_name.values(), made])
    return Compiler(replace(LIBRARY, functions=functions))


def with_derivatives(formula: str) -> Program:
    """The value, the gradient, the gradient of the gradient and the tangent, in one.

    Its inputs are the cotangent u, the arguments a, b and c, their tangents t0, t1 and
    t2, and the cotangents of their gradients, w0, w1 and w2.
    """
    compiler, every = compiler_of(formula), (True,) * 3
    value = compiler.program("random", [TensorSpec(F64)] * 3)
    tangents, weights = _inputs("t"), _inputs("w")
    u = ir.input_("u", F64)
    leaves = {"input": value.inputs, "output": value.roots, "tangent": tangents}

    first = compiler.vjp(value, every, (True,))
    gradient = replace(
        first.program.with_roots(_filled(first, leaves | {"cotangent": (u,)})),
        inputs=(u, *value.inputs),
    )
    second = compiler.vjp(gradient, (True,) * 4, every)
    forward = compiler.jvp(value, every)
    roots = [
        *value.roots,
        *gradient.roots,
        *_filled(second, {"input": gradient.inputs, "cotangent": weights}),
        *_filled(forward, leaves),
    ]
    outputs = tuple(Output(f"out{i}", n, F64) for i, n in enumerate(roots))
    inputs = (*gradient.inputs, *tangents, *weights)
    return Program("random", inputs, (), outputs, (formula,))


def _inputs(letter: str) -> tuple[Node, ...]:
    return tuple(ir.input_(f"{letter}{i}", F64) for i in range(3))


def _filled(derived: Derived, leaves: Mapping[str, Sequence[Node]]) -> tuple[Node, ...]:
    """The roots over what the inputs of the derivative come from."""
    filled = [leaves[kind][index] for kind, index in derived.sources]
    places = dict(zip(derived.program.inputs, filled, strict=True))
    return ir.substitute(derived.program.roots, places)


def by_autograd(
    term: Term, values: Mapping[str, Tensor], noise: float = 0.0
) -> tuple[list[Tensor], float]:
    """The same numbers by PyTorch, and the greatest one on the way to the value."""
    names = {n: values[n].clone().requires_grad_() for n in ("u", *ARGUMENTS)}
    evaluation = Evaluation(names, noise)
    value = evaluation(term)
    inputs = [names[n] for n in ARGUMENTS]
    first = _gradient(value, inputs, names["u"])
    total = sum(g * values[f"w{i}"] for i, g in enumerate(first))
    second = _gradient(total, [names["u"], *inputs], torch.ones_like(total))
    slopes = _gradient(value, inputs, torch.ones_like(value))
    tangent = sum(g * values[f"t{i}"] for i, g in enumerate(slopes))
    found = [value, *first, *second, tangent]
    return [f.detach() for f in found], evaluation.size


def _gradient(value: Tensor, of: Sequence[Tensor], seed: Tensor) -> list[Tensor]:
    if not value.requires_grad:
        return [torch.zeros_like(x) for x in of]
    options = {"create_graph": True, "allow_unused": True, "materialize_grads": True}
    return list(grad(value, of, seed, **options))


def check_formula(term: Term) -> None:
    """What the C kernel computes of the formula is what PyTorch does."""
    torch.manual_seed(0)
    program = with_derivatives(term.text)
    values = {str(n.attrs): torch.rand(24, dtype=F64_) * 4 - 2 for n in program.inputs}
    expected, size = by_autograd(term, values)
    noisy = [by_autograd(term, values, NOISE)[0] for _ in range(3)]
    spread = [
        torch.stack([(n - e).abs() for n in line]).amax(0)
        for e, *line in zip(expected, *noisy, strict=True)
    ]
    # What cannot be told from rounding says nothing.
    largest = float(torch.cat(expected).abs().max())
    assume(size < 1e4 and largest < 1e6)  # which a NaN is not, either
    found = run(program, values, native.run)
    for output, f, e, s in zip(program.outputs, found, expected, spread, strict=True):
        allowed = ROUNDING * (s / NOISE + max(1.0, float(e.abs().max())))
        wrong = ~((f - e).abs() <= allowed)
        assert not wrong.any(), f"{term}: {output.name}: {f[wrong]} is not {e[wrong]}"


def run(program: Program, values: Mapping[str, Tensor], target: Target) -> list[Tensor]:
    """The outputs of the program by that target, piece by piece."""
    known = dict(values)
    for piece in default_compiler().kernels(program):
        found = target(piece, [known[str(n.attrs)] for n in piece.inputs])
        known |= dict(zip((o.name for o in piece.outputs), found, strict=True))
    return [known[o.name] for o in program.outputs]


@given(formulas())
@few
def test_formulas(term: Term) -> None:
    check_formula(term)


@pytest.mark.slow
@given(formulas(depth=5))
@many
def test_many_formulas(term: Term) -> None:
    check_formula(term)


# -- graphs ----------------------------------------------------------------------------

LEAVES = [
    ir.input_("x", F32),
    ir.input_("y", F64),
    ir.input_("i", dtypes.int32),
    ir.input_("l", dtypes.int64),
    ir.input_("q", dtypes.uint8),
    ir.input_("p", dtypes.bool_),
]
# What IEEE's or the integers' arithmetic decides to the last bit. A NaN's sign, which
# signbit and copysign see, is nobody's concern.
EXACT = [
    row
    for row in PRIMITIVES.values()
    if row.rule != "complex" and row.kinds != {"complex"}
    if row.promotes != "int_to_float" or row.name in ("div", "sqrt")
    if row.name not in ("pow", "fmod", "signbit", "copysign")
]
INEXACT = [
    row
    for row in PRIMITIVES.values()
    if row.promotes == "int_to_float" and row.name not in ("div", "sqrt", "copysign")
]
CASTS = [F32, F64, dtypes.float16, dtypes.bfloat16]
EXTREMES = ("maximum", "minimum", "fmax", "fmin")
ACCURACY = {F32: 1e-6, F64: 1e-14}


def one_zero(root: Node) -> Node:
    """The graph with no -0 from the extremes: which zero is the greater one is open."""

    def visit(node: Node, args: tuple[Node, ...]) -> Node:
        node = ir.rebuild(node, args)
        if node.op in EXTREMES and node.dtype.kind == "float":
            return primitive("add", node, ir.const(0.0, node.dtype))
        return node

    return ir.fold([root], visit)[root]


@st.composite
def programs(draw: Draw) -> Program:
    """Three graphs of exact rows, and a function of a float that such a graph gives."""
    roots = [one_zero(draw(graphs(LEAVES, EXACT, casts=CASTS))) for _ in range(3)]
    floats = [r for r in roots if r.dtype in ACCURACY] or LEAVES[:1]
    row = draw(st.sampled_from(INEXACT))
    argument = draw(st.sampled_from(floats))
    roots.append(primitive(row.name, *[argument] * row.arity))
    outputs = tuple(Output(f"out{i}", n, n.dtype) for i, n in enumerate(roots))
    return Program("graphs", tuple(ir.leaves(roots, "input")), (), outputs)


def columns(program: Program, seed: int, count: int = 48) -> list[list[Number]]:
    """Values of each input, one in two of them odd."""
    chance = random.Random(seed)

    def value(dtype: DType) -> Number:
        if chance.random() < 0.5:
            return rounded(chance.choice(odd(dtype)), dtype)
        spread = chance.uniform if dtype.kind == "float" else chance.randint
        return rounded(spread(-300, 300), dtype)

    return [[value(n.dtype) for _ in range(count)] for n in program.inputs]


def assert_alike(program: Program, found: list[Tensor], expected: list[Tensor]) -> None:
    """Equal bit for bit where the rows are exact, and else as accurate as they are."""
    for output, f, e in zip(program.outputs, found, expected, strict=True):
        op = output.node.op
        assert f.dtype == e.dtype, ir.label(output.node)
        if op in {row.name for row in INEXACT}:
            tolerance = ACCURACY[output.dtype]
            least = torch.finfo(f.dtype).tiny
            torch.testing.assert_close(f, e, rtol=tolerance, atol=least, equal_nan=True)
            continue
        torch.testing.assert_close(f, e, rtol=0, atol=0, equal_nan=True)
        if f.is_floating_point():
            known = ~e.isnan()
            assert torch.equal(f.signbit()[known], e.signbit()[known]), op


def tensors_of(program: Program, values: list[list[Number]]) -> dict[str, Tensor]:
    return {
        str(n.attrs): torch.tensor(column, dtype=TO_TORCH[n.dtype])
        for n, column in zip(program.inputs, values, strict=True)
    }


def check_graphs(program: Program, seed: int) -> None:
    """The C kernel of a program against the interpreter."""
    assume(program.inputs)
    values = columns(program, seed)
    names = [str(n.attrs) for n in program.inputs]
    lines = [
        interpret(program.roots, dict(zip(names, line, strict=True)))
        for line in zip(*values, strict=True)
    ]
    expected = [
        torch.tensor(column, dtype=TO_TORCH[o.dtype])
        for o, column in zip(program.outputs, zip(*lines, strict=True), strict=True)
    ]
    found = run(program, tensors_of(program, values), native.run)
    assert_alike(program, found, expected)


@given(programs(), st.integers(0, 99))
@few
def test_graphs_in_c_and_in_python(program: Program, seed: int) -> None:
    check_graphs(program, seed)


@pytest.mark.slow
@given(programs(), st.integers(0, 99))
@many
def test_many_graphs_in_c_and_in_python(program: Program, seed: int) -> None:
    check_graphs(program, seed)


@pytest.mark.interpreter
@given(programs(), st.integers(0, 99))
@settings(max_examples=60)
def test_graphs_in_c_and_in_triton(program: Program, seed: int) -> None:
    pytest.importorskip("triton")
    assume(program.inputs)
    tensors = tensors_of(program, columns(program, seed))
    in_c, in_triton = (run(program, tensors, t) for t in (native.run, rows.run))
    assert_alike(program, in_triton, in_c)


# -- layouts ---------------------------------------------------------------------------


@st.composite
def laid_out(draw: Draw, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor that broadcasts to the shape, of any order, gaps and repeats."""
    sizes = [n if draw(st.integers(0, 4)) else 1 for n in shape]
    sizes = sizes[draw(st.sampled_from([0, 0, 0, 1, 2])) :]
    order = draw(st.permutations(range(len(sizes))))
    gaps = [draw(st.sampled_from([1, 1, 1, 2])) for _ in sizes]
    held = [sizes[d] * gaps[d] for d in order]
    offset = draw(st.integers(0, 1))
    numbers = torch.arange(offset + math.prod(held)) % 7 - 3
    tensor = numbers.to(dtype)[offset:].view(held)
    tensor = tensor.permute([order.index(d) for d in range(len(sizes))])
    tensor = tensor[tuple(slice(None, None, gap) for gap in gaps)]
    missing = len(shape) - len(sizes)
    repeated = [n for n in shape[missing:] if draw(st.integers(0, 6)) == 0]
    return tensor.expand(shape[missing:]) if repeated else tensor


@st.composite
def operands(draw: Draw, *kinds: torch.dtype) -> list[Tensor]:
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 0]), max_size=4))
    return [draw(laid_out(shape, dtype)) for dtype in kinds]


def assert_equal(found: Tensor, expected: Tensor) -> None:
    """Equal in every respect; the numbers are whole, so that none is rounded."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert torch.equal(found, expected)
    if found.numel():  # the step along a dimension of size 1 is nobody's concern
        long = [d for d, n in enumerate(found.shape) if n > 1]
        steps = [[t.stride(d) for d in long] for t in (found, expected)]
        assert steps[0] == steps[1]


@given(operands(torch.float32, torch.float32, torch.float32))
@layouts
def test_layouts_of_addcmul(given_: list[Tensor]) -> None:
    assert_equal(ops.addcmul(*given_, value=2), torch.addcmul(*given_, value=2))


@given(operands(torch.bool, torch.float64, torch.float64))
@layouts
def test_layouts_of_where(given_: list[Tensor]) -> None:
    assert_equal(ops.where(*given_), torch.where(*given_))


@given(operands(torch.int64, torch.float32))
@layouts
def test_layouts_of_mul(given_: list[Tensor]) -> None:
    assert_equal(ops.mul(*given_), torch.mul(*given_))
