"""PyTorch's own file: every entry has a class and a reason, and what runs is right."""

from __future__ import annotations

import pytest
import torch

import atentriton
from atentriton.commands._formulas import items, torch_file
from atentriton.reports import Report
from tests import foreign

# At least as many entries of the file of PyTorch 2.13 pass, and at most as many do not
# run. Of the others most are for devices and layouts that OpInfo does not cover here.
RELEASE = "2.13"
FEWEST = 200
MOST_NOT_YET = 33
THIS_RELEASE = pytest.mark.skipif(
    not torch.__version__.startswith(RELEASE),
    reason="the numbers are of another release",
)

# Some themes of helpers, by operators that the database has a function named after.
SAMPLE = ("prod.dim_int", "std.correction", "stack", "linalg_qr", "take", "polar")


def test_every_entry_runs_or_has_a_reason() -> None:
    found = items(torch_file())
    lacking = [i.verdict for i in found if i.verdict.kind == "not_yet"]
    for verdict in lacking:
        assert verdict.reason.startswith("calls ")
        assert verdict.reason.endswith("PyTorch has in C++ alone")
    if torch.__version__.startswith(RELEASE):
        assert len(lacking) <= MOST_NOT_YET


@pytest.mark.parametrize("name", SAMPLE)
def test_an_entry_gives_pytorchs_derivatives(name: str) -> None:
    report = _trial(name)
    assert report.passed and report.opinfo
    assert report.ok, report.failures[0]


@pytest.mark.slow
@THIS_RELEASE
def test_as_many_entries_run_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    reports = [_trial(name) for name in foreign.entries()]
    running = [r for r in reports if r.passed]
    passing = [r.name for r in running if r.ok]
    with capsys.disabled():
        print(
            f"\n{len(running)} of {len(reports)} entries of PyTorch's file run, "
            f"{len(passing)} pass OpInfo"
        )
    assert not [r.name for r in running if not r.ok]
    assert len(passing) >= FEWEST


def _trial(name: str) -> Report:
    with atentriton.backend("reference"):  # kernels have tests of their own
        return foreign.trial(name)
