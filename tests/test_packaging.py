"""What is installed works away from the source tree, and imports point one way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Run by the interpreter under test, in a folder that has nothing to do with the source.
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
import fuser
for module in pkgutil.walk_packages(fuser.__path__, "fuser."):
    importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""

LOOK_AROUND = """
import json
from importlib.metadata import entry_points
import atentriton, fuser
from fuser.resources import resource
(command,) = entry_points(group="console_scripts", name="atentriton")
print(json.dumps({
    "packages": [fuser.__file__, atentriton.__file__],
    "resources": {name: str(resource(name)) for name in NAMES},
    "command": callable(command.load()),
}))
"""


def run_python(script: str, cwd: Path, path: Path) -> str:
    """What `script` prints when run in `cwd` with `path` first on the import path."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def data_files() -> dict[str, str]:
    """Every file that is not Python: its resource name, and its place in the wheel."""
    files = {"derivatives.yaml": "fuser/_data/derivatives.yaml"}
    for path in (ROOT / "templates").rglob("*"):
        if path.is_file():
            name = path.relative_to(ROOT).as_posix()
            files[name] = f"fuser/_data/{name}"
    for pattern in ("*.lark", "*.yaml"):
        for path in (ROOT / "fuser").rglob(pattern):
            name = path.relative_to(ROOT / "fuser").as_posix()
            files[name] = f"fuser/{name}"
    return files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT))
    (built,) = folder.glob("atentriton-*.whl")
    return built


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_wheel_carries_the_data_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(data_files().values()) <= names
    (info,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    assert {name.partition("/")[0] for name in names} == {"atentriton", "fuser", info}
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE"} <= names


@pytest.mark.slow
def test_installed_wheel_works_from_any_directory(wheel: Path, tmp_path: Path) -> None:
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip("install", "--no-deps", "--no-index", "--target", str(target), str(wheel))
    names = list(data_files())
    printed = run_python(f"NAMES = {names!r}\n{LOOK_AROUND}", elsewhere, target)
    seen = json.loads(printed.splitlines()[-1])
    for place in [*seen["packages"], *seen["resources"].values()]:
        assert Path(place).is_relative_to(target)
    assert seen["command"]
    for name, place in seen["resources"].items():
        source = ROOT / name if (ROOT / name).exists() else ROOT / "fuser" / name
        assert Path(place).read_bytes() == source.read_bytes()


def test_compiler_imports_neither_torch_nor_the_runtime(tmp_path: Path) -> None:
    imported = set(run_python(IMPORT_EVERYTHING, tmp_path, ROOT).split())
    assert "fuser" in imported
    assert not imported & {"atentriton", "torch", "triton"}
