"""Complex numbers taken apart, against mpmath and, on conventions, against PyTorch.

Graphs are evaluated by the interpreter, each operation rounded to its dtype.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from functools import cache

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser import dtypes, ir
from fuser.build import primitive
from fuser.complexes import split_complex
from fuser.dtypes import DType
from fuser.fold import rounded
from fuser.functions import Functions
from fuser.interpret import interpret
from fuser.ir import Node
from fuser.library import library
from fuser.optable import PRIMITIVES
from fuser.program import Output, Program
from fuser.resources import resource
from fuser.simplify import simplify
from fuser.verify import verify
from tests.fuser.complex_reference import (
    BINARY,
    BITS,
    UNARY,
    accurate_at,
    error,
    exact,
    limits,
    parts_of,
    points,
)

DTYPES = (dtypes.complex64, dtypes.complex128)
ROWS = [name for name, row in PRIMITIVES.items() if "complex" in row.kinds]
UNITS = 4.0

inf, nan = math.inf, math.nan


@cache
def functions() -> Functions:
    """The functions that complex.yaml may call; derivatives play no part."""
    return library("[]\n").functions


@cache
def split(name: str, dtype: DType) -> Program:
    """The program of one primitive on complex inputs, as it is scheduled."""
    arity = PRIMITIVES[name].arity
    inputs = [ir.input_(f"x{i}", dtype) for i in range(arity)]
    if name == "where":
        inputs[0] = ir.input_("x0", dtypes.bool_)
    node = primitive(name, *inputs)
    whole = Program(name, tuple(inputs), (), (Output("result", node, node.dtype),))
    apart = split_complex(whole, functions())
    return apart.with_roots(simplify(apart.roots))


def value(name: str, dtype: DType, *args: complex) -> complex:
    names = {f"x{i}": rounded(arg, dtype) for i, arg in enumerate(args)}
    (result,) = interpret(split(name, dtype).roots, names)
    return complex(result)


# --- every row ----------------------------------------------------------------------


def leftovers(program: Program) -> Iterator[Node]:
    """The complex nodes inside the graph: not read, and not written."""
    for node in program.nodes:
        if node.op == "complex":
            assert node in program.roots
        elif node.dtype.is_complex and node.op != "input":
            yield node


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_every_row_that_takes_complex_numbers_is_taken_apart(
    name: str, dtype: DType
) -> None:
    program = split(name, dtype)
    verify(program.roots)
    assert not list(leftovers(program))
    parts = [n for n in program.nodes if n.op not in ("input", "complex")]
    wide = {n.dtype for n in parts} - {dtypes.bool_}
    assert wide == {dtype.real}, "another precision comes in"


def test_every_helper_is_called() -> None:
    text = resource("complex.yaml").read_text(encoding="utf-8")
    for name in re.findall(r"^- name: (complex_\w+)\(", text, re.MULTILINE):
        assert len(re.findall(rf"\b{name}\(", text)) > 1, f"nobody calls {name}"


def test_a_real_program_stays_as_it_is() -> None:
    x = ir.input_("x", dtypes.float64)
    program = Program("f", (x,), (), (Output("y", primitive("exp", x), x.dtype),))
    assert split_complex(program, functions()) is program


def test_numbers_constants_and_casts_are_taken_apart() -> None:
    x = ir.input_("x", dtypes.complex64)
    alpha = ir.scalar("alpha", dtypes.complex128)
    wide = ir.cast(x, dtypes.complex128)
    node = primitive("mul", wide, primitive("mul", alpha, ir.const(2j, alpha.dtype)))
    total = primitive("add", node, ir.cast(ir.cast(wide, dtypes.float64), wide.dtype))
    program = Program("f", (x,), (alpha,), (Output("y", total, total.dtype),))
    apart = split_complex(program, functions())
    reads = {n for n in apart.nodes if n.op in ("input", "scalar")}
    assert reads == {x, alpha}
    assert {n.op for n in leftovers(apart)} == {"scalar"}
    (result,) = interpret(apart.roots, {"x": 1 + 2j, "alpha": 3 - 1j})
    assert result == (1 + 2j) * (3 - 1j) * 2j + 1


# --- accuracy -----------------------------------------------------------------------


def test_every_row_has_a_reference() -> None:
    assert {*UNARY, *BINARY, "where", "eq", "ne", "isnan"} == set(ROWS)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_number(name: str, dtype: DType) -> None:
    worst = (0.0, 0j)
    with mpmath.workprec(BITS):
        for point in points(dtype, name):
            z = complex(rounded(point, dtype))
            if z == 0 or not accurate_at(name, dtype, z):
                continue
            wanted = mpmath.mpc(UNARY[name](exact(name, z)))
            worst = max(
                worst, (error(value(name, dtype, z), wanted, dtype), z), key=_first
            )
    assert worst[0] < UNITS, f"{name}({worst[1]}) is {worst[0]:.3g} eps off"


def _first(pair: tuple[float, object]) -> float:
    return pair[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_numbers(name: str, dtype: DType) -> None:
    """A power may lose as many digits as its exponent w log(z) has before the point."""
    left = list(points(dtype, name))
    right = random.Random(0).sample(left, len(left))
    worst: tuple[float, object] = (0.0, None)
    eps, normal, overflow = limits(dtype)
    with mpmath.workprec(BITS):
        for pair in zip(left, right, strict=True):
            z, w = (complex(rounded(p, dtype)) for p in pair)
            if z == 0 or w == 0:
                continue
            wanted, slack = BINARY[name](exact(name, z), mpmath.mpc(w)), 1.0
            if name == "pow":
                slack = float(1 + abs(w * mpmath.log(exact(name, z))))
                if slack * eps > 0.01:
                    continue
            if name in ("add", "sub"):
                slack = float(
                    (abs(mpmath.mpc(z)) + abs(mpmath.mpc(w))) / max(abs(wanted), normal)
                )
            if name == "mul" and abs(mpmath.mpc(z)) * abs(mpmath.mpc(w)) > overflow / 4:
                continue
            found = value(name, dtype, z, w)
            off = error(found, wanted, dtype) / slack
            worst = max(worst, (off, (z, w)), key=_first)
    assert worst[0] < UNITS, f"{name}{worst[1]} is {worst[0]:.3g} eps off"


# --- conventions --------------------------------------------------------------------

# The two sides of every branch cut, by the sign of a zero (C99, 7.3.5 to 7.3.8).
CUTS: list[tuple[str, complex, complex]] = [
    ("sqrt", -4 + 0j, 2j),
    ("rsqrt", -4 + 0j, -0.5j),
    ("log", -1 + 0j, math.pi * 1j),
    ("log2", -1 + 0j, math.pi / math.log(2) * 1j),
    ("log10", -1 + 0j, math.pi / math.log(10) * 1j),
    ("log1p", -2 + 0j, math.pi * 1j),
    ("asin", 2 + 0j, math.pi / 2 + math.acosh(2) * 1j),
    ("asin", -2 + 0j, -math.pi / 2 + math.acosh(2) * 1j),
    ("acos", 2 + 0j, -math.acosh(2) * 1j),
    ("acos", -2 + 0j, math.pi - math.acosh(2) * 1j),
    ("acosh", -2 + 0j, math.acosh(2) + math.pi * 1j),
    ("acosh", 0.5 + 0j, math.pi / 3 * 1j),
    ("atanh", 2 + 0j, math.atanh(0.5) + math.pi / 2 * 1j),
    ("atanh", -2 + 0j, -math.atanh(0.5) + math.pi / 2 * 1j),
    ("atan", 0 + 2j, math.pi / 2 + math.atanh(0.5) * 1j),
    ("asinh", 0 + 2j, math.acosh(2) + math.pi / 2 * 1j),
]


@pytest.mark.parametrize(("name", "z", "wanted"), CUTS)
def test_a_zero_chooses_the_side_of_a_cut(
    name: str, z: complex, wanted: complex
) -> None:
    assert value(name, dtypes.complex128, z) == pytest.approx(wanted, rel=1e-15)
    if z.imag == 0:
        other, mirrored = complex(z.real, -0.0), wanted.conjugate()
    else:
        other, mirrored = complex(-0.0, z.imag), complex(-wanted.real, wanted.imag)
    assert value(name, dtypes.complex128, other) == pytest.approx(mirrored, rel=1e-15)


CONVENTIONS: list[tuple[str, tuple[complex, ...], complex]] = [
    ("exp", (complex(-inf, nan),), 0j),
    ("exp", (complex(inf, 0.0),), complex(inf, 0.0)),
    ("exp", (complex(inf, inf),), complex(inf, nan)),
    ("exp", (complex(nan, -0.0),), complex(nan, -0.0)),
    ("exp2", (complex(inf, 0.0),), complex(inf, 0.0)),
    ("expm1", (complex(-inf, inf),), -1 + 0j),
    ("log", (0j,), complex(-inf, 0.0)),
    ("log", (complex(-0.0, 0.0),), complex(-inf, math.pi)),
    ("log", (complex(-inf, inf),), complex(inf, 0.75 * math.pi)),
    ("log", (complex(nan, inf),), complex(inf, nan)),
    ("log1p", (-1 + 0j,), complex(-inf, 0.0)),
    ("sqrt", (complex(-0.0, -0.0),), complex(0.0, -0.0)),
    ("sqrt", (complex(-inf, -1.0),), complex(0.0, -inf)),
    ("sqrt", (complex(nan, inf),), complex(inf, inf)),
    ("rsqrt", (0j,), complex(inf, nan)),
    ("rsqrt", (complex(1.0, inf),), 0j),
    ("sinh", (complex(inf, 0.0),), complex(inf, 0.0)),
    ("cosh", (complex(-inf, 0.0),), complex(inf, -0.0)),
    ("tanh", (complex(inf, inf),), 1 + 0j),
    ("tan", (complex(1.0, -inf),), complex(0.0, -1.0)),
    ("asin", (complex(-inf, inf),), complex(-math.pi / 4, inf)),
    ("acos", (complex(-inf, 1.0),), complex(math.pi, -inf)),
    ("acosh", (complex(-inf, -inf),), complex(inf, -0.75 * math.pi)),
    ("atanh", (complex(inf, inf),), complex(0.0, math.pi / 2)),
    ("atanh", (1 + 0j,), complex(inf, 0.0)),
    ("atan", (1j,), complex(0.0, inf)),
    ("abs", (complex(nan, inf),), complex(inf)),
    ("sgn", (complex(-0.0, -0.0),), 0j),
    ("sgn", (complex(3e-323, 4e-323),), 0.6 + 0.8j),
    ("sgn", (complex(1.5e308, -1.5e308),), math.sqrt(0.5) * (1 - 1j)),
    ("div", (1 + 0j, 0j), complex(inf, nan)),
    ("div", (complex(-inf, 1), complex(-0.0, 0.0)), complex(-inf, inf)),
    ("div", (1 + 1j, complex(nan, 0.0)), complex(nan, nan)),
    ("div", (1 + 1j, complex(inf, 1.0)), 0j),
    ("pow", (0j, 0j), 1 + 0j),
    ("pow", (complex(nan, inf), 0j), 1 + 0j),
    ("pow", (0j, 2 + 1j), 0j),
    ("pow", (0j, -1 + 0j), complex(inf, nan)),
    ("pow", (0j, 1j), complex(nan, nan)),
    ("isnan", (complex(0.0, nan),), 1),
    ("eq", (complex(0.0, -0.0), complex(-0.0, 0.0)), 1),
    ("eq", (complex(0.0, nan), complex(0.0, nan)), 0),
    ("ne", (1 + 1j, 1 + 2j), 1),
    ("ne", (1 + 1j, 1 + 1j), 0),
]


@pytest.mark.parametrize(("name", "args", "wanted"), CONVENTIONS)
def test_zeros_infinities_and_nan(
    name: str, args: tuple[complex, ...], wanted: complex
) -> None:
    found = value(name, dtypes.complex128, *args)
    for f, w in zip(parts_of(found), parts_of(complex(wanted)), strict=True):
        assert f == pytest.approx(w, rel=1e-15, nan_ok=True), found
        assert f != 0 or math.copysign(1, f) == math.copysign(1, w), found


def test_where_chooses_whole_numbers() -> None:
    roots = split("where", dtypes.complex128).roots
    for condition, wanted in ((True, 1 + 2j), (False, 3 - 4j)):
        names = {"x0": condition, "x1": 1 + 2j, "x2": 3 - 4j}
        assert interpret(roots, names) == (wanted,)


GRID = [-inf, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, inf]


@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("real", "imag")])
def test_wherever_pytorch_gives_a_number_so_do_the_formulas(name: str) -> None:
    torch = pytest.importorskip("torch")
    reference = pytest.importorskip("atentriton.reference")
    grid = [complex(a, b) for a in GRID for b in GRID]
    z = torch.tensor(grid, dtype=torch.complex128)
    (found,) = reference.evaluate(split(name, dtypes.complex128), [z])
    wanted = getattr(torch, PRIMITIVES[name].torch)(z)
    number = ~wanted.isnan()
    for part in (torch.real, torch.imag) if wanted.is_complex() else (torch.real,):
        torch.testing.assert_close(
            part(found[number]), part(wanted[number]), rtol=1e-12, atol=1e-15
        )


# --- symmetry -----------------------------------------------------------------------

ODD = ("sgn", "sin", "tan", "sinh", "tanh", "asin", "atan", "asinh", "atanh")
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def same(x: complex, y: complex) -> bool:
    """Equal to the sign of a zero; all NaN are one."""
    return all(
        repr(a) == repr(b) for a, b in zip(parts_of(x), parts_of(y), strict=True)
    )


@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("real", "imag", "abs")])
@settings(max_examples=25)
@given(a=FINITE, b=FINITE)
def test_conjugating_before_is_conjugating_after(name: str, a: float, b: float) -> None:
    if name == "sgn" and a == b == 0:
        return  # 0 without signs
    f = value(name, dtypes.complex128, complex(a, b))
    g = value(name, dtypes.complex128, complex(a, -b))
    assert same(f.conjugate(), g)


@pytest.mark.parametrize("name", ODD)
@settings(max_examples=25)
@given(a=FINITE, b=FINITE)
def test_odd_functions_are_odd(name: str, a: float, b: float) -> None:
    if a == 0 or b == 0:
        return
    f = value(name, dtypes.complex128, complex(a, b))
    assert same(-f, value(name, dtypes.complex128, complex(-a, -b)))
