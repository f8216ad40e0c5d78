"""Derivatives of graphs are those of PyTorch, and of mathematics."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fuser import dtypes, ir
from fuser.build import primitive, result_dtype
from fuser.dtypes import DType
from fuser.errors import DerivativeNotImplemented
from fuser.interpret import interpret
from fuser.ir import Node
from fuser.optable import PRIMITIVES, Primitive
from fuser.pipeline import default_compiler
from fuser.simplify import simplify
from fuser.verify import verify
from tests.fuser.graphs import calls
from tests.fuser.oracles import (
    deriver,
    expanded,
    in_mpmath,
    in_torch,
    interpreted,
)

F64, C128 = dtypes.float64, dtypes.complex128
ENTRIES = default_compiler().entries
DERIVED = [
    row
    for row in PRIMITIVES.values()
    if row.aten in ENTRIES and row.rule not in ("bool", "logical")
]
COUNT = 5


def rows(kind: str) -> list[Primitive]:
    return [r for r in DERIVED if kind in r.kinds]


def samples(row: Primitive, dtype: DType) -> list[Tensor]:
    """Arguments from the row's domain, away from where its branches meet."""
    low, high = row.domain
    found = []
    for _ in range(row.arity):
        values = torch.rand(COUNT, dtype=torch.float64) * (high - low) + low
        if dtype.is_complex:
            values = torch.complex(values, torch.randn(COUNT, dtype=torch.float64))
        found.append(values)
    if row.rule == "select":
        found[0] = torch.rand(COUNT) < 0.5
    return found


def leaf(name: str, tensor: Tensor) -> Node:
    return ir.input_(name, dtypes.dtype(str(tensor.dtype).split(".")[1]))


def close(found: Tensor, expected: Tensor | None, tolerance: float = 1e-10) -> bool:
    if expected is None:
        expected = torch.zeros_like(found)
    return torch.allclose(
        found.to(torch.complex128),
        expected.detach().to(torch.complex128),
        rtol=tolerance,
        atol=tolerance,
        equal_nan=True,
    )


