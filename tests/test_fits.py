"""The coefficients in the source are those that the programs in tools/ find."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fuser import bessel, errorfunctions, gammas, incompletegamma

MODULES = (bessel, errorfunctions, gammas, incompletegamma)


def _load(name: str) -> ModuleType:
    path = Path(__file__).parent.parent / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


FITS = [*_load("fit").FITS, *_load("fit_gammas").FITS]


@pytest.mark.parametrize("fit", FITS, ids=lambda f: f"{f.table}-{f.bits}")
def test_the_source_has_the_coefficients(fit: Any) -> None:
    (module,) = (m for m in MODULES if hasattr(m, fit.table))
    assert getattr(module, fit.table)[fit.bits] == fit.coefficients()
