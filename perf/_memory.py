"""How much memory calls take: what is saved for the backward, and the peak.

Comes in: calls without arguments. Goes out: bytes. Nothing is timed here.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

# The profiler tells of each of its starts on standard error; this keeps it quiet.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


@dataclass(frozen=True, slots=True)
class Saved:
    """Bytes that are kept for the backward: each memory counted once, and what the
    caller has given, and keeps anyhow, counted apart."""

    own: int
    given: int

    def as_json(self) -> dict[str, int]:
        return asdict(self)


def saved(function: Callable[..., Any], given: Sequence[Tensor]) -> Saved:
    """What a call of the function, with gradients, keeps."""
    pairs = [(t, t.requires_grad) for t in given]
    leaves = [t.detach().clone().requires_grad_(w) for t, w in pairs]
    theirs = {t.untyped_storage().data_ptr() for t in leaves}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(*leaves)
    sizes = {p: t.untyped_storage().nbytes() for p, t in kept.items()}
    del result
    return Saved(
        sum(size for p, size in sizes.items() if p not in theirs),
        sum(size for p, size in sizes.items() if p in theirs),
    )


def peak(call: Callable[[], Any], device: str) -> int:
    """The most bytes that a call has allocated at a time, its results included."""
    call()  # what is made once is no part of it
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        result = call()
    found = seen.profiler.kineto_results.events()
    moves = [(e.start_ns(), e.nbytes()) for e in found if e.name() == "[memory]"]
    now = most = 0
    for _, size in sorted(moves, key=lambda move: move[0]):
        now += size
        most = max(most, now)
    del result
    return most
