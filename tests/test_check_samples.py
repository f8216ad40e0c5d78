"""What operators are checked on besides samples of ours: torch's samples, and edges."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton import catalogue, edges, exceptions, opinfos, samples
from atentriton.programs import compiler


def signature(name: str) -> Any:
    return compiler().operator(name).signature


@pytest.mark.parametrize(
    "name",
    [
        "add.Tensor",
        "masked_fill_.Scalar",
        "softplus_backward",
        "special_i0e",
    ],
)
def test_torchs_samples_are_found(name: str) -> None:
    given = signature(name)
    dtypes = (torch.float64, torch.int64)
    found = list(opinfos.calls(given, catalogue.aten(name), dtypes))
    assert found
    for _, values in found:
        assert len(values) == len(given.arguments)
    again = list(opinfos.calls(given, catalogue.aten(name), dtypes))
    for (_, one), (_, two) in zip(found, again, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)


def test_every_edge_meets_every_other() -> None:
    given = signature("add.Tensor")
    values = samples.arguments(given, torch.float32)
    first, second, _ = edges.arguments(given, values, torch.float32) or ()
    every = edges.edges(torch.float32)
    assert first.numel() == second.numel() == every.numel() ** 2
    assert {0.0, math.inf, -math.inf} <= set(every.tolist())
    assert bool(((every > 0) & (every < torch.finfo(torch.float32).tiny)).any())


@pytest.mark.parametrize("name", edges.FRACTIONS)
def test_the_edges_of_fractions_are_fractions(name: str) -> None:
    given = signature(name)
    names = edges.FRACTIONS[name]
    values = samples.arguments(given, torch.float64, {"weight": None})
    found = edges.arguments(given, values, torch.float64) or ()
    taken = {a.name: v for a, v in zip(given.arguments, found, strict=True)}
    for fraction in names:
        assert {0.0, 5e-324, 0.5} <= set(taken[fraction].tolist())
        assert bool(((taken[fraction] >= 0) & (taken[fraction] <= 1)).all())
    others = [v for n, v in taken.items() if n not in names and isinstance(v, Tensor)]
    assert all(bool(v.isnan().any()) for v in others)


@pytest.mark.parametrize(
    ("got", "want", "right"),
    [
        (math.nan, math.nan, True),
        (1.0, math.nan, False),
        (math.inf, 1e39, True),
        (math.inf, 1e38, False),
        (1e-40, 0.0, True),
        (1e-30, 1.001e-30, False),
    ],
)
def test_edges_are_compared_one_by_one(got: float, want: float, right: bool) -> None:
    huge = torch.tensor([1e38, got])
    wanted = torch.tensor([1e38, want], dtype=torch.float64)
    assert edges.wrong(huge, [wanted]) == ([] if right else [1])


@pytest.mark.parametrize("name", ["special_psi", "special_multigammaln", "digamma"])
def test_an_alias_is_held_to_what_its_operator_is(name: str) -> None:
    given = signature(name)
    drawn = samples.arguments(given, torch.float64)[0]
    assert isinstance(drawn, Tensor) and float(drawn.min()) > 0.3
    assert exceptions.inaccuracy(name) == exceptions.INACCURATE["digamma"]
    assert exceptions.inaccuracy("special_erf") is None


def test_an_exception_holds_for_the_aliases_of_its_operators() -> None:
    row = exceptions.Allowance("igamma", "value", "got", "only a test")
    assert row.covers("igamma", "value", "got")
    assert row.covers("special_gammainc", "value", "got")
    assert not row.covers("special_gammaincc", "value", "got")


def test_exceptions_have_reasons_and_name_operators() -> None:
    for exception in exceptions.EXCEPTIONS:
        assert exception.reason
        for name in exception.operators.split():
            assert "*" in name or catalogue.aten(name) is not None, name
