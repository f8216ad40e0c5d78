"""The start of a process: what it reads, what it imports, and what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from atentriton import programs, records
from atentriton.cache import default_cache
from fuser import dtypes
from fuser.entries import function_shelf, load, load_functions, shelf
from fuser.library import DERIVATIVES, PACKAGED
from fuser.resources import resource
from fuser.specs import TensorSpec

ROOT = Path(__file__).resolve().parent.parent
F32 = TensorSpec(dtypes.float32)

# What a process does not need that finds its kernels and its records.
HEAVY = (
    *("jinja2", "lark", "rich", "sympy", "triton", "yaml"),
    *("torch._dynamo", "torch._inductor"),
    *("fuser.grammar", "fuser.lower", "fuser.pipeline", "fuser.schedule"),
    *("atentriton.compiling", "atentriton.composite", "atentriton.helpers"),
)

FIRST_CALLS = """
import json, sys
import torch
from atentriton import ops
x = torch.linspace(1.5, 3, 8, requires_grad=True)
y = torch.linspace(0.5, 2, 8, requires_grad=True)
values = [ops.acosh(x), ops.add(x, y, alpha=2), ops.gelu(y), ops.addcmul(x, x, y)]
gradients = torch.autograd.grad(sum(values).sum(), (x, y), create_graph=True)
second = torch.autograd.grad(gradients[0].sum(), x)
found = [*values, *gradients, *second]
print(json.dumps([[t.tolist() for t in found], sorted(sys.modules)]))
"""


def fresh(script: str, cache: Path, **environment: str) -> tuple[Any, str]:
    """What a new process prints, as JSON, and what it says on standard error."""
    known = {
        "PYTHONPATH": str(ROOT),
        "ATENTRITON_CACHE_DIR": str(cache),
        "TRITON_INTERPRET": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | known | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def files(cache: Path) -> set[Path]:
    return {path for path in cache.rglob("*") if path.is_file()}


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (first, _), _ = fresh(FIRST_CALLS, cache)
    left = files(cache)
    assert {".so", ".json"} <= {path.suffix for path in left}
    (second, modules), _ = fresh(FIRST_CALLS, cache)
    assert second == first
    assert files(cache) == left
    assert not set(HEAVY) & set(modules)


FUSED_CALLS = """
import json, sys
import torch
from torch import func
from atentriton import fuse
from fuser.pipeline import Compiler

compiled = []
for name in ("kernels", "vjp", "jvp", "joint"):
    def counted(*args, name=name, original=getattr(Compiler, name)):
        compiled.append(name)
        return original(*args)
    setattr(Compiler, name, counted)

@fuse
def f(x, y, s):
    return torch.tanh(x.masked_fill(y > 1, s)) * y.t()

