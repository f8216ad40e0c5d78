"""The scripts of perf/: that they run, on little, and write what they say they do."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted(p.stem for p in (ROOT / "perf").glob("*.py") if p.stem[0] != "_")
Done = subprocess.CompletedProcess[str]


def run(script: str, *args: str, results: Path) -> Done:
    known = {"PERF_RESULTS": str(results), "TRITON_INTERPRET": "0"}
    known["ATENTRITON_CACHE_DIR"] = str(results / "cache")
    return subprocess.run(
        [sys.executable, str(ROOT / "perf" / f"{script}.py"), *args],
        env=os.environ | known,
        capture_output=True,
        text=True,
    )


def written(name: str, results: Path) -> list[dict[str, Any]]:
    found = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    assert {"machine", "settings", "rows"} <= found.keys()
    assert {"cpu", "threads", "load", "torch"} <= found["machine"].keys()
    return found["rows"]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_says_what_it_does(script: str, tmp_path: Path) -> None:
    done = run(script, "--help", results=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")
    assert not list(tmp_path.glob("*.json"))


FREED = """
import resource
import torch
from atentriton.timing import give_back, keep_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

keep_memory()
outputs = [torch.ones(1 << 20) for _ in range(50)]
del outputs[:-1]  # the last one is where the heap ends
kept = resident()
give_back()
print((kept - resident()) >> 20)
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="another C library has its own ways"
)
def test_what_is_free_between_measurements_goes_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FREED], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 150


def test_the_zoo(tmp_path: Path) -> None:
    few = ("--quick", "--only", "huber", "--elements", "1000", "--seconds", "0.01")
    done = run("zoo", *few, "--no-inductor", results=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = written("zoo", tmp_path)
    assert [r["mode"] for r in rows] == ["forward", "backward", "second", "jvp"]
    for row in rows:
        assert row["name"] == "huber"
        assert set(row["seconds"]) == set(row["peak_bytes"]) == {"eager", "ours"}
        assert row["over_eager"] > 0
        assert row["over_inductor"] is None
        assert 0 < row["peak_bytes"]["ours"] < row["peak_bytes"]["eager"]
    saved = rows[1]["saved_bytes"]
    assert saved["ours"] == {"own": 0, "given": 8000}
    assert saved["eager"]["own"] > 0
    (cold,) = written("zoo_cold", tmp_path)
    assert cold["side"] == "ours"
    assert cold["kernels"] == 4
    assert set(cold["ms"]) == {"forward", "backward", "second", "jvp"}


def test_an_unknown_function_and_the_nearest_one(tmp_path: Path) -> None:
    done = run("zoo", "--only", "hubber", results=tmp_path)
    assert done.returncode == 1
    assert 'did you mean "huber"?' in done.stderr


@pytest.mark.slow
def test_the_zoo_beside_inductor(tmp_path: Path) -> None:
    few = ("--only", "silu", "--elements", "1000", "--seconds", "0.01")
    done = run("zoo", *few, "--no-cold", results=tmp_path)
    assert done.returncode == 0, done.stderr
    by_mode = {r["mode"]: r for r in written("zoo", tmp_path)}
    assert by_mode["backward"]["over_inductor"] > 0
    assert by_mode["second"]["over_inductor"] is None
    assert "double backward" in by_mode["second"]["refused"]
    assert "refused" in done.stdout


def test_complex_chains(tmp_path: Path) -> None:
    few = ("--quick", "--only", "soft_sign", "--elements", "1000")
    done = run("complex", *few, results=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [r["mode"] for r in written("complex", tmp_path)] == ["forward", "backward"]


@pytest.mark.slow
def test_kernels_for_machines_that_are_not_here(tmp_path: Path) -> None:
    done = run("kernels", "--only", "silu", results=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = written("kernels", tmp_path)
    ours = [r for r in rows if r["by"] == "ours"]
    assert {r["target"] for r in ours} == {"sm_90", "gfx942"}
    assert {r["mode"] for r in ours} == {"forward", "backward", "second", "jvp"}
    for row in ours:
        assert row["loaded"] + row["stored"] == row["least_bytes"]
        assert row["spilled"] == 0
        assert row["registers"] > 0
        assert row["instructions"] > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    done = run("gpu", results=tmp_path)
    assert done.returncode == 2
    assert "needs a GPU" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout
