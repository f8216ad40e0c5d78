"""The command line: what it prints, for people and for programs; its exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from atentriton import catalogue, cli, commands
from atentriton.commands import _formulas, _stages, check, demo
from atentriton.reports import Failure, Measure, Report

ROOT = Path(__file__).resolve().parent.parent
KEYS = {"name", "class", "reason", "forward", "backward", "second", "jvp"}

THREE_ERRORS = """\
- name: sinh(Tensor self) -> Tensor
  self: grad * slef.cosh()
  result: auto_element_wise

- name: exp(Tensor self) -> Tensor
  self: grad * result
  result: auto_elementwise

- name: square(Tensr self) -> Tensor
  self: grad * 2
"""


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)


class Result:
    """What a run of the command line came to."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*argv: str) -> Result:
        try:
            status = cli.main(argv)
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = capsys.readouterr()
        return Result(status, out, err)

    return run


def run_process(*argv: str, **environment: str) -> Result:
    done = subprocess.run(
        [sys.executable, "-m", "atentriton", *argv],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
    )
    return Result(done.returncode, done.stdout, done.stderr)


# -- usage -----------------------------------------------------------------------------


def test_without_a_command_the_commands_are_shown(run: Any) -> None:
    result = run()
    assert result.status == 0
    for name in commands.NAMES:
        assert re.search(rf"^ +{name} ", result.out, re.MULTILINE)


@pytest.mark.parametrize("name", commands.NAMES)
def test_help_has_an_example(run: Any, name: str) -> None:
    result = run(name, "--help")
    assert result.status == 0
    assert f"example:\n  atentriton {name}" in result.out


def test_version(run: Any) -> None:
    assert run("--version").out.startswith("atentriton ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["covrage"], 'there is no command "covrage"; did you mean "coverage"?'),
        (["cov"], 'did you mean "coverage"?'),
        (["xyzzy"], f"there are {', '.join(commands.NAMES)}"),
        (["list", "--class", "fusd"], 'did you mean "fused"?'),
        (["list", "--grep", "("], "is not a pattern"),
        (["coverage", "--file", "nowhere.yaml"], 'no file "nowhere.yaml"'),
        (["show", "acoshh"], 'no operator "acoshh"; did you mean "acosh"?'),
        (["show", "add"], '"add" has several overloads: add.Scalar, add.Tensor'),
        (["show", "acosh", "--stage", "sorce"], 'did you mean "source"?'),
        (["show", "acosh", "--target", "sm90"], 'there is no target "sm90"'),
        (["show", "acosh", "--dtype", "flaot32"], 'did you mean "float32"?'),
        (["show", "acosh", "--set", "self"], "expected NAME=VALUE"),
        (["show", "clamp", "--set", "mim=1"], 'did you mean "min"?'),
        (["show", "clamp", "--set", "min=low"], "min is Scalar?, and cannot be 'low'"),
        (["show", "atan2", "--set", "other=3"], "other is the name of a dtype, and"),
        (["show", "acosh", "--stage", "ptx", "--target", "native"], "sm_90"),
        (["check", "nope"], 'did you mean "ne"?'),
        (["coverage", "--jso"], None),
    ],
)
def test_wrong_usage(run: Any, argv: list[str], message: str | None) -> None:
    result = run(*argv)
    if message is None:  # argparse takes an unambiguous beginning
        assert result.status == 0
        return
    assert result.status == 2
    assert message in result.err
    assert "Traceback" not in result.err


def test_a_process_gives_the_exit_status_and_no_colours() -> None:
    result = run_process("coverage", "--summary")
    assert result.status == 0, result.err
    assert "0 unparsed" in result.out
    assert "\x1b" not in result.out
    assert run_process("shw").status == 2


# -- coverage and list -----------------------------------------------------------------


def test_coverage_has_every_entry(run: Any) -> None:
    result = run("coverage", "--json")
    assert result.status == 0
    entries, summary = result.json["entries"], result.json["summary"]
    text = (ROOT / "derivatives.yaml").read_text(encoding="utf-8")
    names = re.findall(r"^- name: ([\w.]+)\(", text, re.MULTILINE)
    assert [e["name"] for e in entries] == names
    assert all(set(e) >= KEYS and e["reason"] for e in entries)
    assert {e["class"] for e in entries} <= set(_formulas.CLASSES)
    assert summary["entries"] == len(names)
    assert summary["unparsed"] == 0
    assert sum(summary["classes"].values()) == len(names)


def test_coverage_tells_the_parts_of_the_file(run: Any) -> None:
    summary = run("coverage", "--json").json["summary"]
    parts = summary["parts"]
    assert parts["operators"]["entries"] == 199
    assert sum(parts["operators"]["classes"].values()) == 199
    assert sum(part["entries"] for part in parts.values()) == summary["entries"]