def torch_grad(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    """Gradients that can be derived again; zeros where there is none."""
    pairs = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
    if not pairs:
        return [torch.zeros_like(i) for i in inputs]
    found = torch.autograd.grad(
        [o for o, _ in pairs],
        inputs,
        [w for _, w in pairs],
        create_graph=True,
        materialize_grads=True,
    )
    return list(found)


def row_node(row: Primitive, leaves: Sequence[Node]) -> Node:
    return ir.make(row.name, result_dtype(row, leaves[-1].dtype), leaves)


def check_row(row: Primitive, dtype: DType) -> None:
    """First and second derivatives, reverse and forward, against torch autograd."""
    tensors = samples(row, dtype)
    leaves = [leaf("abc"[i], t) for i, t in enumerate(tensors)]
    function: Callable[..., Tensor] = getattr(torch, row.torch)
    node = row_node(row, leaves)
    smooth = [n for n in leaves if n.dtype.is_differentiable]
    inputs = [
        t.requires_grad_() for t in tensors if t.is_floating_point() or t.is_complex()
    ]
    value = function(*tensors)
    names = {f"{n.attrs}": t.detach() for n, t in zip(leaves, tensors, strict=True)}

    weight = torch.randn(COUNT, dtype=value.dtype)
    names["w"] = weight
    w = leaf("w", weight)
    first = deriver().vjp([node], [w], smooth)
    verify([n for n in first if n is not None])
    expected = torch_grad([value], inputs, [weight])
    for found, known in zip(interpreted(first, names), expected, strict=True):
        assert close(found, known), (row.name, "vjp", found, known)

    seconds = [torch.randn(COUNT, dtype=e.dtype) for e in expected]
    marks = [leaf(f"u{i}", t) for i, t in enumerate(seconds)]
    names |= {f"u{i}": t for i, t in enumerate(seconds)}
    present = [(n, m) for n, m in zip(first, marks, strict=True) if n is not None]
    second = deriver().vjp([n for n, _ in present], [m for _, m in present], smooth)
    again = torch_grad(expected, inputs, seconds)
    for found, known in zip(interpreted(second, names), again, strict=True):
        assert close(found, known, 1e-8), (row.name, "second vjp", found, known)

    tangents = [torch.randn(COUNT, dtype=t.dtype) for t in inputs]
    names |= {f"t{i}": t for i, t in enumerate(tangents)}
    moving = {n: leaf(f"t{i}", tangents[i]) for i, n in enumerate(smooth)}
    (forward,) = deriver().jvp([node], moving)
    fixed = [t for t in tensors if not t.requires_grad]
    _, pushed = torch.func.jvp(
        lambda *x: function(*fixed, *x),
        tuple(t.detach() for t in inputs),
        tuple(tangents),
    )
    (found,) = interpreted([forward], names)
    assert close(found, pushed), (row.name, "jvp", found, pushed)


@pytest.mark.parametrize("row", rows("float"), ids=lambda r: r.name)
def test_every_float_row_derives_as_in_torch(row: Primitive) -> None:
    check_row(row, F64)


@pytest.mark.parametrize("row", rows("complex"), ids=lambda r: r.name)
def test_every_complex_row_derives_as_in_torch(row: Primitive) -> None:
    check_row(row, C128)


# -- random graphs ---------------------------------------------------------------------

X, Y = ir.input_("x", F64), ir.input_("y", F64)
UNARY = ("sin", "cos", "tanh", "atan", "asinh", "erf", "erfc", "neg", "sinh")
SAFE = ("sqrt", "rsqrt", "log", "log1p", "log2", "log10", "acosh")
BINARY = ("add", "sub", "mul", "atan2", "div", "pow")
KINKED = ("maximum", "minimum", "abs", "where", "fmax", "fmin")


@st.composite
def tame(draw: Callable[..., Any], size: int = 8, kinks: bool = False) -> Node:
    """A graph over x and y whose values and derivatives stay moderate."""
    one = ir.const(1, F64)

    def bounded(node: Node) -> Node:
        return primitive("tanh", node)

    def positive(node: Node) -> Node:  # between 1.5 and 2.5
        return primitive("add", ir.const(1.5, F64), primitive("mul", node, node))

    nodes = [X, Y, ir.const(draw(st.sampled_from([0.5, -1.25, 2.0])), F64)]
    for _ in range(draw(st.integers(2, size))):
        a, b = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
        name = draw(st.sampled_from([*UNARY, *SAFE, *BINARY, *KINKED * kinks]))
        match name:
            case "pow" | "div":
                made = primitive(name, *sorted_pair(name, a, positive(bounded(b))))
            case "atan2":
                made = primitive(name, a, positive(bounded(b)))
            case "where":
                made = primitive(name, primitive("lt", a, b), a, b)
            case _ if name in SAFE:
                made = primitive(name, positive(bounded(a)))
            case "sinh":
                made = primitive(name, bounded(a))
            case _ if name in ("add", "sub", "mul", *KINKED) and name != "abs":
                made = primitive(name, a, b)
            case _:
                made = primitive(name, a)
        nodes.append(made)
    return primitive("add", nodes[-1], primitive("mul", one, nodes[-2]))


def sorted_pair(name: str, a: Node, positive: Node) -> tuple[Node, Node]:
    """A positive base, or a divisor that is not 0."""
    return (positive, primitive("tanh", a)) if name == "pow" else (a, positive)


# Away from ties, where the formulas of the two modes may take sides differently.
POINTS = st.tuples(
    st.floats(-2, 2).map(lambda x: x + 0.0137),
    st.floats(-2, 2).map(lambda y: y - 0.0291),
)


@given(tame(kinks=True), st.lists(POINTS, min_size=2, max_size=2, unique=True))
@settings(max_examples=40)
def test_random_graphs_derive_as_in_torch(
    root: Node, points: list[tuple[float, float]]
) -> None:
    """Three orders of reverse mode."""
    at = torch.tensor(points, dtype=torch.float64)
    inputs = [at[:, i].clone().requires_grad_() for i in (0, 1)]
    names = dict(zip("xy", (t.detach() for t in inputs), strict=True))
    nodes: list[Node] = [root]
    tensors = in_torch([root], dict(zip("xy", inputs, strict=True)))
    for order in range(3):
        weights = [torch.randn(2, dtype=torch.float64) for _ in nodes]
        marks = [f"w{order}{i}" for i in range(len(nodes))]
        names |= dict(zip(marks, weights, strict=True))
        given_ = [ir.input_(m, F64) for m in marks]
        derived = simplify(
            [
                ir.const(0, F64) if n is None else n
                for n in deriver().vjp(nodes, given_, [X, Y])
            ]
        )
        verify(derived)
        tensors = torch_grad(tensors, inputs, weights)
        found = interpreted(derived, names)
        for mine, known in zip(found, tensors, strict=True):
            scale = max(1.0, known.detach().abs().max().item())
            assert close(mine / scale, known / scale, 1e-8), order
        nodes = list(derived)


@given(tame(size=5), POINTS)
@settings(max_examples=25)
def test_random_graphs_derive_as_in_mathematics(
    root: Node, point: tuple[float, float]
) -> None:
    """Partial derivatives up to order three against mpmath's, by jvp and vjp."""
    names = dict(zip("xy", point, strict=True))
    one = ir.const(1, F64)
    graphs: dict[tuple[int, int], Node] = {(0, 0): root}
    for i, j in [(1, 0), (0, 1), (1, 1), (2, 0), (2, 1), (3, 0)]:
        before = (i - 1, j) if i else (i, j - 1)
        source, wrt = graphs[before], X if i else Y
        if (i + j) % 2:
            (found,) = deriver().vjp([source], [one], [wrt])
        else:
            (found,) = deriver().jvp([source], {wrt: one})
        graphs[i, j] = found or ir.const(0, F64)
        with mpmath.workdps(60):
            expected = mpmath.diff(
                lambda a, b: in_mpmath(root, {"x": a, "y": b}),
                tuple(map(mpmath.mpf, point)),
                (i, j),
            )
        (mine,) = interpret(expanded([graphs[i, j]]), names)
        assert mine == pytest.approx(float(expected), rel=1e-7, abs=1e-8), (i, j)


@given(tame(kinks=True), tame(kinks=True), POINTS)
@settings(max_examples=60)
def test_forward_is_the_transpose_of_reverse(
    f: Node, g: Node, point: tuple[float, float]
) -> None:
    """<J v, w> = <v, J^T w>, for the two outputs f and g of x and y."""
    v, w = ([ir.input_(f"{n}{i}", F64) for i in (0, 1)] for n in "vw")
    pushed = deriver().jvp([f, g], dict(zip([X, Y], v, strict=True)))
    pulled = deriver().vjp([f, g], w, [X, Y])
    x, y = point
    names = {"x": x, "y": y, "v0": 0.7, "v1": -1.3, "w0": 0.4, "w1": 2.1}
    left = inner(pushed, w, names)
    assert left == pytest.approx(inner(pulled, v, names), rel=1e-9, abs=1e-9)


def inner(a: Sequence[Node | None], b: Sequence[Node], names: dict[str, float]) -> Any:
    products = [primitive("mul", p, q) for p, q in zip(a, b, strict=True) if p]
    return math.fsum(map(float, interpret(expanded(products), names)))


@given(tame(kinks=True), POINTS)
@settings(max_examples=40)
def test_forward_over_reverse_is_reverse_over_reverse(
    root: Node, point: tuple[float, float]
) -> None:
    """The Hessian times a vector, in three ways."""
    one = ir.const(1, F64)
    v = [ir.const(0.3, F64), ir.const(-1.1, F64)]
    gradient = [n or ir.const(0, F64) for n in deriver().vjp([root], [one], [X, Y])]
    forward = deriver().jvp(gradient, dict(zip([X, Y], v, strict=True)))
    reverse = deriver().vjp(gradient, v, [X, Y])
    (slope,) = deriver().jvp([root], dict(zip([X, Y], v, strict=True)))
    other = deriver().vjp([slope], [one], [X, Y]) if slope else (None, None)
    names = {n: torch.tensor([p]).double() for n, p in zip("xy", point, strict=True)}
    found = [interpreted(way, names) for way in (forward, reverse, other)]
    for a, b in itertools.combinations(found, 2):
        for p, q in zip(a, b, strict=True):
            assert close(p, q, 1e-8)


# -- particular cases ------------------------------------------------------------------


def test_what_is_not_reached_has_no_derivative() -> None:
    cosine = primitive("cos", X)
    assert deriver().vjp([cosine], [ir.const(1, F64)], [Y]) == (None,)
    assert deriver().vjp([cosine], [None], [X]) == (None,)
    assert deriver().jvp([cosine], {Y: ir.const(1, F64)}) == (None,)
    assert deriver().jvp([cosine], {}) == (None,)


def test_an_output_that_is_an_input() -> None:
    w = ir.input_("w", F64)
    assert deriver().vjp([X, X], [w, None], [X]) == (w,)
    assert deriver().jvp([X, Y], {X: w}) == (w, None)


def test_nothing_passes_through_integers_and_bools() -> None:
    whole = ir.cast(ir.cast(X, dtypes.int64), F64)
    chosen = primitive(
        "where", primitive("lt", X, Y), ir.const(1, F64), ir.const(2, F64)
    )
    for node in (whole, chosen):
        assert deriver().vjp([node], [ir.const(1, F64)], [X, Y]) == (None, None)
        assert deriver().jvp([node], {X: ir.const(1, F64)}) == (None,)


def test_a_complex_gradient_of_a_real_number_is_real() -> None:
    """Also where the number was made complex on the way."""
    z = ir.input_("z", C128)
    node = primitive("mul", ir.cast(X, C128), z)
    w = ir.input_("w", C128)
    dx, dz = deriver().vjp([node], [w], [X, z])
    assert dx is not None
    assert dx.dtype == F64
    names = {"x": torch.randn(4).double(), "z": torch.randn(4, dtype=torch.complex128)}
    names["w"] = torch.randn(4, dtype=torch.complex128)
    x, c = names["x"].clone().requires_grad_(), names["z"].clone().requires_grad_()
    expected = torch.autograd.grad(x * c, [x, c], names["w"])
    for mine, known in zip(interpreted([dx, dz], names), expected, strict=True):
        assert close(mine, known)


def test_casts_derive_through_the_widths() -> None:
    h = ir.input_("h", dtypes.float16)
    node = primitive("mul", ir.cast(h, F64), ir.cast(ir.cast(h, F64), F64))
    wide = ir.cast(h, dtypes.float32)
    (grad,) = deriver().vjp([node], [ir.const(1, F64)], [wide])
    assert grad is not None
    assert grad.dtype == dtypes.float32
    assert interpret([grad], {"h": 1.5}) == (3.0,)
    (tangent,) = deriver().jvp([node], {wide: ir.const(1, dtypes.float32)})
    assert tangent is not None
    assert tangent.dtype == F64
    assert interpret([tangent], {"h": 1.5}) == (3.0,)


def test_a_row_without_an_entry_is_refused() -> None:
    compiler = default_compiler()
    entries = {k: v for k, v in compiler.entries.items() if k != "cos"}
    from fuser.derive import Deriver
    from fuser.lower import Lowering

    bare = Deriver(entries, Lowering(compiler.functions, compiler.opaque))
    with pytest.raises(DerivativeNotImplemented, match="derivative for 'cos'"):
        bare.vjp([primitive("cos", X)], [ir.const(1, F64)], [X])


def test_work_is_linear() -> None:
    """Ten times the chain takes about ten times the calls, and is never deep."""
    one = ir.const(1, F64)

    def work(length: int) -> int:
        node = X
        for _ in range(length // 2):
            node = primitive("sin", primitive("mul", node, Y))
        return calls(lambda: simplify(deriver().vjp([node], [one], [X, Y])))

    work(10)  # what is looked up once
    assert work(5_000) < 12 * work(500)
