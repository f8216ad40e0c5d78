"""The examples train: like eager to rounding, from the command line, with a picture."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
# The size and the width at which a step takes no time.
SMALL = {
    "burgers": (32, 8),
    "eikonal": (32, 16),
    "lennard_jones": (2, 3),
    "swiglu_transformer": (4, 16),
}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def examples() -> Iterator[dict[str, ModuleType]]:
    """All scripts and what they share, by name; other folders have a _common too."""
    names = ("_common", *SMALL)
    before = {name: sys.modules.pop(name, None) for name in names}
    yield {name: load(name) for name in names}
    for name, module in before.items():
        del sys.modules[name]
        if module is not None:
            sys.modules[name] = module


def losses(
    examples: dict[str, ModuleType], name: str, way: str, steps: int, dtype: torch.dtype
) -> list[float]:
    common = examples["_common"]
    torch.manual_seed(0)
    size, width = SMALL[name]
    setting = common.Setting(common.WAYS[way], size, width, dtype=dtype)
    session = common.Session(examples[name].build(setting))
    for _ in range(steps):
        session.step()
    return session.losses


@pytest.mark.parametrize("name", SMALL)
def test_trains_like_eager(examples: dict[str, ModuleType], name: str) -> None:
    ours, eager = (
        losses(examples, name, way, 4, torch.float64) for way in ("fuse", "eager")
    )
    assert ours == pytest.approx(eager, rel=1e-9, abs=1e-12)
    assert len(set(ours)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fuse", "backend"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-2)], ids=str
)
@pytest.mark.parametrize("name", SMALL)
def test_fifty_steps_are_those_of_eager(
    examples: dict[str, ModuleType],
    name: str,
    way: str,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    ours, eager = (losses(examples, name, w, 50, dtype) for w in (way, "eager"))
    assert ours == pytest.approx(eager, rel=tolerance)
    assert ours[-1] < ours[0]


@pytest.mark.parametrize("name", SMALL)
def test_runs_from_the_command_line(
    examples: dict[str, ModuleType],
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("matplotlib")
    example, picture = examples[name], tmp_path / "picture.png"
    size, width = SMALL[name]
    small = ["--steps", "3", "--size", str(size), "--width", str(width)]
    assert run(examples, example, [*small, "--json", "--plot", str(picture)]) == 0
    found = json.loads(capsys.readouterr().out)["ways"]["fuse"]
    assert len(found["losses"]) == 3 and all(map(math.isfinite, found["losses"]))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert run(examples, example, [*small, "--eager"]) == 0
    assert "eager" in capsys.readouterr().out


def run(examples: dict[str, ModuleType], example: Any, argv: list[str]) -> int:
    return examples["_common"].main(example.build, example.__doc__, argv)


def test_burgers_exact_solution_solves_the_equation(
    examples: dict[str, ModuleType],
) -> None:
    """Where it is smooth, by central differences; and it is what is given at t = 0."""
    burgers = examples["burgers"]
    x, t, h = torch.linspace(-0.6, -0.3, 7), 0.2, 1e-3
    u = burgers.exact(x, t)
    u_t = (burgers.exact(x, t + h) - burgers.exact(x, t - h)) / (2 * h)
    right, left = (burgers.exact(x.double() + s * h, t) for s in (1, -1))
    u_x, u_xx = (right - left) / (2 * h), (right - 2 * u + left) / h**2
    assert (u_t + u * u_x - burgers.VISCOSITY * u_xx).abs().max() < 1e-3
    assert torch.allclose(burgers.exact(x, 0.0), -torch.sin(math.pi * x.double()))


def test_a_failed_way_says_why(examples: dict[str, ModuleType]) -> None:
    common = examples["_common"]

    def refuse() -> torch.Tensor:
        raise RuntimeError("cannot\nat all")

    weight = torch.zeros(1, requires_grad=True)
    session = common.Session(common.Problem([weight], refuse, print))
    session.try_step()
    session.try_step()
    assert session.as_json(None) == {"losses": [], "failure": "cannot"}


def test_nonsense_is_refused(
    examples: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(examples, examples["burgers"], ["--steps", "0"])
    assert "0 is not positive" in capsys.readouterr().err