def test_coverage_of_the_file_that_torch_has(run: Any) -> None:
    result = run("coverage", "--file", "torch", "--json")
    assert result.status == 0
    text = _formulas.torch_file().read_text(encoding="utf-8")
    summary = result.json["summary"]
    assert summary["entries"] == len(re.findall("^- name:", text, re.MULTILINE))
    assert summary["unparsed"] == 0
    assert not summary["parts"]


def test_coverage_can_be_narrowed(run: Any) -> None:
    found = run("coverage", "--class", "matrix", "--grep", "^mm", "--json").json
    assert [e["name"] for e in found["entries"]] == ["mm"]
    assert found["summary"]["entries"] > 199
    text = run("coverage", "--grep", "^acosh$").out
    assert re.search(
        r"^acosh +fused +fused +fused +fused +auto_element_wise", text, re.M
    )


def test_a_file_with_mistakes_shows_them_all(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(THREE_ERRORS, encoding="utf-8")
    result = run("coverage", "--file", str(path))
    assert result.status == 1
    assert "3 errors" in result.err
    for place in ("2:16", "7:11", "9:16"):
        assert f"{path}:{place}: error: " in result.err
    assert 'did you mean "self"?' in result.err

    result = run("coverage", "--file", str(path), "--json")
    assert result.status == 1
    found = result.json["errors"]
    assert [(e["line"], e["column"]) for e in found] == [(2, 16), (7, 11), (9, 16)]
    assert found[0]["hint"] == "self"
    assert all(e["file"] == str(path) and e["message"] for e in found)


def test_list(run: Any) -> None:
    found = run("list", "--json").json
    by_name = {item["name"]: item for item in found}
    assert by_name["mm"]["class"] == "matrix"
    assert by_name["acosh"]["signature"] == "acosh(Tensor self) -> Tensor"
    text = run("list", "--class", "view").out
    assert "alias" in text and "acosh" not in text


# -- show ------------------------------------------------------------------------------


def test_the_tour_goes_from_the_formula_to_the_source(run: Any) -> None:
    result = run("show", "acosh")
    assert result.status == 0
    parts = [
        "derivatives.yaml:",
        "- name: acosh(Tensor self) -> Tensor",
        "acosh(self: float32):",
        "acosh_backward(grad: float32, self: float32):",
        "acosh_backward_backward(",
        "acosh_jvp(self_t: float32, self: float32):",
        "acoshf(self)",
    ]
    places = [result.out.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("stage", "part"),
    [
        ("formula", "result: auto_element_wise"),
        ("ir", "acosh(self: float64)"),
        ("derive", "acosh_backward(grad: float64, self: float64)"),
        ("schedule", "acosh_backward(grad: float64, self: float64)"),
        ("source", "const double self = self_ptr[i];"),
    ],
)
def test_stages(run: Any, stage: str, part: str) -> None:
    result = run("show", "acosh", "--stage", stage, "--dtype", "float64")
    assert result.status == 0
    assert part in result.out
    found = run("show", "acosh", "--stage", stage, "--dtype", "float64", "--json").json
    assert set(found["stages"]) == {stage}
    assert part in str(found["stages"][stage])


def test_the_source_for_a_gpu(run: Any) -> None:
    pytest.importorskip("triton")
    text = run("show", "acosh", "--stage", "source", "--target", "sm_90").out
    assert "@triton.jit" in text and "libdevice.acosh(self)" in text


@pytest.mark.parametrize(
    ("target", "part"), [("sm_80", ".target sm_80"), ("gfx942", "amdgcn-amd-amdhsa")]
)
def test_assembly(run: Any, target: str, part: str) -> None:
    pytest.importorskip("triton")
    text = run("show", "neg", "--stage", "ptx", "--target", target).out
    assert part in text


def test_show_as_json(run: Any) -> None:
    found = run("show", "torch.add.Tensor", "--json").json
    assert found["name"] == "add.Tensor"
    assert found["class"] == "fused"
    assert found["line"] > 0
    assert set(found["stages"]) == {"formula", "ir", "derive", "schedule", "source"}
    assert set(found["stages"]["source"]) == set(_stages.PROGRAMS)


def test_settings_shape_the_programs(run: Any) -> None:
    argv = ("show", "div.Tensor_mode", "--stage", "derive")
    assert "div(" in run(*argv).out
    text = run(*argv, "--set", "rounding_mode=floor").out
    assert "div(" not in text
    assert "no second: every gradient is zero" in text


def test_a_setting_shows_what_a_call_with_it_runs(run: Any) -> None:
    argv = ("show", "pow.Tensor_Scalar", "--stage", "source", "--set")
    value = run(*argv, "exponent=6").out.partition("source: the backward")[0]
    assert "powf(" not in value and "const float mul_" in value
    value = run(*argv, "exponent=2.5").out.partition("source: the backward")[0]
    assert "powf(self, exponent" in value
    text = run("show", "add.Tensor", "--stage", "ir", "--set", "alpha=1").out
    assert "alpha: float" not in text
    text = run("show", "add.Tensor", "--stage", "ir", "--set", "other=float64").out
    assert "other: float64" in text


def test_operators_without_kernels_say_what_runs_instead(run: Any) -> None:
    text = run("show", "mm").out
    assert "matrix: matrix products through torch" in text
    assert "no kernel of our own" in text
    text = run("show", "cholesky").out
    assert "composite: torch's value, the formulas over whole tensors" in text


def test_helpers_are_shown_with_the_formulas(run: Any) -> None:
    text = run("show", "mul.Tensor", "--stage", "formula").out
    assert "fuser/helpers.yaml:" in text
    assert "- name: mul_tensor_backward(" in text


# -- check, doctor, demo ---------------------------------------------------------------


def test_check(run: Any) -> None:
    result = run("check", "neg", "alias", "--quick", "--json")
    assert result.status == 0
    neg, alias = result.json["ops"]
    assert neg["passed"] > 0 and neg["failed"] == 0 and neg["failures"] == []
    assert neg["name"] == "neg" and neg["ok"] and neg["runs"] == "kernels"
    assert set(neg["measures"]) == {"value", "first", "second", "jvp"}
    assert alias["runs"] == "torch"
    text = run("check", "neg", "alias", "--quick").out
    assert re.search(r"✓ +neg +0\.0e\+00", text)
    assert "torch's own" in text


def test_a_base_name_means_all_overloads(run: Any) -> None:
    found = run("check", "lt_", "--quick", "--json").json
    names = [report["name"] for report in found["ops"]]
    assert names == ["lt_.Scalar", "lt_.Tensor"]


def test_with_no_names_every_operator_is_checked() -> None:
    found = check.chosen([])
    every = {name for names in catalogue.names().values() for name in names}
    idle = {n for n in every if catalogue.card_of(n).kind == "not_yet"}
    assert sorted(found) == sorted(every - idle)
    assert {"acosh", "lt_.Scalar", "special_digamma", "kl_div"} <= set(found)


def test_all_takes_no_names(run: Any) -> None:
    result = run("check", "neg", "--all")
    assert result.status == 2
    assert "--all takes no names" in result.err


def test_a_failed_check_fails(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(name: str, quick: bool) -> Report:
        failure = Failure("first", "float64()", "got 1, expected 2")
        measure = Measure(1, 1.0, 0.5, 1e15)
        return Report(name, "kernels", "", {"first": measure}, [failure])

    monkeypatch.setattr("atentriton.checking.check", wrong)
    result = run("check", "neg")
    assert result.status == 1
    assert "✗" in result.out and "got 1, expected 2" in result.out
    assert "1 failed" in result.out


def test_doctor(run: Any) -> None:
    result = run("doctor", "--json")
    found = result.json
    assert result.status == 0, found["errors"]
    assert set(found["versions"]) >= {"atentriton", "python", "torch", "triton"}
    assert found["devices"]["threads"] >= 1
    assert found["cache"]["mode"] == "0700"
    assert set(found["runs"]) == {"cpu", "cuda"}
    text = run("doctor").out
    assert "what runs" in text and found["cache"]["folder"] in text


def test_doctor_says_what_to_install(tmp_path: Path) -> None:
    result = run_process("doctor", "--json", ATENTRITON_CC="no-such-compiler")
    found = result.json
    assert result.status == 0
    assert found["compiler"] is None
    assert "no-such-compiler" in found["warnings"][0]
    assert "install GCC or Clang" in found["warnings"][0]
    assert found["runs"]["cpu"].startswith("the reference")


def test_doctor_sees_an_unsafe_cache(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    result = run_process("doctor", ATENTRITON_CACHE_DIR=str(tmp_path))
    assert result.status == 1
    assert "others may write to it" in result.out
    assert "Traceback" not in result.err


def test_demo(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SHOWN", ("acosh",))
    monkeypatch.setattr(demo, "GPUS", ())
    monkeypatch.setattr(demo, "CHECKED", "neg mm")
    monkeypatch.setattr(demo, "TIMED", "neg")
    monkeypatch.setattr(demo, "ELEMENTS", 1000)
    result = run("demo", "--json")
    assert result.status == 0
    found = result.json
    assert found["coverage"]["parts"]["operators"]["entries"] == 199
    assert [report["name"] for report in found["checks"]] == ["neg", "mm"]
    assert {row["mode"] for row in found["speed"]} == {"forward", "backward", "second"}
    text = run("demo").out
    for part in ("Coverage", "From a formula", "Against PyTorch", "Speed"):
        assert part in text


def test_interrupting_is_quiet(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(args: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "run", interrupt)
    assert run("check").status == cli.INTERRUPTED


def test_a_function_that_nobody_knows(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "typo.yaml"
    path.write_text("- name: foo(Tensor self) -> Tensor\n  self: grad * self.coss()\n")
    assert cli.main(["coverage", "--file", str(path)]) == 1
    said = capsys.readouterr()
    assert 'typo.yaml:2:21: error: unknown method "coss"' in said.out + said.err
    assert "^~~~" in said.out + said.err
