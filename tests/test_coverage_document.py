"""docs/coverage.md lists every entry by its class, with the checks that it passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import coverage

TEXT = (Path(__file__).parent.parent / "docs" / "coverage.md").read_text("utf-8")
ITEMS = coverage.entries()
# It has a kernel on GPUs alone, and the page was written without one.
UNCHECKED = {"_fused_dropout"}


def rows() -> dict[str, dict[str, str]]:
    lines = [line.strip("| ") for line in TEXT.splitlines() if line.startswith("| `")]
    split = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    width = len(coverage.HEAD)
    whole = [cells + [""] * (width - len(cells)) for cells in split if len(cells) > 3]
    return {
        cells[0].strip("`"): dict(zip(coverage.HEAD, cells, strict=True))
        for cells in whole
    }


def test_every_entry_is_listed_as_it_is_classed() -> None:
    found = {name: row["class"] for name, row in rows().items()}
    assert found == {item.verdict.name: item.verdict.kind for item in ITEMS}
    assert len(found) == 199
    assert "not_yet" not in found.values()


def test_what_runs_by_formulas_was_checked() -> None:
    for name, row in rows().items():
        ours = row["class"] in ("fused", "matrix", "composite")
        if ours and name not in UNCHECKED:
            assert row["checks"].startswith("v"), name
            assert row["dtypes"], name


def test_notes_are_there() -> None:
    numbers = {n for row in rows().values() for n in row["notes"].strip("| ").split()}
    known = {line.partition(".")[0] for line in TEXT.splitlines() if line[:1].isdigit()}
    assert numbers == known


def test_a_check_that_failed_has_no_letter() -> None:
    report = {
        "measures": {"value": {}, "first": {}, "jvp": {}},
        "failures": [{"kind": "first"}],
        "dtypes": ["float32", "int8", "int64"],
    }
    assert coverage.marks(report) == "vt"
    assert coverage.dtypes(report) == "f32 int"


def test_a_file_that_check_has_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    monkeypatch.setattr("sys.argv", ["coverage.py", str(wrong)])
    with pytest.raises(SystemExit) as stop:
        coverage.main()
    assert stop.value.code == 2
    assert "is not what `check --all --json` prints" in capsys.readouterr().err
