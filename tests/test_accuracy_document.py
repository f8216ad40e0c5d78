"""docs/accuracy.md lists what tools/accuracy.py measures, and marks what exceeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuser.dtypes import DType, float32, float64
from tools.accuracy import Row, cells, measure, number, page
from tools.accuracy_functions import FAMILIES, FUNCTIONS, NARROW, WIDE, Function
from tools.accuracy_plots import file_name

DOCS = Path(__file__).parent.parent / "docs"
TEXT = (DOCS / "accuracy.md").read_text(encoding="utf-8")
HEAD = ["function", "bound", "dtype", "worst k", "at", "PyTorch's worst k"]


def _rows(text: str) -> dict[tuple[str, str], dict[str, str]]:
    """The lines of the tables, by function and dtype."""
    lines = [line for line in text.splitlines() if line.startswith("| [`")]
    split = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    rows = [dict(zip(HEAD, cells, strict=True)) for cells in split]
    return {(row["function"], row["dtype"]): row for row in rows}


ROWS = _rows(TEXT)
LINKS = {f.title: f"[`{f.title}`](accuracy/{file_name(f)})" for f in FUNCTIONS}


def test_every_function_is_listed_in_both_dtypes() -> None:
    known = {(link, d) for link in LINKS.values() for d in ("float32", "float64")}
    assert ROWS.keys() == known
    assert len(LINKS) == len(FUNCTIONS)
    headings = [line[3:] for line in TEXT.splitlines() if line.startswith("## ")]
    assert headings == list(FAMILIES)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.title)
def test_a_row_keeps_its_bound_or_is_marked(function: Function) -> None:
    title, bound = function.title, function.bound
    assert bound in (NARROW, WIDE)
    for dtype in ("float32", "float64"):
        row = ROWS[LINKS[title], dtype]
        assert row["bound"] == str(bound)
        worst, _, mark = row["worst k"].partition(" ")
        k = float(worst.strip("*").replace("∞", "inf"))
        assert (k > bound) == (mark == "exceeds"), row
        assert (f"- `{title}` in {dtype}" in TEXT) == (mark == "exceeds")


def test_every_function_has_a_picture_and_they_are_small() -> None:
    pictures = list((DOCS / "accuracy").glob("*.png"))
    assert {p.name for p in pictures} == {file_name(f) for f in FUNCTIONS}
    assert sum(p.stat().st_size for p in pictures) < 2_000_000


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_what_is_measured_is_what_is_written(dtype: DType) -> None:
    (exp,) = (f for f in FUNCTIONS if f.name == "exp")
    row = measure(exp, dtype, 40)
    assert not row.exceeds
    assert row.worst.error == max(row.ours)
    assert row.worst.point in row.points
    assert number(row.worst.error) in page([row])


def test_what_exceeds_is_marked() -> None:
    (exp,) = (f for f in FUNCTIONS if f.name == "exp")
    row = Row(exp, float32, [(0.0,), (1.0,)], [0.5, 5.0], [0.25, float("inf")])
    assert cells(row) == ["float32", "**5.00** exceeds", "1", "∞"]
    assert "- `exp` in float32" in page([row])
