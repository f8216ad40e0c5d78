"""The verification engine: what it compares, and that it finds what is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton import (
    catalogue,
    checking,
    checks,
    exceptions,
    operators,
    samples,
    trials,
    workers,
)
from atentriton.comparing import compare, mismatch
from atentriton.programs import compiler
from atentriton.reports import Measure
from atentriton.samples import ARRANGEMENTS, CONTIGUOUS, Arrangement

FUSED = sorted(
    name
    for name in compiler().entries
    if name in catalogue.valued() and catalogue.aten(name) is not None
)
COMPLEX_ALONE = ("_conj", "imag")
BY_NAME = {a.name: a for a in ARRANGEMENTS}


def signature(name: str) -> Any:
    return compiler().operator(name).signature


# -- samples ---------------------------------------------------------------------------


def test_samples_are_the_same_in_every_run() -> None:
    acosh = signature("acosh")
    torch.manual_seed(1)
    (first,) = samples.arguments(acosh, torch.float64)
    torch.manual_seed(2)
    (second,) = samples.arguments(acosh, torch.float64)
    assert torch.equal(first, second)
    assert first.min() > 1.1
    assert not torch.equal(first, samples.arguments(acosh, torch.float64, seed=1)[0])


@pytest.mark.parametrize("name", FUSED)
def test_torch_takes_every_sample(name: str) -> None:
    given = signature(name)
    operator = catalogue.aten(name)
    dtype = torch.complex64 if name in COMPLEX_ALONE else torch.float32
    dtype = torch.int64 if name.startswith("bitwise") else dtype
    for setting in samples.settings(given):
        values = samples.arguments(given, dtype, setting)
        pairs = list(zip(given.arguments, values, strict=True))
        args = [v for a, v in pairs if not a.kwarg_only]
        named = {a.name: v for a, v in pairs if a.kwarg_only}
        result = operator(*args, **named)
        for item in result if isinstance(result, tuple | list) else (result,):
            assert torch.isfinite(item).all()


def test_arrangements_lie_as_they_say() -> None:
    def first(name: str) -> Tensor:
        return samples.arguments(
            signature("add.Tensor"), torch.float32, None, BY_NAME[name]
        )[0]

    assert first("transposed").stride() == (1, 4)
    assert first("every other element").stride() == (12, 2)
    assert first("expanded, stride 0").stride() == (0, 1)
    assert first("channels last").is_contiguous(memory_format=torch.channels_last)
    assert first("without dimensions").shape == ()
    assert first("empty").numel() == 0
    assert first("misaligned").data_ptr() % 16 != 0


def test_values_do_not_depend_on_the_arrangement() -> None:
    given = signature("add.Tensor")
    plain = samples.arguments(given, torch.float64)
    for name in ("transposed", "every other element", "misaligned"):
        laid_out = samples.arguments(given, torch.float64, None, BY_NAME[name])
        assert torch.equal(plain[1], laid_out[1])


def test_numbers_fit_the_dtype() -> None:
    def alpha(dtype: torch.dtype) -> Any:
        return samples.arguments(signature("add.Tensor"), dtype, {"alpha": 2.5})[2]

    assert alpha(torch.float32) == 2.5
    assert alpha(torch.int64) == 2
    assert alpha(torch.complex64) == 2.5 + 0.5j


def test_arguments_nobody_knows_are_reported() -> None:
    with pytest.raises(NotImplementedError, match="no values are known for"):
        samples.arguments(signature("cat"), torch.float32)


# -- comparing -------------------------------------------------------------------------


def test_errors_are_relative_to_the_size_of_what_is_compared() -> None:
    want = torch.tensor([100.0, 0.0, -100.0], dtype=torch.float64)
    found = compare(want + torch.tensor([0.0, 1e-3, 0.0]), want)
    assert found.absolute == pytest.approx(1e-3)
    assert found.relative == pytest.approx(1e-3 / (200 / 3))
    assert found.place == (1,)


@pytest.mark.parametrize(
    ("got", "want", "equal"),
    [
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (1.0, math.nan, False),
        (math.nan, 1.0, False),
        (1.0, math.inf, False),
    ],
)
def test_special_values(got: float, want: float, equal: bool) -> None:
    found = compare(torch.tensor([1.0, got]), torch.tensor([1.0, want]))
    assert found.relative == (0 if equal else math.inf)


def test_integers_are_equal_or_not() -> None:
    one, two = torch.tensor([1, 2]), torch.tensor([1, 3])
    assert compare(one, one).relative == 0
    assert compare(one, two).relative == math.inf
    assert compare(one[:0], two[:0]).relative == 0


def test_a_half_is_compared_with_the_wide_result() -> None:
    third = torch.tensor([1 / 3], dtype=torch.float64)
    found = compare(third.bfloat16(), third)
    assert 0 < found.relative < found.eps


def test_mismatches_are_named() -> None:
    x = torch.zeros(2, 3)
    double, transposed = x.double(), torch.zeros(3, 2).mT
    assert mismatch(x, x) is None
    assert mismatch(x, double) == "dtype torch.float32, torch has torch.float64"
    assert mismatch(x, double, dtype=False) is None
    assert mismatch(x, x.mT) == "shape [2, 3], torch has [3, 2]"
    assert mismatch(x, transposed) == "strides (3, 1), torch has (1, 2)"
    assert mismatch(x, transposed, strides=False) is None


# -- derivatives -----------------------------------------------------------------------


def test_second_derivatives_by_leaves_and_cotangents() -> None:
    x = torch.tensor([0.5, 2.0], dtype=torch.float64)

    def cube(values: Any) -> tuple[Tensor]:
        return (values[0] ** 3,)

    (weight,) = trials._weights([x], 0)
    (again,) = trials._weights([x], 10)
    by_leaf, by_cotangent = trials.second(cube, [x], [0]) or ()
    torch.testing.assert_close(by_leaf, again * weight * 6 * x)
    torch.testing.assert_close(by_cotangent, again * 3 * x**2)


def test_tangents_in_both_ways() -> None:
    x = torch.tensor([0.5, 2.0], dtype=torch.complex128)

    def function(values: Any) -> tuple[Tensor, Tensor]:
        return values[0] * values[1], values[0].exp()

    values = [x, x + 1j]
    forward = trials.tangents(function, values, [0, 1])
    backward = trials.tangents_by_backward(function, values, [0, 1])
    assert forward is not None and backward is not None
    for a, b in zip(forward, backward, strict=True):
        # The backward of a complex function is conjugate-linear in its cotangents.
        torch.testing.assert_close(a.real, b.real)


# -- the engine ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["acosh", "lerp.Tensor", "masked_fill_.Scalar"])
def test_operators_pass(name: str) -> None:
    report = checking.check(name, quick=True)
    assert report.ok, report.failures
    assert report.runs == "kernels"
    assert {"value", "first", "second", "jvp"} <= set(report.measures)
    assert report.measures["value"].relative < 1e-14
    json.dumps(report.as_json())


def test_a_full_check_covers_dtypes_maps_and_memory() -> None:
    report = checking.check("sub.Tensor")
    assert report.ok, report.failures
    assert set(report.measures) == set(checking.KINDS)
    assert report.opinfo > 11
    assert report.passed > 150 and not report.excepted
    assert report.measures["value"].cases > 2 * 11
    assert report.measures["layouts"].cases >= len(ARRANGEMENTS)


def test_what_does_not_run_is_said() -> None:
    assert checking.check("mm", quick=True).runs == "formulas"
    assert checking.check("alias", quick=True).runs == "torch"
    assert checking.check("cumsum", quick=True).runs == "formulas"
    assert "view" in checking.check("alias").reason


def test_without_torchs_operator_differences_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checking.catalogue, "aten", lambda name: None)
    report = checking.check("acosh")
    assert report.ok, report.failures
    assert set(report.measures) == {"first", "second", "jvp"}
    assert "not in torch" in report.note

    wrong = Wrong("exp", WrongGradient.apply)
    monkeypatch.setattr(checking.operators, "make", lambda name: wrong)
    report = checking.check("exp")
    assert {f.kind for f in report.failures} == {"first", "jvp"}


class Wrong(operators.Overload):
    """An operator that computes something else than its name says."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__(name, signature(name))
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.saved_tensors[0].exp() * 1.01

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        raise ValueError("not thought of")


