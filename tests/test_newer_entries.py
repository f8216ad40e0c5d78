"""The entries that PyTorch's file has gained: where they depart from it, and edges.

data/newer_deviations.yaml has each changed formula with its reason and a point where
PyTorch's is wrong. Tails are held against mpmath, up to the third derivative.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
import yaml
from mpmath import mpf
from torch import Tensor
from torch.autograd import forward_ad, grad

from fuser.entries import Entry, load
from fuser.lower import NotPointwise
from fuser.resources import resource
from tests.stepwise import COMPILER, stepwise

HERE = Path(__file__).parent
LISTED: dict[str, Any] = yaml.safe_load(
    (HERE / "data" / "newer_deviations.yaml").read_text()
)
FORMULAS: list[dict[str, Any]] = LISTED["formulas"]
TEXT = resource("derivatives.yaml").read_text()
HEADING = TEXT[: TEXT.index("# === Entries of newer files")].count("\n") + 1
NEWER = [e for e in COMPILER.entries.values() if e.span.line > HEADING]
INF, NAN = math.inf, math.nan


def _label(listed: dict[str, Any]) -> str:
    return f"{listed['entry']}: {listed['key']}"


def _formulas(entry: Entry) -> dict[str, str]:
    """The formulas without comments and white space, reductions as numbers."""
    return {
        ", ".join(f.names): re.sub(
            r"/\*.*?\*/|\s", "", f.text.replace("at::Reduction::None", "0")
        )
        for f in (*entry.gradients, *entry.forwards)
    }


# -- the list --------------------------------------------------------------------------


@pytest.mark.skipif(
    not torch.__version__.startswith(LISTED["release"]),
    reason="the list is of another release",
)
def test_every_difference_is_listed() -> None:
    spec = find_spec("torchgen")
    assert spec is not None and spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    theirs = load(folder / "packaged" / "autograd" / "derivatives.yaml").by_name
    different = {
        (entry.name, key)
        for entry in NEWER
        for key, text in _formulas(entry).items()
        if text != _formulas(theirs[entry.name]).get(key)
    }
    assert different == {(d["entry"], d["key"]) for d in FORMULAS}


@pytest.mark.parametrize("listed", FORMULAS, ids=_label)
def test_the_text_in_pytorch_stands_beside(listed: dict[str, Any]) -> None:
    why = re.sub(r"\s+", " ", f"# why: {listed['reason']}")
    entry = TEXT[TEXT.index(f"- name: {listed['entry']}(") :].split("\n\n")[0]
    before, _, after = entry.partition(f"  # torch: {listed['torch']}\n")
    assert before.startswith("- name: ")
    reason, _, formula = after.partition(f"\n  {listed['key']}: ")
    assert re.sub(r"\s+#?\s*", " ", reason.strip()) == why
    assert formula.startswith(listed["ours"])


def test_the_page_lists_all() -> None:
    page = (HERE.parent / "docs" / "deviations.md").read_text()
    for d in FORMULAS:
        assert f"| `{d['entry']}` | `{d['key']}` | {d['reason']} |" in page


@pytest.mark.parametrize("listed", FORMULAS, ids=_label)
def test_the_formula_is_right(listed: dict[str, Any]) -> None:
    case = listed["case"]
    operator = stepwise(listed["entry"])
    values: dict[str, Any] = {}
    for argument in operator.signature.arguments:
        default = argument.default.value if argument.default else None
        value = case["inputs"].get(argument.name, default)
        if argument.is_tensor:
            dtype = case.get("dtypes", {}).get(argument.name, case["dtype"])
            value = torch.tensor(value, dtype=getattr(torch, dtype))
        values[argument.name] = value
    if "tangents" in case:
        found = _tangent(operator, values, case["tangents"])
    else:
        leaf = values[listed["key"]].requires_grad_()
        given = values
        if operator.signature.inplace:
            given = {**values, listed["key"]: leaf.clone()}
        (found,) = grad(operator(*given.values()), leaf)
    assert found.item() == pytest.approx(case["expect"], rel=1e-12)


def _tangent(
    operator: Callable[..., Any], values: dict[str, Any], tangents: dict[str, float]
) -> Tensor:
    with forward_ad.dual_level():
        duals = {
            name: forward_ad.make_dual(v, torch.full_like(v, tangents[name]))
            if name in tangents
            else v
            for name, v in values.items()
        }
        return forward_ad.unpack_dual(operator(*duals.values())).tangent


# -- tails -----------------------------------------------------------------------------


def _logistic(x: mpf) -> mpf:
    return 1 / (1 + mpmath.exp(-x))


def _below(x: mpf) -> mpf:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def _softplus(x: mpf) -> mpf:
    return mpmath.log1p(mpmath.exp(x))


def _gelu_tanh(x: mpf) -> mpf:
    inner = mpmath.sqrt(2 / mpmath.pi) * (x + mpf(0.044715) * x**3)
    return x * _logistic(2 * inner)


def _sinc(x: mpf) -> mpf:
    return mpmath.sinc(mpmath.pi * x)


def _elu(x: mpf) -> mpf:
    return 2 * x if x > 0 else 3 * mpmath.expm1(x / 2)


# Operator, arguments before and after the tensor, the function, points.
Row = tuple[str, tuple[Any, ...], Callable[[mpf], mpf], tuple[float, ...]]
ONE = torch.tensor(1.0, dtype=torch.float64)
TAILS: tuple[Row, ...] = (
    ("sinc", (), _sinc, (1e-3, 0.1, 0.4999, 0.5001, 0.7, 0.9999, -2.3, 3.0001, 4.0)),
    ("special_ndtr", (), _below, (-30.0, -5.0, 0.5, 8.0)),
    (
        "special_log_ndtr",
        (),
        lambda x: mpmath.log(_below(x)),
        (-20.0, -5.0, -1.5, -0.9, 0.5, 9.0),
    ),
    ("silu", (), lambda x: x * _logistic(x), (-300.0, -40.0, -1.0, 0.5, 40.0)),
    (
        "mish",
        (),
        lambda x: x * mpmath.tanh(_softplus(x)),
        (-300.0, -40.0, -1.0, 0.5, 20.0, 40.0),
    ),
    ("gelu", ("none",), lambda x: x * _below(x), (-30.0, -8.0, -0.7, 0.5, 9.0)),
    ("gelu", ("tanh",), _gelu_tanh, (-14.0, -8.0, -0.7, 0.5, 9.0)),
    ("softplus", (1, 1000.0), _softplus, (-300.0, -40.0, 0.5, 40.0, 300.0)),
    ("log_sigmoid", (), lambda x: -_softplus(-x), (-300.0, -40.0, 0.5, 40.0, 300.0)),
    ("soft_margin_loss", (-ONE, 0), _softplus, (-300.0, -40.0, 0.5, 40.0, 300.0)),
    (
        "binary_cross_entropy_with_logits",
        (ONE, None, None, 0),
        lambda x: _softplus(-x),
        (-300.0, -40.0, 0.5, 40.0, 300.0),
    ),
    (
        "binary_cross_entropy_with_logits",
        (ONE / 4, None, 3 * ONE, 0),
        lambda x: (3 * _softplus(x) + 3 * _softplus(-x)) / 4,
        (-300.0, -40.0, 0.5, 40.0, 300.0),
    ),
    (
        "logit",
        (None,),
        lambda x: mpmath.log(x / (1 - x)),
        (1e-100, 1e-10, 0.3, 0.9, 0.999999),
    ),
    ("elu", (1.5, 2.0, 0.5), _elu, (-700.0, -40.0, -1.0, 800.0)),
    (
        "special_entr",
        (),
        lambda x: -x * mpmath.log(x),
        (1e-100, 0.3, 2.0, 1e10),
    ),
)


@pytest.mark.parametrize("row", TAILS, ids=lambda row: f"{row[0]}{row[1][:1]}")
def test_tails(row: Row) -> None:
    name, arguments, function, points = row
    x = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    derivative = stepwise(name)(x, *arguments)
    for order, allowed in enumerate((16, 64, 512, 4096)):
        for point, found in zip(points, derivative.tolist(), strict=True):
            right, slope = _derivatives(function, point, order)
            # What an error of half a unit in x's last place does is not ours to mend.
            size = abs(right) + abs(point * slope)
            error = abs(mpf(found) - right)
            assert error <= allowed * size * torch.finfo(x.dtype).eps, (
                f"order {order} at {point}: {found}, not {right}"
            )
        if order < 3:
            (derivative,) = grad(derivative.sum(), x, create_graph=True)


def _derivatives(
    function: Callable[[mpf], mpf], point: float, order: int
) -> tuple[mpf, mpf]:
    with mpmath.workdps(120):
        step = mpf(10) ** -20 * min(1, abs(mpf(point)))
        here, slope = (
            mpmath.diff(function, mpf(point), n, h=step) for n in (order, order + 1)
        )
        return here, slope


# -- points ----------------------------------------------------------------------------

# The number that the gradient of a logarithm ends at, as a float32.
FLOAT_1E_12 = torch.tensor(1e-12, dtype=torch.float32).item()

# Operator, arguments after the tensor, and at each point: value, gradient, second.
Points = dict[float, tuple[float, float, float]]
EDGES: tuple[tuple[str, tuple[Any, ...], Points], ...] = (
    (
        "sinc",
        (),
        {
            0.0: (1.0, 0.0, -(math.pi**2) / 3),
            2.0: (0.0, 0.5, -0.5),
            -3.0: (0.0, 1 / 3, 2 / 9),
        },
    ),
    ("hardshrink", (0.0,), {0.0: (0.0, 1.0, 0.0), 1.0: (1.0, 1.0, 0.0)}),
    ("hardshrink", (0.5,), {0.5: (0.0, 0.0, 0.0), -0.5: (0.0, 0.0, 0.0)}),
    ("softshrink", (0.0,), {0.0: (0.0, 1.0, 0.0)}),
    ("softshrink", (0.5,), {0.5: (0.0, 0.0, 0.0), 2.0: (1.5, 1.0, 0.0)}),
    ("hardtanh", (-1, 1), {-1.0: (-1.0, 0.0, 0.0), 1.0: (1.0, 0.0, 0.0)}),
    ("elu", (1.5, 2.0, 1), {0.0: (0.0, 3.0, 0.0), INF: (INF, 2.0, 0.0)}),
    ("leaky_relu", (0.1,), {0.0: (0.0, 0.1, 0.0), -INF: (-INF, 0.1, 0.0)}),
    ("threshold", (0.0, 7.0), {0.0: (7.0, 0.0, 0.0), NAN: (NAN, 1.0, 0.0)}),
    ("gelu", ("none",), {-INF: (0.0, 0.0, 0.0), INF: (INF, 1.0, 0.0)}),
    ("gelu", ("tanh",), {-INF: (0.0, 0.0, 0.0), INF: (INF, 1.0, 0.0)}),
    ("silu", (), {-INF: (0.0, 0.0, 0.0), INF: (INF, 1.0, 0.0)}),
    ("mish", (), {-INF: (0.0, 0.0, 0.0), INF: (INF, 1.0, 0.0)}),
    (
        "softplus",
        (1e30, INF),
        {1.0: (1.0, 1.0, 0.0), -1.0: (0.0, 0.0, 0.0), INF: (INF, 1.0, 0.0)},
    ),
    ("softplus", (10.0, 0.5), {0.05: (0.09740769841801067, 0.6224593312018546, NAN)}),
    ("log_sigmoid", (), {-INF: (-INF, 1.0, 0.0), INF: (0.0, 0.0, 0.0)}),
    (
        "logit",
        (0.125,),
        {
            0.0: (math.log(1 / 7), 0.0, 0.0),
            0.125: (math.log(1 / 7), 64 / 7, -3072 / 49),
            0.5: (0.0, 4.0, 0.0),
            1.0: (math.log(7), 0.0, 0.0),
        },
    ),
    ("logit", (None,), {0.0: (-INF, INF, -INF)}),
    ("special_entr", (), {0.0: (0.0, INF, -INF)}),
    ("special_log_ndtr", (), {-1e100: (-5e199, 1e100, -1.0)}),
    ("nan_to_num", (None, None, 9.0), {-INF: (9.0, 0.0, 0.0), NAN: (0.0, 0.0, 0.0)}),
    ("huber_loss", (0 * ONE, 0, 1.0), {-3.0: (2.5, -1.0, 0.0), 0.0: (0.0, 0.0, 1.0)}),
    ("smooth_l1_loss", (0 * ONE, 0, 0.0), {0.0: (0.0, 0.0, 0.0)}),
    (
        "binary_cross_entropy",
        (0 * ONE, None, 0),
        {
            0.0: (0.0, 1.0, 1.0),
            1.0: (100.0, 1 / FLOAT_1E_12, 1 / FLOAT_1E_12**2),
            0.5: (math.log(2), 2.0, 4.0),
        },
    ),
    (
        "binary_cross_entropy_with_logits",
        (ONE / 4, None, None, 0),
        {-INF: (INF, -0.25, 0.0), INF: (INF, 0.75, 0.0)},
    ),
    (
        "binary_cross_entropy_with_logits",
        (1e300 * ONE, None, None, 0),
        {0.0: (math.log(2), -1e300, NAN)},
    ),
)


@pytest.mark.parametrize("row", EDGES, ids=lambda row: f"{row[0]}{row[1][:1]}")
def test_edges(row: tuple[str, tuple[Any, ...], Points]) -> None:
    name, arguments, points = row
    x = torch.tensor([*points], dtype=torch.float64, requires_grad=True)
    value = stepwise(name)(x, *arguments)
    (first,) = grad(value.sum(), x, create_graph=True)
    second = torch.zeros_like(x)
    if first.requires_grad:
        (second,) = grad(first.sum(), x)
    wanted = torch.tensor([*points.values()], dtype=torch.float64).T
    for found, right in zip((value, first, second), wanted, strict=True):
        known = ~right.isnan() | x.isnan() | value.isnan()
        torch.testing.assert_close(
            found[known], right[known], rtol=1e-14, atol=0, equal_nan=True
        )


def test_the_next_number() -> None:
    tiny, huge = 2.0**-1022, 1.7976931348623157e308
    points = [0.0, 5e-324, tiny, 2 * tiny, 3 * tiny, 0.5, 1.0, 1.5, huge, INF, NAN]
    points += [-p for p in points]
    for other in (INF, -INF, 0.0, -0.0, 1.0, NAN):
        x = torch.tensor(points, dtype=torch.float64)
        found = stepwise("nextafter")(x, torch.full_like(x, other)).tolist()
        for a, got in zip(points, found, strict=True):
            right = math.nextafter(a, other)
            assert got == right or (math.isnan(got) and math.isnan(right))
            assert math.isnan(right) or math.copysign(1, got) == math.copysign(1, right)


@pytest.mark.parametrize("exponent", [3, -3, 1023, 1024, -1074, 2098, -2098, 10**6])
def test_a_power_of_two_beyond_the_range(exponent: int) -> None:
    points = [0.0, 1.0, -3.7, 5e-324, 1e-300, 1e300]
    x = torch.tensor(points, dtype=torch.float64)
    found = stepwise("ldexp.Tensor")(x, torch.full((6,), exponent))
    right = [_ldexp(a, exponent) for a in points]
    assert found.tolist() == right


def _ldexp(a: float, exponent: int) -> float:
    try:
        return math.ldexp(a, exponent)
    except OverflowError:
        return math.copysign(INF, a)


def test_an_infinite_power_of_two() -> None:
    x = torch.tensor([0.0, 1.0, INF, -INF], dtype=torch.float64)
    for exponent, right in ((INF, [NAN, INF, INF, -INF]), (-INF, [0.0, 0.0, NAN, NAN])):
        found = stepwise("ldexp.Tensor")(x, torch.full_like(x, exponent))
        wanted = torch.tensor(right, dtype=torch.float64)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_a_number_too_large_to_be_scaled_is_whole() -> None:
    x = torch.tensor([1e300, -1e308, 1.25, INF], dtype=torch.float64)
    found = stepwise("round.decimals")(x, decimals=10)
    assert found.tolist() == x.tolist()


@pytest.mark.parametrize("decimals", [-300, -309, -400])
def test_a_number_is_less_than_half_a_huge_power_of_ten(decimals: int) -> None:
    x = torch.tensor([1e200, -1.25, 0.0, INF, -INF], dtype=torch.float64)
    found = stepwise("round.decimals")(x, decimals=decimals)
    assert found.tolist() == [0.0, 0.0, 0.0, INF, -INF]


# Gradients whose factors overflow by themselves, in an order in which they do not.
HUGE = 1.7976931348623157e308
PRODUCTS = (
    ("mse_loss_backward", (0.0, -HUGE, 0.0, 0), 0.0),
    ("mse_loss_backward", (HUGE, 1.0, 1.0, 0), 0.0),
    ("mse_loss_backward", (0.25, HUGE, 0.0, 0), HUGE / 2),
    ("soft_margin_loss_backward", (HUGE, 20.0, 100.0, 0), -0.0),
    ("soft_margin_loss_backward", (2.0, -20.0, 100.0, 0), -200.0),
    ("sigmoid_backward", (0.0, 1e200), 0.0),
)


@pytest.mark.parametrize(("name", "values", "right"), PRODUCTS)
def test_a_gradient_is_multiplied_from_the_small_end(
    name: str, values: tuple[float, ...], right: float
) -> None:
    count = len(stepwise(name).signature.arguments) - (values[-1:] == (0,))
    tensors = [v * ONE for v in values[:count]]
    assert stepwise(name)(*tensors, *values[count:]).item() == right


@pytest.mark.parametrize(
    ("x", "target", "right"),
    [
        (1.5, HUGE, INF),
        (HUGE, HUGE, -INF),
        (709.75, HUGE, HUGE * (math.log(HUGE) - 709.75)),
        (0.5, 0.0, 0.0),
        (-INF, 0.0, NAN),
    ],
)
def test_a_divergence_is_one_product(x: float, target: float, right: float) -> None:
    found = stepwise("kl_div")(x * ONE, target * ONE, 0, log_target=False)
    torch.testing.assert_close(found, right * ONE, rtol=1e-12, atol=0, equal_nan=True)


# At NaN, in whole vectors of PyTorch's: alone in the last elements it does otherwise.
@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("hardtanh_backward", (-1.0, 1.2)),
        ("hardshrink_backward", (0.6,)),
        ("softshrink_backward", (0.6,)),
        ("hardswish_backward", ()),
    ],
)
def test_a_gradient_at_nan(name: str, bounds: tuple[float, ...]) -> None:
    gradient = torch.full((64,), 0.5, dtype=torch.float64)
    x = torch.full_like(gradient, NAN)
    theirs = getattr(torch.ops.aten, name)(gradient, x, *bounds)
    found = stepwise(name)(gradient, x, *bounds)
    torch.testing.assert_close(found, theirs, rtol=0, atol=0, equal_nan=True)


LOSSES = sorted(e.name for e in NEWER if "reduction" in e.signature.by_name)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", [1, 2])
def test_a_reduction_is_not_pointwise(name: str, reduction: int) -> None:
    operator = stepwise(name)
    tensors = [0.5 * ONE for a in operator.signature.arguments if a.is_tensor]
    others = {"reduction": reduction, "beta": 1.0, "delta": 1.0}
    arguments = operator.signature.arguments
    values = {a.name: others[a.name] for a in arguments if a.name in others}
    if name.endswith("_backward") and reduction == 2:
        return  # the gradient of a sum is one of each element
    with pytest.raises(NotPointwise, match=r"mean|sum|numel"):
        operator(*tensors, *values.values())
