"""Functions over tensors that formulas call and that no kernel of one element can be.

Comes in: tensors and sizes, as the formula gives them. Goes out: tensors,
differentiably. One file a theme; `FUNCTIONS` has them all by the name that formulas
use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atentriton.helpers import linalg

FUNCTIONS: dict[str, Callable[..., Any]] = {**linalg.FUNCTIONS}