x = torch.linspace(-2, 3, 9).reshape(3, 3).requires_grad_()
y = torch.linspace(0.5, 2, 9).reshape(3, 3)
value = f(x, y, 0.5)
(first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
(second,) = torch.autograd.grad(first.sum(), x)
along = func.jvp(lambda x: f(x, y, 0.5), (x.detach(),), (y,))
found = [value, first, second, *along]
rendered = "fuser.render" in sys.modules
print(json.dumps([[t.tolist() for t in found], compiled, rendered]))
"""


def test_a_second_process_only_traces_what_is_fused(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (first, compiled, _), _ = fresh(FUSED_CALLS, cache)
    assert {"kernels", "vjp", "joint"} <= set(compiled)
    left = files(cache)
    (second, compiled, rendered), _ = fresh(FUSED_CALLS, cache)
    assert second == first
    assert not compiled and not rendered
    assert files(cache) == left


def test_damaged_records_are_made_anew(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (first, _), _ = fresh(FIRST_CALLS, cache)
    left = files(cache)
    broken = [path for path in left if path.suffix == ".json"]
    whole = {path: path.read_text() for path in broken}
    for i, path in enumerate(sorted(broken)):
        path.write_text(("", "[]", "{", '{"kind": 3}', "17", "[[1, 2], 3]")[i % 6])
    (second, _), _ = fresh(FIRST_CALLS, cache)
    assert second == first
    assert files(cache) == left
    assert {path: path.read_text() for path in broken} == whole


def test_missing_libraries_are_compiled_anew(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (first, _), _ = fresh(FIRST_CALLS, cache)
    left = files(cache)
    for path in left:
        if path.suffix == ".so":
            path.unlink()
    (second, _), _ = fresh(FIRST_CALLS, cache)
    assert second == first
    assert files(cache) == left


def test_all_stages_are_shown_in_a_second_process_too(tmp_path: Path) -> None:
    fresh(FIRST_CALLS, tmp_path / "cache")
    _, shown = fresh(FIRST_CALLS, tmp_path / "cache", ATENTRITON_DUMP="ir,derive")
    assert "# ir: acosh(float32)" in shown
    assert "# derive: acosh(float32).vjp" in shown


def test_an_operator_reads_few_entries(tmp_path: Path) -> None:
    script = """
import json, torch
from fuser import entries
from atentriton import ops
read = []
original = entries._read_one
entries._read_one = lambda *args: read.append(args[1]) or original(*args)
ops.acosh(torch.rand(8) + 1)
print(json.dumps(len(read)))
"""
    count, _ = fresh(script, tmp_path / "cache")
    assert 0 < count < 20


def test_the_packaged_files_are_right() -> None:
    """They are not checked as a whole when a process starts, but here."""
    path = resource(DERIVATIVES)
    whole, apart = load(path).by_name, shelf(path)
    assert list(whole) == list(apart)
    for name, entry in whole.items():
        assert apart[name] == entry
        assert apart[name].signature.span[1:5] == entry.signature.span[1:5]
        assert apart[name].comment == entry.comment
    for file in (*PACKAGED, "complex.yaml"):
        functions, single = (
            load_functions(resource(file)),
            function_shelf(resource(file)),
        )
        assert [f.name for f in functions] == list(single)
        assert all(single[f.name] == f for f in functions)


def test_in_place_operators_take_the_arguments_of_the_functional_ones() -> None:
    known = programs.compiler()
    for name, entry in known.entries.items():
        function = known.functions.by_name.get(name)
        if entry.inplace and function is not None:
            functional = known.functions.functional(name)
            assert functional is not None
            assert set(functional.signature.by_name) == set(entry.signature.by_name)


def test_records_go_with_the_source_files(monkeypatch: pytest.MonkeyPatch) -> None:
    records.keep("a test of records", [1, 2])
    assert records.recall("a test of records", list) == [1, 2]
    with monkeypatch.context() as changed:
        changed.setattr(records, "sources", lambda: "others")
        assert records.recall("a test of records", list) is None
    records.forget("a test of records")
    assert records.recall("a test of records", list) is None


def test_a_record_names_files_of_the_cache_only() -> None:
    for name in ("../x.so", "/tmp/x.so", f"{'0' * 64}/x.so", "libm.so.6"):
        with pytest.raises(LookupError):
            default_cache().named(name)


def test_a_recalled_routine_has_its_program_when_it_is_asked_for() -> None:
    first = programs.routine("expm1", [F32])
    derived = first.vjp((True,), (True,)).routine
    assert derived is not None
    for lineage in (first.lineage, derived.lineage):
        programs._routines.pop(lineage)
    again = programs.routine("expm1", [F32])
    after = again.vjp((True,), (True,)).routine
    assert again is not first
    assert after is not None
    assert after.outline == derived.outline
    assert after.program.outputs == derived.program.outputs
    assert again.program.outputs == first.program.outputs


def test_what_cannot_be_kept_is_worked_out_each_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("ATENTRITON_CACHE_DIR", str(blocked / "cache"))
    assert records.remembered("a", list, list, lambda: [1]) == [1]
    assert records.recall("a", list) is None