@pytest.mark.parametrize(
    ("function", "kinds", "message"),
    [
        (lambda x: x.exp() * (1 + 1e-6), {"value"}, "eps"),
        (lambda x: x.exp().to(torch.complex128), {"value"}, "dtype torch.complex128"),
        (lambda x: x.exp().repeat(2, 1), {"value"}, "shape [8, 6]"),
        (lambda x: x.exp().mT.contiguous().mT, {"value"}, "strides (1, 4)"),
        (lambda x: x.detach().exp(), {"first"}, "results, torch has 1"),
        (WrongGradient.apply, {"first", "second", "jvp"}, "eps"),
    ],
)
def test_mistakes_are_found(
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., Any],
    kinds: set[str],
    message: str,
) -> None:
    wrong = Wrong("exp", function)
    monkeypatch.setattr(checking.operators, "make", lambda name: wrong)
    report = checking.check("exp", quick=True)
    assert kinds <= {f.kind for f in report.failures}
    assert any(message in f.message for f in report.failures), report.failures
    assert all("float64" in f.case or "complex128" in f.case for f in report.failures)


@pytest.mark.parametrize(
    ("where", "function"),
    [
        ("edges", lambda x: torch.where(x == -torch.inf, torch.nan, x.exp())),
        ("edges", lambda x: torch.where(x.abs() < 1e-38, 1.0 + 1e-3, x.exp())),
        ("gradcheck", WrongGradient.apply),
        ("OpInfo", lambda x: torch.where(x.abs() > 3, x, x.exp())),
    ],
)
def test_full_checks_find_what_samples_do_not(
    monkeypatch: pytest.MonkeyPatch, where: str, function: Callable[..., Any]
) -> None:
    monkeypatch.setattr(checking.operators, "make", lambda name: Wrong("exp", function))
    report = checking.check("exp")
    assert any(where in f"{f.kind} {f.case}" for f in report.failures)
    assert report.as_json()["failed"] == len(report.failures) > 0


