"""Triton's kernels, compiled for GPUs that are not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fuser import dtypes, ir
from fuser.dtypes import DType, bool_, float32, float64, int64
from fuser.ir import Loop, Node
from fuser.kernel import Access, Layout, Tile
from fuser.optable import PRIMITIVES
from fuser.program import Output, Program
from fuser.schedule import schedule
from tests import rows

pytest.importorskip("triton")
tritonkernels = pytest.importorskip("atentriton.tritonkernels")
compile_only = tritonkernels.compile_only

pytestmark = pytest.mark.skipif(
    tritonkernels.is_interpreting(), reason="TRITON_INTERPRET=1: nothing is compiled"
)

MACHINES = ["sm_80", "sm_90", "gfx942"]


def op(name: str, dtype: DType, *args: Node) -> Node:
    return ir.make(name, dtype, args)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", rows.CASES, ids=rows.name)
def test_every_row(case: rows.Case, machine: str) -> None:
    compiled = compile_only(rows.dense(rows.program(*case)), machine)
    assert compiled.signature["n"] == "i32"


SOME = ["exp", "pow", "div", "maximum", "signbit", "round", "sgn", "atan2"]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [dtypes.bfloat16, float64], ids=str)
def test_a_few_rows(dtype: DType, machine: str) -> None:
    """Some rows, one after the other in one kernel."""
    value = ir.cast(ir.input_("x", dtype), dtype.opmath)
    for row in map(PRIMITIVES.__getitem__, SOME):
        made = bool_ if row.rule == "bool" else dtype.opmath
        node = op(row.name, made, *[value] * row.arity)
        value = op("add", dtype.opmath, value, ir.cast(node, dtype.opmath))
    compiled = compile_only(rows.dense(rows.of(value, dtype)), machine)
    assert compiled.signature["n"] == "i32"
    assert 0 < compiled.resources().registers <= 128


def scaled() -> Program:
    """y = where(flag, x * alpha, k) with a number of each kind."""
    x = ir.input_("x", float64)
    alpha, k, flag = (
        ir.scalar("alpha", float64),
        ir.scalar("k", int64),
        ir.scalar("flag", bool_),
    )
    product = op("mul", float64, x, alpha)
    y = op("where", float64, flag, product, ir.cast(k, float64))
    return Program("scaled", (x,), (alpha, k, flag), (Output("y", y, float64),))


def test_numbers_have_the_types_that_are_declared() -> None:
    compiled = compile_only(rows.dense(scaled()), "sm_90")
    assert list(compiled.signature.values()) == [
        "*fp64",
        "*fp64",
        "fp64",
        "i64",
        "u1",
        "i32",
        "constexpr",
    ]
    assert re.search(r"\.param \.(b|f)64 \w+_param_2", compiled.text)
    assert "cvt.f64.f32" not in compiled.text
    strided = Layout(2, (Access.STRIDED, Access.LINEAR), int64)
    signature = compile_only(schedule(scaled(), strided), "sm_90").signature
    assert set(list(signature.values())[5:-1]) == {"i64"}


class AbsentGPU:
    """Stands for the driver of a GPU that compiles for it but cannot launch."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> object:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


@pytest.fixture
def absent_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from triton.runtime import driver

    monkeypatch.setattr(driver, "_active", AbsentGPU())
    tritonkernels._options_here.cache_clear()
    yield
    tritonkernels._options_here.cache_clear()


@pytest.mark.usefixtures("absent_gpu")
@pytest.mark.parametrize("layout", ["flat", "strided"])
def test_another_number_compiles_nothing(layout: str) -> None:
    kernel = rows.dense(scaled())
    shapes = [(48,), (1600,), (64,)]
    if layout == "strided":
        access = (Access.STRIDED, Access.LINEAR)
        kernel = schedule(scaled(), Layout(2, access, dtypes.int32))
        shapes = [(2, 3, 4, 5, 6), (1, 1, 1, 1, 1), (16, 32, 16, 0, 64)]
    made = tritonkernels.load(kernel)
    options = tritonkernels._options_here(True)
    data = [torch.empty(64, dtype=torch.float64)] * 2
    compiled = []
    for numbers in ((0.1, 3, True), (1.0, 1, False), (1, 16, True), (1e300, -5, True)):
        for shape in shapes:
            compiled.append(
                made.function.warmup(
                    *data, *numbers, *shape, grid=(1,), BLOCK=made.block, **options
                )
            )
    assert all(c is compiled[0] for c in compiled)
    assert list(compiled[0].src.signature.values())[2:5] == ["fp64", "i64", "u1"]
    assert compiled[0].metadata.enable_reflect_ftz is False


