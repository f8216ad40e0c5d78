"""Functions over tensors that formulas call and that no kernel of one element can be.

Comes in: tensors and sizes, as the formula gives them. Goes out: tensors,
differentiably. One file a theme; `FUNCTIONS` has them all by the name that formulas
use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atentriton.helpers import (
    cholesky,
    complexes,
    ctc,
    cumulative,
    decompositions,
    determinants,
    fourier,
    indexing,
    language,
    layers,
    linalg,
    lu,
    memory,
    moments,
    norms,
    reductions,
    sampling,
    solving,
    sparse,
    spectral,
    views,
)

_THEMES = (
    *(cholesky, complexes, ctc, cumulative, decompositions, determinants, fourier),
    *(indexing, language, layers, linalg, lu, memory, moments, norms, reductions),
    *(sampling, solving, sparse, spectral, views),
)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function for theme in _THEMES for name, function in theme.FUNCTIONS.items()
}
