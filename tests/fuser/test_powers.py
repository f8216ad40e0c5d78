"""Powers with a small whole exponent: products as good as the power, its derivatives
too."""

from __future__ import annotations

import math
import random

import mpmath
import pytest
import torch
from mpmath import mpc, mpf
from torch.autograd import gradcheck, gradgradcheck

from atentriton import fuse, ops
from atentriton.specs import TO_TORCH
from fuser import dtypes, ir
from fuser.build import primitive
from fuser.dtypes import DType
from fuser.expr import Expr
from fuser.interpret import interpret
from fuser.ir import Loop, Node, Static
from fuser.pipeline import Compiler, default_compiler
from fuser.powers import MOST, product, with_products
from fuser.program import Program
from fuser.specs import ScalarSpec, TensorSpec
from tests.fuser.accuracy import LEAST, Special, held
from tests.fuser.complex_reference import error, limits, parts_of

EXPONENTS = range(-MOST, MOST + 1)
FLOATS = [dtypes.float32, dtypes.float64]
COMPLEX = [dtypes.complex64, dtypes.complex128]
EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0]
K = 4

floats = pytest.mark.parametrize("dtype", FLOATS, ids=str)
complexes = pytest.mark.parametrize("dtype", COMPLEX, ids=str)
exponents = pytest.mark.parametrize("n", EXPONENTS)


def power(n: int) -> Special:
    return Special(
        lambda x: product(Expr(x), n).node,
        lambda x: x**n,
        lambda x: n * x ** (n - 1) if n else mpf(0),
    )


def sizes(n: int, dtype: DType) -> list[float]:
    """Of all sizes, and up to where the power leaves the range, at both its ends."""
    draw = random.Random(n)
    most = 38 if dtype.bits == 32 else 308
    ends = [most / n, (LEAST[dtype.bits] * math.log10(2)) / n] if n else []
    values = [10 ** draw.uniform(-most, most) for _ in range(40)]
    values += [10 ** draw.uniform(-1, 1) for _ in range(40)]
    places = [end + draw.uniform(-1, 1) for end in ends for _ in range(40)]
    values += [10**place for place in places if abs(place) < most]
    return [v * draw.choice((1, -1)) for v in values]


@exponents
@floats
def test_an_error_grows_no_faster_than_the_arguments(dtype: DType, n: int) -> None:
    values = [v for v in held(sizes(n, dtype), dtype) if v]
    if n == -2:  # by the square, as in PyTorch: see fuser.rules
        tiny = torch.finfo(TO_TORCH[dtype]).tiny
        values = [v for v in values if tiny < v * v < 1 / tiny]
    function = power(n)
    function.check(function.interpreted(values, dtype), values, dtype, K)
    compiled = ops.pow(torch.tensor(values, dtype=TO_TORCH[dtype]), n).tolist()
    function.check(compiled, values, dtype, K)


@exponents
@floats
def test_zeros_infinities_and_nan_are_those_of_pow(dtype: DType, n: int) -> None:
    edges = torch.tensor(EDGES, dtype=TO_TORCH[dtype])
    expected = torch.tensor([ieee(v, n) for v in EDGES], dtype=edges.dtype)
    for exponent in (n, float(n)):
        found = ops.pow(edges, exponent)
        assert torch.equal(found.isnan(), expected.isnan())
        assert torch.equal(found.nan_to_num(), expected.nan_to_num())
        numbers = ~expected.isnan()
        assert torch.equal(found.signbit()[numbers], expected.signbit()[numbers])


def ieee(x: float, n: int) -> float:
    try:
        return math.pow(x, n)
    except ValueError:  # 0 to a negative power
        return math.copysign(math.inf, x) if n % 2 else math.inf


@exponents
@complexes
def test_complex_powers(dtype: DType, n: int) -> None:
    draw = random.Random(n)
    most = 30 if dtype.bits == 64 else 300
    sizes = [draw.uniform(-1, 1) for _ in range(40)]
    sizes += [draw.uniform(-most, most) / max(abs(n), 1) for _ in range(40)]
    values = [mpc(*turned(draw, 10**s)) for s in sizes]
    given = torch.tensor([complex(v) for v in values], dtype=TO_TORCH[dtype])
    found = ops.pow(given, n).tolist()
    with mpmath.workdps(40):
        for z, value in zip(given.tolist(), found, strict=True):
            assert error(value, mpc(z) ** n, dtype) <= K * (1 + abs(n)), z
    assert limits(dtype)[0] == torch.finfo(given.dtype).eps


def turned(draw: random.Random, radius: float) -> tuple[float, float]:
    angle = draw.choice((0, math.pi / 2, draw.uniform(-math.pi, math.pi)))
    return radius * math.cos(angle), radius * math.sin(angle)


