"""One pool of threads for PyTorch's kernels and ours.

Comes in: nothing. Goes out: whether the OpenMP library that PyTorch has loaded can
serve our kernels. Kernels are not linked to a library of their own: a second one would
bring a second pool of threads, and torch.set_num_threads would not count.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

import torch

_LIBRARY = re.compile(r"/lib(gomp|iomp5|omp)\b[^/]*$")


@cache
def share() -> bool:
    """Make the loaded OpenMP library visible to kernels; False where there is none."""
    for path in (*_of_torch(), *_loaded()):
        try:
            library = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        if hasattr(library, "GOMP_parallel"):  # what GCC's parallel loops call
            return True
    return False


def _of_torch() -> list[Path]:
    """The library that a wheel of PyTorch brings along."""
    root = Path(torch.__file__).parent
    return sorted((root / "lib").glob("libgomp*.so*"))


def _loaded() -> list[Path]:
    """OpenMP libraries in this process, such as one from Conda."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    paths = {line[line.index("/") :] for line in maps.splitlines() if "/" in line}
    return [Path(p) for p in sorted(paths) if _LIBRARY.search(p)]
