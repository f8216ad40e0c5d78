"""How every test runs: on its share of the cores, with fixed seeds, where it can run.

Nothing here imports torch by itself, so that the tests of `fuser` do without it.
"""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

# The same examples on every run and on every machine, however slow it is.
settings.register_profile("atentriton", deadline=None, derandomize=True)
settings.load_profile("atentriton")

# The workers of pytest-xdist share the cores. OpenMP reads this once, when torch loads
# it, so it has to be set before any test module is imported; a test that is about
# threads calls torch.set_num_threads.
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if _WORKERS > 1:
    _THREADS = max(1, (os.cpu_count() or 1) // _WORKERS)
    os.environ.setdefault("OMP_NUM_THREADS", str(_THREADS))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _is_interpreting() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


_AVAILABLE = {"gpu": _has_gpu, "interpreter": _is_interpreting}


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Deselect the tests that ask for what this process does not have."""
    for marker, is_available in _AVAILABLE.items():
        asking = [item for item in items if item.get_closest_marker(marker)]
        if asking and not is_available():
            items[:] = [item for item in items if item not in asking]
            config.hook.pytest_deselected(items=asking)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Random tensors are the same in every run, whatever ran before."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what tests have counted, in whatever worker they ran."""
    totals: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if isinstance(value, int) and getattr(report, "when", "") == "call":
                    totals[name] = totals.get(name, 0) + value
    for name, total in totals.items():
        terminalreporter.write_line(f"{total:,} {name}")