@pytest.mark.parametrize("n", [-5, -1, 0, 1, 2, 3, 4, 7, 16])
def test_derivatives_are_powers(n: int) -> None:
    """Also at 0 and at the infinities, where those of a product would be NaN."""
    values = [0.0, -0.0, math.inf, -math.inf, -2.5, 1.25, 1e-9, 3e4]
    if n < 0:
        values = values[4:]
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    found = ops.pow(x, n)
    for order in range(1, 3):
        (found,) = torch.autograd.grad(found.sum(), x, create_graph=True)
        factor = math.prod(n - k for k in range(order))
        exact = [factor * ieee(v, n - order) if factor else 0.0 for v in values]
        expected = torch.tensor(exact, dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)
        if not found.requires_grad:
            break


@pytest.mark.parametrize("n", [-3, -1, 2, 4, 6, 11, 7.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("fused", [False, True], ids=["operator", "fuse"])
def test_gradients(fused: bool, dtype: torch.dtype, n: float) -> None:
    x = torch.tensor([1.2, -0.7, 0.9], dtype=dtype)
    if dtype.is_complex:
        x = x + torch.tensor([0.3, -0.4, 0.8]) * 1j
    x.requires_grad_()
    function = fuse(lambda x: x**n) if fused else lambda x: ops.pow(x, n)
    assert gradcheck(function, (x,), check_forward_ad=True)
    assert gradgradcheck(function, (x,))


# -- where products stand --------------------------------------------------------------


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return default_compiler()


def ops_of(compiler: Compiler, program: Program) -> set[str]:
    return {n.op for piece in compiler.kernels(program) for n in piece.nodes}


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.complex64], ids=str)
@pytest.mark.parametrize("n", [-9, 6, 16])
def test_no_order_calls_pow(compiler: Compiler, n: int, dtype: DType) -> None:
    program = compiler.program("pow.Tensor_Scalar", [TensorSpec(dtype), Static(n)])
    for _ in range(3):
        assert not ops_of(compiler, program) & {"pow", "log", "exp", "atan2"}
        flags = [node.attrs == "self" for node in program.inputs]
        program = compiler.vjp(program, flags, [True]).program


@pytest.mark.parametrize("exponent", [Static(17), Static(2.5), ScalarSpec("int")])
def test_other_exponents_are_left(
    compiler: Compiler, exponent: Static | ScalarSpec
) -> None:
    given = [TensorSpec(dtypes.float32), exponent]
    assert "pow" in ops_of(compiler, compiler.program("pow.Tensor_Scalar", given))


def test_a_power_shares_squares_with_its_derivative(compiler: Compiler) -> None:
    x = ir.input_("x", dtypes.float32)
    roots = with_products([primitive("pow", x, number(n)) for n in (12, 11, 10)])
    assert sum(n.op == "mul" for n in ir.topological(roots)) == 7


def number(n: float) -> Node:
    return ir.const(n, dtypes.float32)


def test_products_in_loops() -> None:
    p = ir.param(0, dtypes.float32)
    loop = Loop((primitive("pow", p, number(4)),), None, 1)
    (found,) = with_products(ir.iterate([ir.input_("x", p.dtype)], [], loop))
    (whole,) = found.args
    assert isinstance(whole.attrs, Loop)
    assert {n.op for n in ir.topological(whole.attrs.roots)} == {"param", "mul"}
    assert interpret([found], {"x": 1.25}) == (1.25**4,)


def test_powers_of_integers_are_no_loops(compiler: Compiler) -> None:
    given = [TensorSpec(dtypes.int64), Static(6)]
    assert ops_of(compiler, compiler.program("pow.Tensor_Scalar", given)) == {
        "input",
        "mul",
    }


# -- calls -----------------------------------------------------------------------------


def test_a_call_does_not_depend_on_those_before() -> None:
    """An exponent that is a number at run time is let go for one that shapes code."""
    x = torch.rand(1000) + 0.5
    for n in (6.0, -7.0, 0.5):
        ops.pow(x, 2.5)
        after = ops.pow(x, n)
        assert torch.equal(after, ops.pow.Tensor_Scalar(x.view(10, 100), n).flatten())


def test_the_type_of_an_exponent_counts() -> None:
    x = torch.arange(5)
    for n in (2, 2.0, 3.0, 3, True):
        found, expected = ops.pow(x, n), torch.pow(x, n)
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


def test_complex_parts() -> None:
    """On the axes a part that is 0 stays so."""
    z = torch.tensor([2 + 0j, 2j], dtype=torch.complex64)
    assert [parts_of(v) for v in ops.pow(z, 4).tolist()] == [(16, 0), (16, 0)]
