"""Every entry with a pointwise value against PyTorch, by the formulas alone.

Values, first and second derivatives and tangents are compared in float64 and
complex128; nothing is built (see `tests/stepwise.py`): only formulas can be wrong.
"""

from __future__ import annotations

import pytest

from atentriton import catalogue, checking
from tests.stepwise import COMPILER, stepwise

NAMES = sorted(
    name
    for name, entry in COMPILER.entries.items()
    if name in catalogue.valued() and catalogue.aten(name) and not entry.view
)
# torch refuses the gradient of a complex silu, and its tangent is not the derivative.
WRONG_IN_TORCH = (("silu", "jvp"),)


@pytest.mark.parametrize("name", NAMES)
def test_entry(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking.operators, "make", stepwise)
    report = checking.check(name, quick=True)
    failures = [f for f in report.failures if (name, f.kind) not in WRONG_IN_TORCH]
    assert not failures, "\n".join(map(str, failures))
    assert report.measures or name.startswith("bitwise")  # which takes no floats
