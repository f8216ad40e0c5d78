"""Every private name of PyTorch that the package says, also inside of functions."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import atentriton

PACKAGE = Path(atentriton.__file__).parent


def is_private(dotted: str) -> bool:
    parts = dotted.split(".")
    named = [p for p in parts if p.startswith("_") and not p.startswith("__")]
    return parts[0] == "torch" and bool(named)


def dotted(node: ast.expr) -> str:
    """`torch._C.name` as text; nothing for what is no chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return before and f"{before}.{node.attr}"
    return ""


def private_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found = [dotted(node)]
        else:
            continue
        yield from filter(is_private, found)


def used() -> dict[str, str]:
    """The names, each with a file that says it."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in private_names(ast.parse(path.read_text())):
            found.setdefault(name, str(path.relative_to(PACKAGE)))
    return found


def resolve(name: str) -> object:
    """What the name stands for; modules on the way are imported."""
    value: object = torch
    at = "torch"
    for part in name.split(".")[1:]:
        at = f"{at}.{part}"
        if not hasattr(value, part):
            value = importlib.import_module(at)
        else:
            value = getattr(value, part)
    return value


NAMES = used()


def test_there_are_some() -> None:
    assert "torch._C._functorch.peek_interpreter_stack" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_exists(name: str) -> None:
    try:
        resolve(name)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{NAMES[name]} needs {name}: {error}")
