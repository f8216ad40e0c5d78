"""Running programs: allocation, pieces, devices, fallbacks, and what is refused."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from threading import Barrier
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from atentriton import launch, programs, targets, toolchain
from atentriton.programs import Routine, routine
from fuser import dtypes, ir
from fuser.ir import Static
from fuser.pipeline import default_compiler
from fuser.program import Output, Program
from fuser.specs import ScalarSpec, TensorSpec

F32, F64, I64 = (TensorSpec(d) for d in (dtypes.float32, dtypes.float64, dtypes.int64))
NUMBER = ScalarSpec("float")


def addcmul() -> Routine:
    return routine("addcmul", [F32, F32, F32, NUMBER])


def test_values_broadcast_into_a_new_tensor() -> None:
    a, b, c = torch.rand(3, 1), torch.rand(4), torch.rand(())
    (found,) = launch.run(addcmul(), [a, b, c], [0.5])
    assert_close(found, torch.addcmul(a, b, c, value=0.5))


@pytest.mark.parametrize(
    "given",
    [
        torch.rand(4, 6).t(),
        torch.rand(4, 6)[:, ::2],
        torch.rand(4, 6)[1:, 1:],
        torch.rand(4, 1).expand(4, 5),
        torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.rand(2, 3, 4).permute(1, 2, 0),
        torch.rand(9)[1:],
        torch.rand(()),
        torch.rand(0, 3),
        torch.rand(70_000),
    ],
    ids=lambda t: f"{tuple(t.shape)} {t.stride()}",
)
def test_every_layout_is_read_and_written_where_it_lies(given: torch.Tensor) -> None:
    (found,) = launch.run(routine("exp", [F32]), [given])
    expected = torch.exp(given)
    assert_close(found, expected)
    assert found.stride() == expected.stride()


def test_offsets_may_pass_31_bits() -> None:
    memory = torch.empty(2**31 + 1, dtype=torch.int8)  # two pages of it are touched
    far = memory[:: 2**31]
    far.copy_(torch.tensor([3, 5]))
    program = routine(
        "add.Scalar", [TensorSpec(dtypes.int8), ScalarSpec("int"), Static(1)]
    )
    (found,) = launch.run(program, [far], [1])
    assert found.tolist() == [4, 6]


def test_a_plan_is_made_once_for_shapes_and_strides() -> None:
    exp = routine("exp", [F32])
    launch.run(exp, [torch.rand(5, 7)])
    plans = len(exp.plans)
    launch.run(exp, [torch.rand(5, 7)])
    assert len(exp.plans) == plans
    launch.run(exp, [torch.rand(7, 5).t()])
    assert len(exp.plans) == plans + 1


def test_plans_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MOST_PLANS", 4)
    exp = routine("exp", [F32])
    exp.plans.clear()
    for n in range(1, 20):
        launch.run(exp, [torch.rand(n)])
    assert len(exp.plans) <= 4


def test_results_go_where_they_are_asked_to() -> None:
    given = torch.rand(3, 4)
    out = torch.zeros(4, 3).t()
    (found,) = launch.run(routine("exp", [F32]), [given], out=[out])
    assert found is out
    assert_close(out, given.exp())


def test_numbers_of_every_kind_are_handed_over() -> None:
    given = torch.rand(4, dtype=torch.complex64)
    for kind, spec in (("complex", 2 - 1j), ("float", 0.25), ("int", 3)):
        program = routine(
            "mul.Scalar", [TensorSpec(dtypes.complex64), ScalarSpec(kind)]
        )
        (found,) = launch.run(program, [given], [spec])
        assert_close(found, given * spec)


in_c = pytest.mark.skipif(targets.interpreted(), reason="about the kernels in C")


@in_c
def test_an_integer_division_by_zero_raises_as_in_torch() -> None:
    program = routine("div.Tensor_mode", [I64, I64, Static("floor")])
    ones, zeros = torch.ones(3, dtype=torch.int64), torch.tensor([1, 0, 1])
    with pytest.raises(RuntimeError) as theirs:
        torch.div(ones, zeros, rounding_mode="floor")
    with pytest.raises(RuntimeError) as ours:
        launch.run(program, [ones, zeros])
    assert str(ours.value) == str(theirs.value)


def test_tensors_of_another_dtype_are_refused() -> None:
    with pytest.raises(ValueError, match="float32"):
        launch.run(routine("exp", [F32]), [torch.rand(3, dtype=torch.float64)])
    with pytest.raises(ValueError, match="takes tensors of"):
        launch.run(addcmul(), [torch.rand(3)], [1.0])


def test_mixed_devices_are_refused_in_the_words_of_torch() -> None:
    given = [torch.rand(3), torch.rand(3, device="meta"), torch.rand(3)]
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same"):
        launch.run(addcmul(), given, [1.0])


# -- programs of several kernels
# ---------------------------------------------------------


class InPieces:
    """The compiler, with kernels of a few operations each."""

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def kernels(self, program: Program) -> tuple[Program, ...]:
        return default_compiler().kernels(program, self.budget)


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(programs, "compiler", lambda: InPieces(3))
    yield


def chain() -> Program:
    """exp(a) + sin(exp(a)) * b + ..., with two outputs, one of a small part alone."""
    a, b = ir.input_("a", dtypes.float32), ir.input_("b", dtypes.float32)
    f = dtypes.float32

    def op(name: str, *args: ir.Node) -> ir.Node:
        return ir.make(name, f, args)

    early = op("exp", a)
    late = op("mul", op("sin", early), b)
    for _ in range(4):
        late = op("add", op("cos", late), early)
    outputs = (Output("late", late, f), Output("early", early, f))
    return Program("chain", (a, b), (), outputs)


def expected_chain(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    early = a.exp()
    late = early.sin() * b
    for _ in range(4):
        late = late.cos() + early
    return [late, early.expand(late.shape)]


def test_a_long_program_runs_in_pieces(in_pieces: None) -> None:
    a, b = torch.rand(3, 1), torch.rand(4)
    program = chain()
    whole = Routine(programs.replace(program, lineage="chain in pieces"))
    assert len(launch.pieces_of(whole).items) > 2
    assert_close(launch.run(whole, [a, b]), expected_chain(a, b))


def test_kernels_are_made_side_by_side(
    in_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them wait for each other: one after the other they would wait in vain."""
    program = chain()
    whole = Routine(programs.replace(program, lineage="chain side by side"))
    pieces = launch.pieces_of(whole).items
    both, made = Barrier(2), []

    def target(piece: Any, moves: Any) -> Any:
        if piece in pieces[:2]:
            both.wait(timeout=60)
        made.append(piece)
        return piece

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(targets, "of_device", lambda device: target)
    plan = launch.plan_for(whole, [torch.rand(3), torch.rand(3)])
    assert plan.launches == pieces
    assert len(made) == len(pieces)


