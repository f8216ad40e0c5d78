"""The C compiler: found, tried once, and clear when it fails."""

from __future__ import annotations

import ctypes
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from atentriton import native, toolchain, vectormath
from atentriton.cache import default_cache
from atentriton.toolchain import CompileError, NoCompilerError
from fuser import ir
from fuser.dtypes import float32, int64
from fuser.kernel import Access, Kernel, Layout
from fuser.render import render
from fuser.schedule import schedule
from fuser.targets import target
from tests import rows

GOOD = "int answer(void) { return 42; }\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test starts with an empty cache and knows nothing of the compiler."""
    monkeypatch.setenv("ATENTRITON_CACHE_DIR", str(tmp_path / "cache"))
    toolchain.toolchain.cache_clear()
    monkeypatch.setattr(native, "_loaded", {})
    yield
    toolchain.toolchain.cache_clear()


def kernel() -> Kernel:
    root = ir.make("exp", float32, (ir.input_("x", float32),))
    return schedule(rows.of(root), Layout(1, (Access.LINEAR,) * 2, int64))


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = toolchain.toolchain()
    path = tools.library(GOOD)
    assert ctypes.CDLL(str(path)).answer() == 42
    monkeypatch.setattr(toolchain, "run", None)
    assert tools.library(GOOD) == path


def test_what_the_compiler_takes_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = toolchain.toolchain()
    toolchain.toolchain.cache_clear()
    monkeypatch.setattr(toolchain, "probe", None)
    assert toolchain.toolchain() == found


def test_findings_that_cannot_be_read_are_made_anew() -> None:
    found = toolchain.toolchain()
    (path,) = default_cache().root.rglob("*.json")
    for damage in ("", "{}", "[1", '{"flags": 3}'):
        path.write_text(damage)
        toolchain.toolchain.cache_clear()
        assert toolchain.toolchain() == found


def test_contraction_is_part_of_the_key() -> None:
    tools = toolchain.toolchain()
    assert tools.library(GOOD) != tools.library(GOOD, contract=False)


def test_never_fast_math() -> None:
    flags = toolchain.toolchain().flags(contract=True)
    assert not {"-ffast-math", "-Ofast", "-ffinite-math-only"} & set(flags)


def test_a_damaged_library_is_compiled_again() -> None:
    source = render(kernel(), target("native"))
    path = toolchain.toolchain().library(source)
    path.write_bytes(b"not a library")
    assert native.load(kernel()).path == path
    assert path.read_bytes()[:4] != b"not "


def test_a_refused_source_is_shown() -> None:
    with pytest.raises(CompileError) as caught:
        toolchain.toolchain().library("int broken(void) { return nothing; }\n")
    message = str(caught.value)
    assert "nothing" in message and "undeclared" in message
    source = Path(message.split("source", 1)[1].split()[0])
    assert "broken" in source.read_text()
    assert f"-c {source}" in message


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("ATENTRITON_CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompilerError, match="apt install gcc"):
        native.load(kernel())


def test_a_compiler_that_is_named_but_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATENTRITON_CC", "no-such-cc -O1")
    with pytest.raises(NoCompilerError, match=r'ATENTRITON_CC names .* "no-such-cc"'):
        toolchain.toolchain()


def test_a_compiler_that_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = script(tmp_path / "cc", 'echo "cannot find stdio" >&2; exit 1')
    monkeypatch.setenv("ATENTRITON_CC", str(broken))
    with pytest.raises(NoCompilerError, match="cannot find stdio"):
        toolchain.toolchain()


def test_options_that_a_compiler_refuses_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler without OpenMP and without knowledge of this processor."""
    (real, *_) = toolchain.find_compiler()
    refuse = 'for a in "$@"; do case $a in -fopenmp*|-march=*) exit 1;; esac; done'
    plain = script(tmp_path / "cc", f'{refuse}\nexec {real} "$@"')
    monkeypatch.setenv("ATENTRITON_CC", str(plain))
    findings = toolchain.toolchain().findings
    assert findings.openmp == "none"
    assert not any(f.startswith(("-march", "-fopenmp")) for f in findings.flags)
    loaded = native.load(kernel())
    values = (ctypes.c_float * 3)(0.0, 1.0, 2.0)
    result = (ctypes.c_float * 3)()
    assert loaded([ctypes.addressof(values), ctypes.addressof(result)], [], [3]) == 0
    assert [round(v, 3) for v in result] == [1.0, 2.718, 7.389]


def test_a_crash_while_vectorising_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GCC 12 does crash on some loops; without vectorisation it compiles them."""
    (real, *_) = toolchain.find_compiler()
    crash = (
        'case "$*" in *fno-tree-vectorize*|*probe.c*|*shared*|*version*) ;; '
        '*) echo "internal compiler error: in extract_insn" >&2; exit 1;; esac'
    )
    weak = script(tmp_path / "cc", f'{crash}\nexec {real} "$@"')
    monkeypatch.setenv("ATENTRITON_CC", str(weak))
    assert native.load(kernel()).path.exists()


def test_vector_functions_are_those_that_exist() -> None:
    names = vectormath.vectorised()
    header = vectormath.vector_header()
    assert header.count("#pragma omp declare simd") == len(names)
    for name in names:
        kind = "float" if name.endswith("f") and name != "erf" else "double"
        assert f"{kind} {name}({kind}" in header.replace("apart_", "")


def test_where_there_is_no_vector_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(vectormath.ctypes, "CDLL", missing)
    assert vectormath.vectorised() == ()
    assert "omp" not in vectormath.vector_header()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_one_pool_of_threads() -> None:
    """A kernel adds no OpenMP library to those that PyTorch has loaded."""
    program = (
        "import torch, re\n"
        "from pathlib import Path\n"
        "def found():\n"
        "    maps = Path('/proc/self/maps').read_text()\n"
        "    return set(re.findall(r'/\\S*lib(?:gomp|iomp5|omp)\\S*', maps))\n"
        "before = found()\n"
        "from tests.test_toolchain import kernel\n"
        "from atentriton import native\n"
        "k = native.load(kernel())\n"
        "x = torch.rand(1 << 20); y = torch.empty_like(x)\n"
        "k([x.data_ptr(), y.data_ptr()], [], [1 << 20])\n"
        "assert torch.allclose(y, x.exp())\n"
        "assert found() == before, (found(), before)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
