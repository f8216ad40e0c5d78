"""How long calls take, measured side by side.

Comes in: functions without arguments, by name. Goes out: the median seconds of a call
of each. They take turns, so that what disturbs the machine disturbs all alike, and each
turn is long enough for the clock.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

import torch

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a call, in each turn."""

    turns: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.turns)

    def faster_than(self, other: Timing) -> float:
        """How many times: the median over the turns, each measured side by side."""
        pairs = zip(other.turns, self.turns, strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)


def interleaved(
    calls: Mapping[str, Call], *, seconds: float = 0.5, turns: int = 15
) -> dict[str, Timing]:
    """Time the calls in turn; about `seconds` in all, with at least three turns each.

    The first call of each, which may compile, is not counted.
    """
    counts: dict[str, int] = {}
    share = seconds / (turns * max(len(calls), 1))
    for name, call in calls.items():
        call()
        counts[name] = max(1, round(share / max(_once(call, 1), 1e-9)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    end = perf_counter() + seconds
    for turn in range(turns):
        if turn >= 3 and perf_counter() > end:
            break
        for name, call in calls.items():
            found[name].append(_once(call, counts[name]))
    return {name: Timing(tuple(times)) for name, times in found.items()}


def keep_memory() -> None:
    """Have the C library keep what is freed, for both sides of a comparison.

    Else it gives memory back to the system at times, and a new output costs a page
    fault for each 4 KiB: more than a kernel. Does nothing where there is no such
    setting, and cannot be undone.
    """
    trim_threshold, mmap_threshold = -1, -3  # of glibc's malloc.h
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(mmap_threshold, 32 << 20)  # the most that it takes
        mallopt(trim_threshold, 1 << 30)


def give_back() -> None:
    """Give the memory that is free back to the system, between measurements.

    What an operator leaves for good, its programs and plans, lies in pieces where
    outputs have been, and what is left of their places is too small for the next ones:
    a heap that is kept grows by dozens of MB with each operator. Does nothing where the
    C library has no such call.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _once(call: Call, count: int) -> float:
    """Seconds of a call, over `count` of them."""
    begin = perf_counter()
    for _ in range(count):
        call()
    _wait()
    return (perf_counter() - begin) / count


def _wait() -> None:
    """GPUs work on while Python does: wait for them."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