def test_it_gives_the_same_in_one_piece() -> None:
    a, b = torch.rand(3, 1), torch.rand(4)
    assert_close(launch.run(chain(), [a, b]), expected_chain(a, b))


def test_programs_without_a_name_are_told_apart_by_what_they_are() -> None:
    assert programs.adopt(chain()) is programs.adopt(chain())
    a = ir.input_("a", dtypes.float32)
    other = Program("chain", (a,), (), (Output("same", a, dtypes.float32),))
    assert programs.adopt(other) is not programs.adopt(chain())


# -- targets
# -----------------------------------------------------------------------------


@in_c
def test_the_reference_runs_where_there_is_no_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> Any:
        raise toolchain.NoCompilerError("no C compiler was found")

    monkeypatch.setattr(toolchain, "toolchain", none)
    targets._compiler_missing.cache_clear()
    targets._warn.cache_clear()
    given = torch.rand(3, 4)
    program = programs.replace(chain(), lineage="chain by reference")
    try:
        with pytest.warns(RuntimeWarning, match="no C compiler was found") as caught:
            found = launch.run(program, [given, given])
            found = launch.run(program, [given[:2], given[:2]])
        assert len(caught) == 1
        assert_close(found, expected_chain(given[:2], given[:2]))
    finally:
        targets._compiler_missing.cache_clear()
        targets._warn.cache_clear()


@pytest.mark.interpreter
def test_tritons_interpreter_runs_on_the_cpu() -> None:
    assert targets.of_device(torch.device("cpu")) is targets.TritonLaunch
    a, b = torch.rand(3, 1), torch.rand(4)
    assert_close(launch.run(chain(), [a, b]), expected_chain(a, b))
    transposed = torch.rand(4, 3).t()
    (found,) = launch.run(addcmul(), [transposed, a, torch.rand(())], [0.0])
    assert_close(found, transposed.clone())


def test_nothing_warns_where_there_is_a_compiler() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch.run(chain(), [torch.rand(2), torch.rand(2)])


@pytest.mark.gpu
def test_numbers_on_the_cpu_go_along_to_the_gpu() -> None:
    a, b = torch.rand(3, device="cuda"), torch.rand(())
    (found,) = launch.run(routine("mul.Tensor", [F32, F32]), [a, b])
    assert_close(found, a * b)
    (found,) = launch.run(routine("mul.Tensor", [F32, F32]), [b, a])
    assert_close(found, a * b)