@pytest.mark.usefixtures("absent_gpu")
def test_tails_and_pointers_off_the_grid_are_compiled_once() -> None:
    made = tritonkernels.load(rows.dense(rows.program(PRIMITIVES["exp"], float32)))
    storage = torch.empty(65)
    options = tritonkernels._options_here(True)

    def compiled(x: torch.Tensor, n: int) -> object:
        return made.function.warmup(x, x, n, grid=(1,), BLOCK=made.block, **options)

    assert compiled(storage, 17) is compiled(storage, 50)
    assert compiled(storage, 17) is not compiled(storage, 32)
    assert compiled(storage[1:], 64) is compiled(storage[3:], 32)


def test_a_literal_of_float64_is_exact() -> None:
    x = ir.input_("x", float64)
    tenth = ir.const(0.1, float64)
    chosen = op("where", float64, op("gt", bool_, x, tenth), tenth, x)
    compiled = compile_only(rows.dense(rows.of(chosen)), "sm_90")
    assert "0d3FB999999999999A" in compiled.text.upper().replace("0D", "0d")


def test_loads_are_vectors() -> None:
    for dtype, vector in ((float32, "v4.b32"), (float64, "v2.b64")):
        compiled = compile_only(
            rows.dense(rows.program(PRIMITIVES["add"], dtype)), "sm_90"
        )
        assert f"ld.global.{vector}" in compiled.text
        assert f"st.global.{vector}" in compiled.text


def test_multiplication_and_addition_are_contracted_on_demand() -> None:
    a, b, c = (ir.input_(name, float32) for name in "abc")
    kernel = rows.dense(rows.of(op("add", float32, op("mul", float32, a, b), c)))
    assert "fma.rn.f32" in compile_only(kernel, "sm_90").text
    assert "fma.rn.f32" not in compile_only(kernel, "sm_90", contract=False).text


@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        ("div", r"div\.rn\.f32"),
        ("sqrt", r"sqrt\.rn\.f32"),
        ("maximum", r"max\.NaN\.f32"),
        ("fmin", r"min\.f32"),
        ("neg", r"neg\.f32|xor\.b32 .*-2147483648"),
        ("round", r"cvt\.rni\.f32\.f32"),
    ],
)
def test_instructions(name: str, instruction: str) -> None:
    kernel = rows.dense(rows.program(PRIMITIVES[name], float32))
    text = compile_only(kernel, "sm_90").text
    assert re.search(instruction, text.replace("\t", " "))
    assert ".ftz" not in text


def test_subnormal_numbers_are_kept() -> None:
    for name in ("log", "expm1", "sin", "log1p"):
        kernel = rows.dense(rows.program(PRIMITIVES[name], float32))
        assert ".ftz" not in compile_only(kernel, "sm_90").text


def many_values(count: int, dtype: DType) -> Program:
    """A result for which `count` values have to be alive at once."""
    x = ir.input_("x", dtype)
    values = [op("mul", dtype, x, ir.const(i + 1.5, dtype)) for i in range(count)]
    values = [op("div", dtype, ir.const(1.0, dtype), v) for v in values]
    total = values[0]
    for value in values[1:]:
        total = op("add", dtype, total, value)
    result = values[-1]
    for value in reversed(values[:-1]):
        result = op("sub", dtype, value, op("mul", dtype, result, total))
    return rows.of(result)


@pytest.mark.parametrize("count", [8, 40])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_kernels_with_many_values_spill_nothing(count: int, dtype: DType) -> None:
    compiled = compile_only(rows.dense(many_values(count, dtype)), "sm_90")
    resources = compiled.resources()
    allowed = 8 if dtype == float64 else 0  # what a slow path of division takes
    assert resources.registers <= 168 and resources.stack <= allowed


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("proceed", [False, True])
def test_loops(machine: str, proceed: bool) -> None:
    x, count, y = ir.param(0, float32), ir.param(1, int64), ir.param(2, float32)
    loop = Loop(
        (
            op("mul", float32, x, y),
            op("add", int64, count, ir.const(1, int64)),
        ),
        op("lt", bool_, x, ir.const(1.0, float32)) if proceed else None,
        100,
    )
    start = (ir.const(0.5, float32), ir.const(0, int64))
    state = ir.iterate(start, (ir.input_("y", float32),), loop)
    outputs = (Output("x", state[0], float32), Output("count", state[1], int64))
    program = Program("loop", (ir.input_("y", float32),), (), outputs)
    for access in (Access.LINEAR, Access.UNIFORM):
        layout = Layout(1, (access, Access.LINEAR, Access.LINEAR), dtypes.int32)
        compile_only(schedule(program, layout), machine)


