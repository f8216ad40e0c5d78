"""`explain`, the log, strict mode: what ran, from which formula, and why not ours."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import atentriton
from atentriton import decisions, explain, ops
from atentriton.decisions import Decision, FellBack, Launched, watched

ROOT = str(Path(__file__).resolve().parent.parent)


@pytest.fixture
def x() -> Tensor:
    return torch.rand(4, 8)


def step(x: Tensor) -> Tensor:
    w = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad((w.tanh() * 2).sum(), w)
    return gradient


def test_what_ran(x: Tensor) -> None:
    found = explain(step, x)
    assert torch.equal(found.result, step(x)) or found.result.allclose(step(x))
    assert found.decisions == (
        Decision("tanh", "fused"),
        Decision("mul.Scalar", "fused"),
    )
    assert found.fell_back == ()
    assert [e for e in found.events if isinstance(e, Launched)] == [*found.launches]
    forward = found.launches[0]
    assert forward.lineage == "tanh(float32)"
    assert (forward.kernels, forward.elements) == (1, 32)
    assert (forward.read, forward.written) == (4 * 32, 4 * 32)
    assert forward.formulas and "tanh" in forward.formulas[0]
    assert any(".vjp(" in launch.lineage for launch in found.launches)
    assert found.kernels == sum(launch.kernels for launch in found.launches) >= 3


def test_it_takes_arguments_and_gives_the_result(x: Tensor) -> None:
    def fn(a: Tensor, /, *, fn: float) -> Tensor:
        return torch.add(a, a, alpha=fn)

    assert torch.equal(explain(fn, x, fn=2.0).result, x * 3)


def test_what_did_not_run_and_why(x: Tensor) -> None:
    result = torch.empty_like(x)
    found = explain(lambda: torch.tanh(x.acosh_(), out=result))
    assert found.fell_back == (Decision("tanh", "torch", "the result goes to out="),)
    assert found.decisions[0] == Decision("acosh_", "fused")


def test_matrix_products(x: Tensor) -> None:
    found = explain(torch.mm, x, x.t())
    assert found.decisions == (Decision("mm", "matrix"),)
    assert found.launches == ()
    assert "matrix" in str(found)


def test_printed(x: Tensor) -> None:
    text = str(explain(lambda: torch.tanh(step(x) + step(x), out=x.clone())))
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == ["operator", "ran", "as", "why"]
    assert ["tanh", "x2", "fused"] in lines
    assert ["tanh", "torch", "the", "result", "goes", "to", "out="] in lines
    (launched,) = [" ".join(line) for line in lines if line[:1] == ["tanh(float32)"]]
    assert launched == "tanh(float32) x2 1 native 32 128 128"
    assert "7 operators, 1 PyTorch's own; " in text
    assert "\x1b" not in text


def test_nothing_to_tell(x: Tensor) -> None:
    found = explain(lambda: x.sum())
    assert found.events == () and found.kernels == 0
    assert str(found).startswith("no operator of those that are replaced was called")


def test_a_use_that_holds_goes_on(x: Tensor) -> None:
    with atentriton.use(include="tanh"):
        found = explain(lambda: x.tanh() * 2)
    assert found.decisions == (Decision("tanh", "fused"),)


def test_calls_through_ops_are_seen(x: Tensor) -> None:
    for _ in range(3):
        ops.tanh(x)
    with watched() as events:
        ops.tanh(x)
        ops.tanh_(x)
    decided = [e.operator for e in events if isinstance(e, Decision)]
    assert decided == ["tanh", "tanh_"]
    assert not decisions.watch.on


def test_losses_say_that_they_are_reduced_by_torch(x: Tensor) -> None:
    found = explain(F.mse_loss, x, x * 2)
    assert Decision("mse_loss", "fused") in found.decisions


def test_an_error_ends_the_watch(x: Tensor) -> None:
    with pytest.raises(TypeError):
        explain(lambda: x.tanh(1))  # type: ignore[call-arg]
    assert not decisions.watch.on
    assert torch._C._len_torch_function_stack() == 0


# -- strict mode
# -----------------------------------------------------------------------


def test_strict_raises_before_anything_is_written(x: Tensor) -> None:
    result = torch.zeros_like(x)
    with (
        atentriton.use(),
        atentriton.strict(),
        pytest.raises(FellBack, match=r"tanh falls back .*out= \(strict mode is on\)"),
    ):
        torch.tanh(x, out=result)
    assert not result.any()
    with atentriton.strict(), pytest.raises(FellBack):
        explain(lambda: torch.eye(2).to_sparse().tanh())


def test_strict_lets_pass_what_is_not_replaced(x: Tensor) -> None:
    with atentriton.strict():
        found = explain(lambda: x.cumsum(0).unsqueeze(0).tanh())
    assert found.decisions == (Decision("tanh", "fused"),)
    with atentriton.use(exclude="tanh"), atentriton.strict():
        torch.tanh(x, out=x)


# -- the log
# ---------------------------------------------------------------------------


def test_the_log_has_each_line_once(
    x: Tensor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decisions.chosen, "log", True)
    monkeypatch.setattr(decisions, "_logged", set())
    result = torch.empty_like(x)
    with caplog.at_level(logging.INFO, "atentriton"), atentriton.use():
        for _ in range(3):
            explain(lambda: torch.tanh(x.acosh(), out=result))
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "acosh: fused",
        "acosh(float32): 1 native kernel, 32 elements",
        "tanh: torch, the result goes to out=",
    ]


def test_the_environment_turns_the_log_and_strictness_on() -> None:
    code = (
        "import torch, atentriton\n"
        "x = torch.ones(3)\n"
        "with atentriton.use():\n"
        "    x.tanh(); x.tanh()\n"
        "    torch.tanh(x, out=x)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {"PYTHONPATH": ROOT, "ATENTRITON_LOG": "1", "ATENTRITON_STRICT": "1"},
        capture_output=True,
        text=True,
    )
    assert result.stderr.count("atentriton: tanh: fused\n") == 1
    assert result.stderr.splitlines()[-1] == (
        "atentriton.decisions.FellBack: tanh falls back to PyTorch: the result goes to "
        "out= (strict mode is on)"
    )
