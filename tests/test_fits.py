"""The coefficients in the source are those that tools/fit.py finds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fuser import bessel, errorfunctions


def _load() -> ModuleType:
    path = Path(__file__).parent.parent / "tools" / "fit.py"
    spec = importlib.util.spec_from_file_location("fit", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fit"] = module
    spec.loader.exec_module(module)
    return module


FIT = _load()


@pytest.mark.parametrize("fit", FIT.FITS, ids=lambda f: f"{f.table}-{f.bits}")
def test_the_source_has_the_coefficients(fit: Any) -> None:
    module = errorfunctions if fit.table.startswith("_ERF") else bessel
    assert getattr(module, fit.table)[fit.bits] == fit.coefficients()
