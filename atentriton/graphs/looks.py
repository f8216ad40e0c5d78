"""What of a call decides the graph of a function.

Comes in: the arguments of a call. Goes out: which of them stay open, tensors and
numbers that a graph takes as they come, and what has to be the same of all.
"""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from torch import Tensor

# Between which numbers of a type one stays open: finite ones that kernels take.
BOUNDS: dict[type, tuple[float, float]] = {
    float: (-inf, inf),
    int: (-(2**63) - 1, 2**63),
}


def is_open(value: Any) -> bool:
    """Whether the value is a tensor, or a number that kernels take."""
    if isinstance(value, Tensor):
        return True
    if type(value) not in BOUNDS:
        return False
    low, high = BOUNDS[type(value)]
    return low < value < high


def look_of(leaf: Any) -> Any:
    """What of an argument decides the graph, besides sizes and strides."""
    if isinstance(leaf, Tensor):
        ones = tuple(s < 2 for s in leaf.shape)
        requires = leaf.requires_grad
        return leaf.dtype, leaf.device.type, requires, ones, leaf.is_contiguous()
    return type(leaf) if is_open(leaf) else (type(leaf), leaf)


def autocast_now() -> Any:
    """What autocast is set to, for each kind of device where it is on."""
    if not torch._C._is_any_autocast_enabled():
        return ()
    return tuple(
        (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d))
        for d in ("cpu", "cuda")
        if torch.is_autocast_enabled(d)
    )
