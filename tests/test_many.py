"""Many threads and processes at once: right results, each kernel compiled once."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A program that calls operators from many threads at the same time, checks them against
# PyTorch's, and writes a line for each run of the compiler.
PROGRAM = """
import sys, threading
from pathlib import Path
import torch
from torch.testing import assert_close
from atentriton import ops, toolchain

log, threads, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
torch.set_num_threads(1)
compiled = toolchain.compile_library

def logged(command, flags, libraries, source, path):
    with open(log, "a") as file:
        file.write(f"{source}\\n")
    return compiled(command, flags, libraries, source, path)

toolchain.compile_library = logged
x = torch.linspace(0.1, 0.9, 17, dtype=torch.float64)
start, errors = threading.Barrier(threads), []

def work(first):
    try:
        start.wait()
        for k in range(len(names)):
            name = names[(first + k) % len(names)]
            leaves = [x.clone().requires_grad_() for _ in range(2)]
            results = []
            for place, leaf in zip((ops, torch.ops.aten), leaves):
                y = getattr(place, name)(leaf)
                results += [y, *torch.autograd.grad(y.sum(), leaf)]
            assert_close(results[:2], results[2:], equal_nan=True)
    except BaseException as error:
        errors.append(f"{name}: {type(error).__name__}: {error}")

pool = [threading.Thread(target=work, args=(i * 7,)) for i in range(threads)]
for thread in pool:
    thread.start()
for thread in pool:
    thread.join()
sys.exit("\\n".join(errors[:5]) or 0)
"""

NAMES = """
    abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma elu erf erfc
    erfinv exp exp2 expm1 floor frac gelu hardsigmoid hardswish hardtanh i0 leaky_relu
    lgamma log log10 log1p log2 log_sigmoid logit mish neg rad2deg reciprocal relu
    round rsqrt selu sigmoid sign silu sin sinc sinh softplus sqrt
"""


def start(log: Path, cache: Path, threads: int, names: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(log), str(threads), *names],
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "ATENTRITON_CACHE_DIR": str(cache),
            "OMP_NUM_THREADS": "1",
        },
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def run(log: Path, cache: Path, processes: int, threads: int, names: list[str]) -> None:
    made = [start(log, cache, threads, names) for _ in range(processes)]
    for process in made:
        _, errors = process.communicate()
        assert process.returncode == 0, errors


def compilations(log: Path) -> list[str]:
    """The sources that were compiled, each once; trying the compiler does not count."""
    lines = log.read_text().splitlines() if log.exists() else []
    found = [line for line in lines if not line.endswith("probe.c")]
    assert len(found) == len(set(found))
    return found


def nothing_left_behind(cache: Path) -> None:
    for path in cache.rglob("*"):
        assert path.suffix in (".c", ".h", ".so", ".json") or path.is_dir(), path
        assert not path.name.startswith("building-"), path


def many(
    tmp_path: Path, processes: int, threads: int, names: list[str], least: int
) -> None:
    log, cache = tmp_path / "log", tmp_path / "cache"
    run(log, cache, processes, threads, names)
    assert len(compilations(log)) >= least
    nothing_left_behind(cache)
    files = sorted(cache.rglob("*"))
    log.unlink()
    run(log, cache, 1, 2, names)
    assert compilations(log) == [], "a second process compiles nothing"
    assert sorted(cache.rglob("*")) == files


def test_threads(tmp_path: Path) -> None:
    many(tmp_path, processes=1, threads=8, names=NAMES.split()[:4], least=7)


def test_processes(tmp_path: Path) -> None:
    many(tmp_path, processes=2, threads=2, names=NAMES.split()[8:10], least=4)


@pytest.mark.slow
def test_many_threads_call_many_operators(tmp_path: Path) -> None:
    assert len(NAMES.split()) >= 50
    many(tmp_path, processes=1, threads=32, names=NAMES.split(), least=70)


@pytest.mark.slow
def test_many_processes_share_an_empty_cache(tmp_path: Path) -> None:
    many(tmp_path, processes=8, threads=1, names=NAMES.split()[:16], least=25)


def test_a_damaged_entry_is_built_anew(tmp_path: Path) -> None:
    log, cache = tmp_path / "log", tmp_path / "cache"
    run(log, cache, 1, 1, ["tanh"])
    log.unlink()
    libraries = sorted(cache.rglob("*.so"))
    for path, damage in zip(libraries, (b"", b"\x7fELF", b"no library"), strict=False):
        path.unlink()
        path.write_bytes(damage)
    for path in cache.rglob("*.json"):
        path.write_text('["half a')
    run(log, cache, 1, 1, ["tanh"])
    assert len(compilations(log)) == len(libraries) == 2
    nothing_left_behind(cache)


def test_a_cache_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    process = start(tmp_path / "log", tmp_path, 1, ["tanh"])
    _, errors = process.communicate()
    assert process.returncode != 0
    assert "will not load code from the cache folder" in errors
    assert list(tmp_path.iterdir()) == []


FORBIDDEN = frozenset({"pickle", "marshal", "shelve", "dill", "joblib"})


def test_nothing_is_unpickled() -> None:
    """What is loaded from the cache is JSON, or a library in a folder of one's own."""
    for path in [*ROOT.glob("atentriton/**/*.py"), *ROOT.glob("fuser/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not FORBIDDEN & set(names), f"{path}:{node.lineno}"
            if isinstance(node, ast.Attribute) and node.attr == "load":
                assert ast.unparse(node) != "torch.load", f"{path}:{node.lineno}"