def test_loops_over_numbers_alone_and_constant_states() -> None:
    value, at = ir.param(0, float64), ir.param(1, float64)
    two = ir.const(2.0, float64)
    loop = Loop((op("mul", float64, value, at), two), None, 5)
    start = (ir.scalar("n", float64), ir.const(1.0, float64))
    result = ir.iterate(start, (), loop)[0]
    program = rows.of(op("mul", float64, ir.input_("x", float64), result))
    compile_only(rows.dense(program), "sm_90")


def test_bools_complex_numbers_and_halves_in_memory() -> None:
    z = ir.input_("z", dtypes.complex128)
    a, b = op("real", float64, z), op("imag", float64, z)
    mask = op("logical_and", bool_, ir.input_("m", bool_), ir.cast(a, bool_))
    program = Program(
        "memory",
        (z, ir.input_("m", bool_)),
        (),
        (
            Output(
                "swapped", op("complex", dtypes.complex128, b, a), dtypes.complex128
            ),
            Output("mask", mask, bool_),
            Output("half", a, dtypes.bfloat16),
        ),
    )
    for machine in MACHINES:
        signature = compile_only(rows.dense(program), machine).signature
        assert list(signature.values())[:5] == ["*fp64", "*i1", "*fp64", "*i1", "*bf16"]


@pytest.mark.parametrize("machine", MACHINES)
def test_one_element_for_all_and_constants(machine: str) -> None:
    flag, x = ir.input_("flag", bool_), ir.input_("x", dtypes.bfloat16)
    wide = ir.cast(x, float32)
    outputs = (
        Output(
            "chosen",
            op("where", float32, flag, wide, op("exp", float32, wide)),
            float32,
        ),
        Output("same", wide, dtypes.bfloat16),
        Output("flag", flag, bool_),
        Output("one", ir.const(1.0, float32), dtypes.float16),
        Output("yes", ir.const(True, bool_), bool_),
        Output("three", ir.const(3, dtypes.uint8), dtypes.uint8),
    )
    program = Program("uniform", (flag, x), (), outputs)
    for last in (Access.LINEAR, Access.UNIFORM):
        access = (Access.UNIFORM, Access.UNIFORM, *[last] * len(outputs))
        compile_only(schedule(program, Layout(1, access, dtypes.int32)), machine)
    strided = (Access.UNIFORM, Access.STRIDED, *[Access.STRIDED] * len(outputs))
    compile_only(schedule(program, Layout(3, strided, dtypes.int32)), machine)


def test_what_is_compiled_lies_in_the_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.setenv("ATENTRITON_CACHE_DIR", str(tmp_path))
    compile_only(rows.dense(rows.program(PRIMITIVES["floor"], float32)), "sm_90")
    suffixes = {path.suffix for path in tmp_path.rglob("*")}
    assert {".py", ".ptx", ".cubin"} <= suffixes


def test_what_is_refused() -> None:
    kernel = rows.dense(rows.program(PRIMITIVES["floor"], float32))
    with pytest.raises(ValueError, match='such as "sm_90"'):
        compile_only(kernel, "h100")


SUMS = {
    "over everything": Layout(
        1, (Access.LINEAR, Access.LINEAR, Access.UNIFORM), dtypes.int32, (False, True)
    ),
    "over rows": Layout(
        2,
        (Access.LINEAR, Access.LINEAR, Access.LINEAR),
        dtypes.int32,
        (False, True),
        Tile(1, (False, True)),
    ),
    "over columns": Layout(
        3,
        (Access.LINEAR, Access.STRIDED, Access.UNIFORM),
        dtypes.int32,
        (False, True),
        Tile(2, (False, False)),
    ),
    "over rows and columns": Layout(
        3,
        (Access.LINEAR, Access.LINEAR, Access.UNIFORM),
        int64,
        (False, True),
        Tile(1, (False, True)),
    ),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", SUMS)
def test_sums(name: str, machine: str) -> None:
    """A tile is added up by the threads that have it: nothing spills, nothing is
    atomic, and what is not summed is stored as it is without sums."""
    x = ir.input_("x", float32)
    y, s = op("exp", float32, x), op("neg", float32, x)
    outputs = Output("y", y, float32), Output("s", s, float32)
    program = Program("sums", (x,), (), outputs)
    compiled = compile_only(schedule(program, SUMS[name]), machine)
    assert compiled.resources().stack == 0
    assert "atom" not in compiled.text
