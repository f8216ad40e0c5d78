"""Formulas mean to the compiler what they mean to PyTorch."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
import torch

from atentriton.reference import evaluate
from fuser import dtypes, ir
from fuser.errors import FormulaError
from fuser.grammar import parse_formula
from fuser.ir import Node, Static
from fuser.lower import Lowering, NotPointwise
from fuser.pipeline import default_compiler
from fuser.program import Output, Program
from fuser.rows import present
from fuser.simplify import simplify
from fuser.specs import ScalarSpec, TensorSpec, value_of
from fuser.values import Number, Tensor, Tuple, Undefined, Value, number

TENSORS: dict[str, torch.Tensor] = {
    "x": torch.tensor([0.5, -2.0, 0.1, 3.25]),
    "y": torch.tensor([1.5, 2.0, -0.25, 0.75]),
    "d": torch.tensor([0.1, -2.0, 7.0, 1e-9], dtype=torch.float64),
    "h": torch.tensor([0.1, -2.0, 300.0, 1e-4], dtype=torch.float16),
    "k": torch.tensor([0.1, -2.0, 300.0, 1e-4], dtype=torch.bfloat16),
    "i": torch.tensor([7, -7, 0, 2**31 - 1], dtype=torch.int32),
    "n": torch.tensor([7, -7, 1, 3]),
    "u": torch.tensor([7, 200, 0, 255], dtype=torch.uint8),
    "b": torch.tensor([True, False, True, False]),
    "c": torch.tensor([True, True, False, False]),
    "z": torch.tensor([0.5 - 1j, -2.0, 3j, 1 + 1j]),
    "p": torch.tensor(2.5),  # without dimensions
    "q": torch.tensor(3),
    "e": torch.tensor(0.1, dtype=torch.float64),
}
NUMBERS: dict[str, complex] = {"s": 2.5, "m": 3, "t": True, "w": 1 - 2j}
KINDS = {float: "float", int: "int", bool: "bool", complex: "complex"}


def dtype_of(tensor: torch.Tensor) -> dtypes.DType:
    return dtypes.dtype(str(tensor.dtype).split(".")[1])


def names() -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, tensor in TENSORS.items():
        spec = TensorSpec(dtype_of(tensor), tensor.dim() == 0)
        found[name] = value_of(_argument(name), spec)
    for name, value in NUMBERS.items():
        found[name] = value_of(_argument(name), ScalarSpec(KINDS[type(value)]))
    return found


def _argument(name: str):
    from fuser.signatures import parse_signature

    return parse_signature(f"f(Tensor {name}) -> Tensor").arguments[0]


def lower(
    text: str,
    scope: Mapping[str, Value] | None = None,
    default: dtypes.DType = dtypes.float32,
) -> Value:
    functions = default_compiler().functions
    lowering = Lowering(functions, frozenset(), default)
    return lowering.value(parse_formula(text), names() if scope is None else scope)


def run(value: Value) -> torch.Tensor:
    """The value, evaluated over TENSORS and NUMBERS."""
    value = present(value, (), dtypes.float32)
    assert isinstance(value, Tensor | Number)
    dtype = value.dtype if isinstance(value, Tensor) else value.node.dtype
    (root,) = simplify([value.node])
    used = {
        str(n.attrs): n for op in ("input", "scalar") for n in ir.leaves([root], op)
    }
    inputs = tuple(n for n in used.values() if n.op == "input")
    scalars = tuple(n for n in used.values() if n.op == "scalar")
    program = Program("formula", inputs, scalars, (Output("result", root, dtype),))
    found = evaluate(
        program,
        [TENSORS[str(n.attrs)] for n in inputs],
        [NUMBERS[str(n.attrs)] for n in scalars],
    )
    return found[0]


# A formula, and what it is in Python where that is written otherwise.
FORMULAS: list[str | tuple[str, str]] = [
    "x + y", "x + d", "d + p", "x + e", "i + p", "i + e", "b + b", "u + i", "h + k",
    "h + x", "x + 1", "i + 1", "u + 1", "u + 300", "b + 1", "b + 1.5", "i + 2.5",
    "h + 0.1", "z + 1", "x + s", "i + s", "x + m", "u + m", "b + t", "i + t", "d * s",
    "h * s", "x * w", "b * m", "i * p", "u * q", "h * e", "p + e", "q + p", "p + 1",
    "e * d", "x - y", "x - 1", "1 - u", "i - 2.5", "-x", "-i", "-u", "-z", "x / y",
    "i / 2", "i / n", "u / 3", "x / 3", "n / q", "z / 2", "h / 3", "b / 2", "x == 0.1",
    "d == 0.1", "i == 7", "i == 7.0", "z == 3",
    "b == c", "b != c", "b == 1", "u < 8", "u > -1", "x <= y", "x >= d", "h < x",
    "i < 2.5", ("!b", "~b"), "b & c", "b | c", "b ^ c", "i & 3", "i | m", "i ^ n", "~i",
    "~u", "~b", ("x < 0 && y > 0", "(x < 0) & (y > 0)"), ("b || c", "b | c"),
    ("b ? x : y", "where(b, x, y)"), ("b ? 1 : 2.5", "where(b, 1, 2.5)"),
    "where(b, x, y)", "where(b, x, d)", "where(b, x, 0)", "where(b, i, 0)",
    "where(b, i, 2.5)", "where(b, 1, 2)", "where(b, h, 0.1)", "where(b, z, x)",
    "where(b, x, p)", "where(b, x, s)", "where(c, 1, x)", "where(i > 0, x, -x)",
    "where(b, h, k)", "where(b, u, i)", "x.exp()", "i.exp()", "h.exp()", "b.exp()",
    "q.exp()", "e.exp()", "z.exp()", "z.abs()", "i.abs()", "x.sgn()", "i.sgn()",
    "z.conj()", "x.conj()", "z.sgn()", ("at::real(z)", "real(z)"),
    ("at::imag(z)", "imag(z)"), ("at::complex(x, y)", "complex(x, y)"), "x.maximum(y)",
    "i.maximum(n)", "h.maximum(x)", "b.maximum(c)", "u.minimum(i)", "x.pow(2)",
    "x.pow(3)", "x.pow(-1)", "y.abs().pow(0.5)", "x.abs().pow(s)", "x.pow(m)",
    "y.abs().pow(x)", ("pow(2, x)", "torch.pow(2, x)"), "i.pow(0.5).isnan()",
    "z.pow(2)", "x.clamp(-1, 1)", "i.clamp(-1, 1)", "i.clamp(-1, 2.5)",
    "h.clamp(0.1, 1)", "x.clamp(0)", "x.clamp_min(0)", "x.clamp_max(y)",
    "x.masked_fill(b, 0)", "i.masked_fill(b, 7)",
    ("x.masked_fill(b, s)", "x.masked_fill(b, 2.5)"), "x.reciprocal()",
    "i.reciprocal()", "i.remainder(n)", "x.remainder(y)", "i.fmod(n)", "x.fmod(2)",
    "i.remainder(3)", ("x.div(y, \"trunc\")", "x.div(y, rounding_mode='trunc')"),
    ("i.div(n, \"floor\")", "i.div(n, rounding_mode='floor')"),
    ("i.div(n, \"trunc\")", "i.div(n, rounding_mode='trunc')"),
    ("x.div(y, nullopt)", "x.div(y)"), "x.floor()", "i.floor()", "x.trunc()",
    "x.round()", "h.round()", "x.frac()", "x.isnan()", "i.isnan()", "x.isinf()",
    "z.isinf()", "x.isfinite()", "i.isfinite()",
    ("zeros_like(i)", "torch.zeros_like(i)"), ("ones_like(h)", "torch.ones_like(h)"),
    ("full_like(u, 7)", "torch.full_like(u, 7)"),
    ("at::scalar_tensor(0.5, x.options()) * d", "torch.scalar_tensor(0.5) * d"),
    ("x.to(at::kInt)", "x.to(torch.int32)"), ("x.to(at::kHalf)", "x.half()"),
    ("x.to(at::kBool)", "x.bool()"), ("i.to(x.scalar_type())", "i.float()"),
    ("x.to(h.options(), false, false)", "x.half()"),
    ("h.to(at::kDouble)", "h.double()"), ("x.to(at::kHalf) * d", "x.half() * d"),
    ("z.to(at::kComplexDouble)", "z.cdouble()"),
    ("x.masked_fill_(b, 0).mul_(2)", "x.masked_fill(b, 0) * 2"),
    ("at::lerp(x, y, 0.25)", "torch.lerp(x, y, 0.25)"),
    ("at::addcmul(x, y, y, 2)", "torch.addcmul(x, y, y, value=2)"),
    ("2 * M_PI * x", "2 * torch.pi * x"), ("x * (1.0 / 3)", "x * (1.0 / 3)"),
    ("self * x", "x * x"), ("(b & c).logical_not_()", "~(b & c)"),
    ("x.logical_or(b)", "x.logical_or(b)"), ("i.logical_xor(u)", "i.logical_xor(u)"),
]  # fmt: skip


@pytest.mark.parametrize("case", FORMULAS, ids=str)
def test_formulas_are_torchs(case: str | tuple[str, str]) -> None:
    text, python = case if isinstance(case, tuple) else (case, case)
    value = lower(text, {**names(), "self": names()["x"]})
    everything = {**vars(torch), **TENSORS, **NUMBERS, "torch": torch}
    expected = torch.as_tensor(eval(python, everything)).resolve_conj()
    found = run(value)
    assert found.dtype == expected.dtype
    near = found.dtype.is_floating_point or found.dtype.is_complex
    eps = torch.finfo(found.dtype).eps if near else 0.0
    found, expected = torch.broadcast_tensors(found, expected)
    torch.testing.assert_close(found, expected, rtol=2 * eps, atol=0, equal_nan=True)
    assert isinstance(value, Tensor)
    used = set(re.findall(r"\b[a-z]\b", python)) & {*TENSORS}
    assert value.zero_dim == all(TENSORS[n].dim() == 0 for n in used)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_default_dtype_is_that_of_the_session(dtype: str) -> None:
    default = dtypes.dtype(dtype)
    for text in ("i / 2", "i * 2.5", "b.exp()", "where(b, 1, 2.5)", "q / 2"):
        value = lower(text, default=default)
        assert isinstance(value, Tensor)
        assert value.dtype == default, text
    unmoved = lower("x * 2.5", default=default)
    assert isinstance(unmoved, Tensor)
    assert unmoved.dtype == dtypes.float32


NUMERIC = {
    "1 + 2": 3,
    "1 + 2.5": 3.5,
    "7 / 2": 3.5,
    "-3": -3,
    "2 * M_PI": 6.283185307179586,
    "sqrt(M_PI)": 1.7724538509055159,
    "sqrt(4)": 2.0,
    "true && false": False,
    "false || true": True,
    "!true": False,
    "3 == 3.0": True,
    "true ? 1 : 2": 1,
    "2 > 1 ? 0.5 : 7": 0.5,
    "exp(0)": 1.0,
    "1 / 0.0": float("inf"),
}


@pytest.mark.parametrize("text", NUMERIC)
def test_arithmetic_on_known_numbers_is_done_at_once(text: str) -> None:
    value = lower(text, {})
    assert isinstance(value, Number)
    assert value.constant == NUMERIC[text]
    assert type(value.constant) is type(NUMERIC[text])


def test_numbers_given_at_run_time_stay_numbers() -> None:
    for text, kind in [("s * 2", "float"), ("m + 1", "int"), ("m / 2", "float")]:
        value = lower(text)
        assert isinstance(value, Number)
        assert value.kind == kind
        assert value.constant is None
    assert run(lower("m / 2 * s")).item() == 3.75
    assert run(lower("s.equal(0) ? x : -x")).tolist() == (-TENSORS["x"]).tolist()
    assert run(lower("m.toDouble() + 0.5")).item() == 3.5
    assert run(lower("t ? x : y")).tolist() == TENSORS["x"].tolist()


def test_questions_are_answered_while_lowering() -> None:
    scope = {**names(), "absent": Undefined(), "none": Static(None)}
    scope |= {"mode": Static("trunc"), "list": Tuple((number(1), number(2)))}
    answers = {
        "x.defined()": True,
        "absent.defined()": False,
        "none.has_value()": False,
        "x.is_complex()": False,
        "z.is_complex()": True,
        "isComplexType(z.scalar_type())": True,
        "absent.is_complex()": False,
        "h.scalar_type() == at::kHalf": True,
        "h.scalar_type() == x.scalar_type()": False,
        "h.scalar_type() != at::kFloat": True,
        "isIntegralType(i.scalar_type())": True,
        "isIntegralType(b.scalar_type())": False,
        "x.is_floating_point()": True,
        'mode == "trunc"': True,
        'none == "trunc"': False,
        "w.isComplex()": True,
        "s.isComplex()": False,
        "GradMode::is_enabled()": True,
        '!none.has_value() || *mode == "trunc"': True,
    }
    for text, answer in answers.items():
        value = lower(text, scope)
        assert isinstance(value, Number), text
        assert value.constant is answer, text
    assert lower("none.value_or(3)", scope) == number(3)
    assert lower("mode.value_or(3)", scope) == Static("trunc")
    assert lower("list[1]", scope) == number(2)
    assert lower("std::get<0>(std::make_tuple(x, y))", scope) == scope["x"]
    assert lower("std::tuple<Tensor, Tensor>()", scope) == Tuple((Undefined(),) * 2)
    assert lower("Tensor()", scope) == Undefined()


def test_only_the_chosen_branch_is_lowered() -> None:
    value = lower("x.is_complex() ? nothing_of_the_kind(x) : x.defined() ? x : oops")
    assert value == names()["x"]


def test_absent_tensors_are_zeros_without_being_made() -> None:
    scope = {**names(), "absent": Undefined(dtypes.float32), "gone": Undefined()}
    for text in ("absent * x", "x * gone", "-absent", "absent / x", "absent + gone",
                 "absent.conj()", "handle_r_to_c(x.scalar_type(), gone * z)",
                 "gone.div(x, \"trunc\")", "absent * x + gone * y"):  # fmt: skip
        assert isinstance(lower(text, scope), Undefined), text
    for text, same in {
        "absent + x": "x",
        "x + absent": "x",
        "x - absent": "x",
        "gone - x": "-x",
        "x * y + absent * d": "x * y",
        "where(b, absent, x)": "where(b, 0, x)",
        "where(b, gone, x)": "where(b, 0, x)",
        "gone.exp() * x": "x * 1",
        "x.maximum(absent)": "x.maximum(zeros_like(x))",
    }.items():
        found, expected = lower(text, scope), lower(same, scope)
        assert isinstance(found, Tensor), text
        assert isinstance(expected, Tensor)
        assert simplify([found.node]) == simplify([expected.node]), text
        assert found.dtype == expected.dtype, text


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("x + oops", '"oops" does not stand for anything', 5),
        ("x * sellf", 'did you mean "self"', 5),
        ("x + cholesky_backward(y)", "cholesky_backward has no pointwise", 5),
        ("x.sgimoid()", "sgimoid has no pointwise", 3),
        ("x << 2", "the operator << has no pointwise", 1),
        ("x.pow(y, y)", "pow does not take these arguments", 3),
        ("b - c", "a bool cannot be subtracted", 1),
        ("x.exp() + nullopt", "add cannot take None", 1),
        ("{x, y} * 2", "mul cannot take a list", 1),
        ("{x, y}[2]", "list of known length", 1),
        ("std::get<2>(std::make_tuple(x, y))", "a tuple of 2 has no item 2", 1),
        ("x & y", "takes bool, int, not float32", 1),
        ("atan2(z, z)", "atan2 takes float, not complex64", 1),
        (
            "add(i, n, 2.5)",
            "For integral input tensors, argument alpha must not be a",
            1,
        ),
        ("add(x, y, w)", "For non-complex input tensors, argument alpha", 1),
    ],
)
def test_mistakes_say_where_they_stand(text: str, message: str, column: int) -> None:
    with pytest.raises(FormulaError, match=re.escape(message)) as caught:
        lower(text, {**names(), "self": names()["x"]})
    assert caught.value.span.column == column
    assert caught.value.span.line == 1


def test_what_is_not_pointwise_is_named() -> None:
    with pytest.raises(NotPointwise) as caught:
        lower("x + grid_sampler_2d_backward(x, y)")
    assert caught.value.function == "grid_sampler_2d_backward"


def test_operators_with_an_entry_stay_whole() -> None:
    compiler = default_compiler()
    lowering = Lowering(compiler.functions, compiler.opaque)
    value = lowering.value(parse_formula("logaddexp(x, d)"), names())
    assert isinstance(value, Tensor)
    assert value.node.op == "call"
    assert ir.label(value.node) == "logaddexp"
    assert [a.dtype.name for a in value.node.args] == ["float64", "float64"]
    helper = lowering.value(parse_formula("maybe_multiply(x, 2)"), names())
    assert isinstance(helper, Tensor)
    assert helper.node.op == "mul"


def test_half_tensors_compute_wide() -> None:
    value = lower("h * 3 + h")
    assert isinstance(value, Tensor)
    assert value.dtype == dtypes.float16
    kinds = {n.dtype.name for n in ir.topological([value.node]) if n.op not in LEAVES}
    assert kinds == {"float32"}
    rounding = lower("(h * 3).to(at::kHalf)")
    assert isinstance(rounding, Tensor)
    assert any(n.op == "cast" and n.dtype.is_half for n in nodes(rounding))


LEAVES = ("input", "const")


def nodes(value: Tensor) -> list[Node]:
    return ir.topological([value.node])