# -- exceptions, processes -------------------------------------------------------------


def test_an_exception_is_counted_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    row = exceptions.Allowance("exp", "value", "dtype", "only a test")
    monkeypatch.setattr(exceptions, "EXCEPTIONS", (row,))
    wrong = Wrong("exp", lambda x: x.exp().to(torch.complex128))
    monkeypatch.setattr(checking.operators, "make", lambda name: wrong)
    report = checking.check("exp", quick=True)
    assert report.excepted["only a test"] > 0
    assert all(f.kind != "value" for f in report.failures)


def test_processes_report_in_order() -> None:
    finished: list[str] = []
    names = ["neg", "alias"]
    found = list(workers.checked(names, True, 2, finished.append))
    assert [report.name for report in found] == names
    assert sorted(finished) == sorted(names)
    assert all(report.ok for report in found)


def test_a_failure_shows_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(x: Tensor) -> Tensor:
        return torch.where(x > 2.5, x, x.exp())

    monkeypatch.setattr(checking.operators, "make", lambda name: Wrong("exp", wrong))
    failure = checking.check("exp", quick=True).failures[0]
    (x,) = samples.arguments(signature("exp"), torch.float64, None, CONTIGUOUS)
    assert f"arguments {x.max().item()}" in failure.message


def test_refusing_what_torch_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """An in-place operator has to refuse a tensor whose elements share memory."""

    def lenient(x: Tensor, mask: Tensor, value: Any) -> Tensor:
        return x.masked_fill(mask, value).to(x.dtype)

    wrong = Wrong("masked_fill_.Scalar", lenient)
    monkeypatch.setattr(checking.operators, "make", lambda name: wrong)
    report = checking.Report("masked_fill_.Scalar", "kernels")
    check = checks.Check(report, wrong, _refuse, None)
    values = samples.arguments(wrong.signature, torch.float32)
    case = check.cases.case(values, torch.float32, "")
    check.layout(case)
    assert report.failures[0].message == "torch refuses this, and it does not"


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("no")


def test_measures_keep_the_largest() -> None:
    measure = Measure()
    for error in (1e-3, 1e-5):
        want = torch.ones(3, dtype=torch.float64)
        measure.add(compare(want + error, want))
    single = torch.ones(3)
    measure.add(compare(single + 0.5, single))
    assert measure.cases == 3
    assert measure.relative == pytest.approx(1e-3)
    assert measure.absolute == pytest.approx(0.5)
    assert measure.eps > 1e9


def test_one_element_of_an_arrangement_is_shown() -> None:
    arrangement = Arrangement("one", ((1,),))
    values = samples.arguments(signature("exp"), torch.float64, None, arrangement)
    found = compare(values[0] + 1, values[0])
    assert str(values[0].item()) in found.describe(values, 0.0)
