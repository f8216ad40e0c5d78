"""`atentriton cache` and `atentriton warm`: what is kept, and how to have it early."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atentriton import cli
from atentriton.cache import Cache, default_cache
from atentriton.commands import cache, warm
from atentriton.commands.warm import Warmed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("ATENTRITON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*argv: str) -> tuple[int, str, str]:
        try:
            status = cli.main(argv)
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def write(text: str) -> Any:
    return lambda path: path.write_text(text)


def filled() -> Cache:
    kept = default_cache()
    kept.build("kernel", ".so", write("x" * 1000))
    kept.text("int f;", ".c")
    kept.text("def f(): ...", ".py")
    kept.build("facts", ".json", write("{}"))
    for number, arch in enumerate((90, "gfx942")):
        place = kept.of_triton / f"FOLDER{number}"
        place.mkdir(parents=True)
        (place / "f.json").write_text(json.dumps({"target": {"arch": arch}}))
        (place / "__grp__f.json").write_text("{}")
        (place / "f.code").write_bytes(b"123")
    return kept


def test_info(folder: Path, run: Any) -> None:
    filled()
    status, out, _ = run("cache", "info", "--json")
    found = json.loads(out)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert status == 0
    assert found["folder"] == str(folder)
    assert found["entries"] == len(files)
    assert found["bytes"] == sum(path.stat().st_size for path in files)
    assert found["targets"]["native"] == {"kernels": 1, "bytes": 1000}
    assert found["targets"]["sm_90"]["kernels"] == 1
    assert found["targets"]["gfx942"]["kernels"] == 1
    assert found["sources"]["files"] == 2 and found["records"]["files"] == 1
    _, text, _ = run("cache", "info")
    assert f"{folder}: {len(files)} files" in text
    assert "kernels, native" in text and "kernels, sm_90" in text


def test_info_of_an_empty_cache(folder: Path, run: Any) -> None:
    status, out, _ = run("cache", "info", "--json")
    assert status == 0
    assert json.loads(out)["entries"] == 0 and json.loads(out)["targets"] == {}


def test_clear_says_what_it_removed_and_leaves_what_is_not_ours(
    folder: Path, run: Any
) -> None:
    kept = filled()
    mine = folder / "ab" / "notes.txt"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) - 4
    status, out, _ = run("cache", "clear", "--json")
    assert status == 0
    removed = {"folder": str(folder), "removed": 10, "bytes": size}
    assert json.loads(out) == removed
    assert [p for p in folder.rglob("*") if p.is_file()] == [mine]
    assert kept.build("kernel", ".so", write("again")).read_text() == "again"
    _, text, _ = run("cache", "clear")
    assert text.startswith("removed 1 files, 0.0 MiB, from ")


def test_an_unsafe_folder_is_not_cleared(folder: Path, run: Any) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    status, _, err = run("cache", "clear")
    assert status == 1
    assert "others may write to it" in err


def test_wrong_usage(folder: Path, run: Any) -> None:
    assert run("cache")[0] == run("cache", "clean")[0] == 2
    assert run("warm", "tnah")[2].endswith('did you mean "tanh"?\n')
    assert 'did you mean "float32"?' in run("warm", "tanh", "--dtype", "flaot32")[2]
    assert run("warm", "tanh", "--jobs", "0")[0] == 2


def test_machines_that_triton_compiled_for(tmp_path: Path) -> None:
    file = tmp_path / "kernel.json"
    for content, machine in (
        ('{"target": {"arch": 80}}', "sm_80"),
        ('{"target": {"arch": "gfx942"}}', "gfx942"),
        ("{}", ""),
        ("[", ""),
    ):
        file.write_text(content)
        assert cache._machine(file) == machine


def test_warm_compiles_once(folder: Path, run: Any) -> None:
    argv = ("warm", "tanh", "mul", "--dtype", "float32", "--jobs", "1")
    status, out, _ = run(*argv, "--json")
    found = json.loads(out)
    names = [one["name"] for one in found["operators"]]
    assert status == 0
    assert names == ["mul.Scalar", "mul.Tensor", "tanh"]
    assert found["dtypes"] == ["float32"] and found["jobs"] == 1
    status, out, _ = run(*argv)
    assert status == 0
    assert "3 operators, float32, on cpu: 0 kernels compiled in " in out


def test_warm_in_processes_beside_each_other(folder: Path, run: Any) -> None:
    argv = ("warm", "tanh", "sin", "--dtype", "float64", "--jobs", "2", "--json")
    first, second = (json.loads(run(*argv)[1]) for _ in range(2))
    assert first["jobs"] == 2
    assert first["compiled"] == 4 and second["compiled"] == 0
    kernels = json.loads(run("cache", "info", "--json")[1])["targets"]["native"]
    assert kernels["kernels"] == 4


def test_warm_takes_the_dtypes_that_an_operator_has(folder: Path) -> None:
    assert warm.warm("bitwise_and.Tensor", ["float32"], "cpu").compiled == 0
    assert warm.warm("igamma", ["float32"], "cpu").error == ""


def test_warm_goes_on_after_an_error(
    folder: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(name: str, dtypes: Any, device: str) -> Warmed:
        return Warmed(name, 0, 0.1, "CompileError: no" if name == "sin" else "")

    monkeypatch.setattr(warm, "warm", fails)
    status, out, _ = run("warm", "tanh", "sin", "--jobs", "1")
    assert status == 1
    assert "CompileError: no" in out and out.count("\n") == 3


def test_all_operators_that_are_kernels_are_warmed() -> None:
    names = warm.chosen([])
    assert {"gelu", "add.Tensor", "eq.Tensor", "lt_.Scalar"} <= set(names)
    assert not {"mm", "view", "cholesky"} & set(names)
    assert warm.chosen(["mm"]) == []
