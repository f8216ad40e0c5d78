"""docs/audit.md lists what tools/audit.py finds.

PyTorch is still wrong there, and where a better formula stands beside, ours is right.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from atentriton import samples
from fuser.pipeline import default_compiler
from tools.audit_derivatives import theirs
from tools.audit_findings import Finding, audit, by_text, number
from tools.audit_judging import Truth, exactly, truth
from tools.audit_page import PAGE, load, page
from tools.audit_points import BUFFER, Call
from tools.audit_slopes import Undefined, slope, value
from tools.audit_values import VALUES

DOCUMENT = load()
SAME_TORCH = torch.__version__.startswith(DOCUMENT.torch.rpartition(".")[0])
MPF, MPC = mpmath.mpf, mpmath.mpc


def _label(finding: Finding) -> str:
    return f"{finding.entry}-{finding.mode}-{finding.argument}-{finding.kind}"


def _call(finding: Finding) -> tuple[Call, int]:
    """The point as tensors of one element, and which argument is meant."""
    arguments = default_compiler().entries[finding.entry].signature.arguments
    values: list[Any] = []
    for a in arguments:
        given = number(finding.inputs[a.name])
        if a.name in finding.dtypes:
            dtype = getattr(torch, finding.dtypes[a.name])
            given = torch.tensor([given], dtype=dtype)
        values.append(given)
    names = [a.name for a in arguments]
    places = [
        i
        for i, name in enumerate(names)
        if finding.dtypes.get(name, "bool") != "bool" and name != BUFFER
    ]
    return Call(tuple(values), tuple(places)), names.index(finding.argument)


def test_the_page_shows_the_data() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(DOCUMENT)


def test_every_pointwise_entry_is_asked_or_left_out_for_a_reason() -> None:
    left = [name for names in DOCUMENT.left.values() for name in names]
    assert DOCUMENT.asked + len(left) >= 170
    assert not set(left) & VALUES.keys()


@pytest.mark.skipif(not SAME_TORCH, reason="the list is of another release")
@pytest.mark.parametrize("finding", DOCUMENT.findings, ids=_label)
def test_what_is_found_is_so(finding: Finding) -> None:
    call, place = _call(finding)
    numbers = call.numbers(0)
    signature = default_compiler().entries[finding.entry].signature
    operator = theirs(signature)
    got = operator.derivative(call, place, finding.mode).item()
    true = truth(finding.entry, numbers, call, place, finding.mode, [got])
    assert true is not None
    assert complex(true.right) == pytest.approx(
        complex(number(finding.right)), rel=1e-12, abs=0
    )
    assert true.verdict(got) is not None
    own = by_text(default_compiler(), finding)
    assert bool(finding.better) == finding.ours == (true.verdict(complex(own)) is None)


@pytest.mark.skipif(not SAME_TORCH, reason="the list is of another release")
@pytest.mark.parametrize(
    ("name", "argument", "kind"),
    [
        ("asinh", "self", "0"),
        ("celu", "self", "wrong"),
        ("frexp.Tensor", "self", "infinite"),
    ],
)
def test_a_quick_audit_finds_it(name: str, argument: str, kind: str) -> None:
    result = audit(name, thorough=False)
    assert (argument, kind) in {(f.argument, f.kind) for f in result.findings}
    assert result.mistakes == []


def test_an_audit_finds_nothing_where_nothing_is_wrong() -> None:
    result = audit("exp", thorough=False)
    assert result.points > 50
    assert result.findings == []


# -- right derivatives -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "right"),
    [
        ("sin", (1e300,), lambda: mpmath.cos(MPF(1e300))),
        ("atan", (1e150,), lambda: 1 / (1 + MPF(1e150) ** 2)),
        ("log", (1e-300,), lambda: 1 / MPF(1e-300)),
        ("tanh", (20.0,), lambda: mpmath.sech(20) ** 2),
        ("relu", (-2.0,), lambda: MPF(0)),
        ("igamma", (1.0, 0.0), lambda: MPF(1)),
        ("asin", (3 + 2j,), lambda: 1 / mpmath.sqrt(1 - MPC(3 + 2j) ** 2)),
    ],
)
def test_slopes_are_those_of_the_calculus(
    name: str, args: tuple[complex, ...], right: Any
) -> None:
    given = [MPC(a) if isinstance(a, complex) else MPF(a) for a in args]
    found = slope(VALUES[name], given, len(given) - 1)
    with mpmath.workdps(700):
        wanted = right()
    assert abs(found - wanted) <= 1e-14 * abs(wanted)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("abs", (0.0,)),
        ("hypot", (0.0, 0.0)),
        ("sqrt", (0.0,)),
        ("maximum", (1.0, 1.0)),
        ("log", (-1.0,)),
        ("floor", (2.0,)),
        ("sqrt", (-1 + 0j,)),
    ],
)
def test_kinks_steps_and_cuts_have_no_slope(
    name: str, args: tuple[complex, ...]
) -> None:
    given = [MPC(a) if isinstance(a, complex) else MPF(a) for a in args]
    with pytest.raises(Undefined):
        slope(VALUES[name], given, 0)


def test_a_verdict_allows_what_the_point_does_not_decide() -> None:
    about = torch.finfo(torch.float64)
    true = Truth(MPF(2), 1e-10, about)
    assert true.verdict(2.0 + 1e-10) is None
    assert true.verdict(2.0 + 1e-9) == "wrong"
    assert true.verdict(0.0) == "0"
    assert true.verdict(float("nan")) == "NaN"
    assert true.verdict(float("inf")) == "infinite"
    zero = Truth(MPF(0), 1e-10, about)
    assert zero.verdict(0.0) is None
    assert zero.verdict(1.0) == "wrong"


@pytest.mark.parametrize("name", sorted(VALUES))
def test_values_are_those_of_pytorch(name: str) -> None:
    """So that the derivatives are those of the same functions."""
    signature = default_compiler().entries[name].signature
    compared = 0
    for way in samples.settings(signature):
        given = samples.arguments(signature, torch.float64, way)
        values = [v.flatten() if isinstance(v, Tensor) else v for v in given]
        for i, argument in enumerate(signature.arguments):
            if argument.name == BUFFER:
                values[i] = (-values[i - 1].abs()).exp()
        call = Call(tuple(values), ())
        found = theirs(signature)(values)
        for i, result in enumerate(torch.stack(found).sum(0).tolist()):
            numbers = call.numbers(i)
            with suppress(Undefined):
                right = value(VALUES[name], exactly(numbers, call))
                assert result == pytest.approx(float(right), rel=1e-7), numbers
                compared += 1
    assert compared > 10
