"""Settings: from the environment and by calls, and what a wrong one says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import atentriton
from atentriton import ops, settings
from atentriton.decisions import Launched, watched
from atentriton.settings import Settings, chosen

ROOT = str(Path(__file__).resolve().parent.parent)


def targets(x: Tensor) -> set[str]:
    """Where the kernels of a forward and a backward run."""
    with watched() as events:
        ops.tanh(x.detach().requires_grad_()).sum().backward()
    return {e.target for e in events if isinstance(e, Launched)}


def test_defaults() -> None:
    made = Settings({})
    assert made.backend == "auto"
    assert not (made.strict or made.disabled or made.log)


@pytest.mark.parametrize("text", ["1", "true", "YES", " on "])
def test_flags_that_are_on(text: str) -> None:
    made = Settings({"ATENTRITON_STRICT": text, "ATENTRITON_LOG": text})
    assert made.strict and made.log and not made.disabled


@pytest.mark.parametrize("text", ["0", "", "False", "no", "off"])
def test_flags_that_are_off(text: str) -> None:
    assert not Settings({"ATENTRITON_DISABLE": text}).disabled


def test_wrong_values_say_what_is_right() -> None:
    with pytest.raises(ValueError, match="ATENTRITON_LOG is 'maybe'; it is 1 to turn"):
        Settings({"ATENTRITON_LOG": "maybe"})
    with pytest.raises(ValueError, match="'natve'; did you mean 'native'"):
        Settings({"ATENTRITON_BACKEND": "natve"})
    with pytest.raises(ValueError, match="there is auto, triton, native, reference"):
        atentriton.backend("cuda")
    assert chosen.backend == Settings().backend


def test_a_wrong_environment_stops_the_first_use() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import atentriton; atentriton.use()"],
        env=os.environ | {"PYTHONPATH": ROOT, "ATENTRITON_BACKEND": "trition"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "ValueError: there is no backend called 'trition'; did you mean 'triton'?; "
        "there is auto, triton, native, reference"
    )


@pytest.mark.parametrize("name", ["reference", "native"])
def test_a_backend_holds_for_a_block(name: str) -> None:
    x = torch.rand(5)
    before = targets(x)
    with atentriton.backend(name):
        assert targets(x) == {name}
        with atentriton.backend("native"):
            assert targets(x) == {"native"}
        assert targets(x) == {name}
        found = ops.tanh(x)
    assert torch.allclose(found, x.tanh())
    assert targets(x) == before


def test_a_backend_from_here_on() -> None:
    before = chosen.backend
    try:
        atentriton.backend("reference")
        assert targets(torch.rand(5)) == {"reference"}
    finally:
        atentriton.backend(before)


def test_calls_that_were_quick_are_worked_out_anew() -> None:
    x = torch.rand(5)
    for _ in range(3):
        ops.tanh(x)
    changed: list[str] = []
    settings.chosen.changed.append(lambda: changed.append(chosen.backend))
    try:
        with atentriton.backend("reference"), atentriton.backend("reference"):
            ops.tanh(x)
    finally:
        settings.chosen.changed.pop()
    assert changed == ["reference", Settings().backend]


def test_a_backend_that_cannot_take_the_device() -> None:
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("Triton's interpreter takes tensors of the CPU")
    x = torch.rand(5)
    with (
        atentriton.backend("triton"),
        pytest.raises(RuntimeError, match=r"(?i)triton.*cpu"),
    ):
        ops.acosh(x)
    ops.acosh(x)


def test_strict_holds_for_a_block() -> None:
    assert not chosen.strict
    with atentriton.strict():
        assert chosen.strict
        with atentriton.strict(False):
            assert not chosen.strict
        assert chosen.strict
    assert not chosen.strict


def test_errors_put_settings_back() -> None:
    with pytest.raises(ZeroDivisionError), atentriton.strict():
        raise ZeroDivisionError
    assert not chosen.strict


def test_names_of_the_package() -> None:
    assert {"use", "enable", "disable", "explain", "strict", "backend", "ops"} <= set(
        dir(atentriton)
    )
    for name in atentriton.__all__:
        assert getattr(atentriton, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'ues'"):
        atentriton.ues  # type: ignore[attr-defined]  # noqa: B018


def test_things_that_are_no_names() -> None:
    with pytest.raises(ValueError, match="no backend called 3; there is auto"):
        settings.backend(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="given by their names, not as 5"):
        atentriton.use(include=5)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="'fused'; did you mean 'fuse'"):
        getattr(atentriton, "fused")  # noqa: B009
