"""What formulas say in C++ that is no operator: lists, options, modes.

An optional value that is not there is None, and so is a tensor that is not defined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def _absent() -> None:
    return None


def _same(value: Any) -> Any:
    return value


def _value_or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _wrap_opt_if(tensor: Tensor, condition: bool) -> Tensor | None:
    """A tensor that is kept under a condition only."""
    return tensor if condition else None


def _vector(count: int, item: Any = None) -> list[Any]:
    """As many items."""
    return [item] * count


def _back(items: Sequence[Any]) -> Any:
    return items[-1]


def _reverse_list(items: Sequence[Any]) -> list[Any]:
    return list(reversed(items))


def _fmap(items: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
    return [function(i) for i in items]


def _suggest_memory_format(tensor: Tensor) -> torch.memory_format:
    """The format that the tensor has."""
    by_rank = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = by_rank.get(tensor.dim())
    if wanted is None or tensor.is_contiguous():
        return torch.contiguous_format
    suits = tensor.is_contiguous(memory_format=wanted)
    return wanted if suits else torch.contiguous_format


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Tensor": _absent,
    "IntArrayRef": _same,
    "OptionalArrayRef": _same,
    "optional": _same,
    "value": _same,
    "value_or": _value_or,
    "wrap_opt_if": _wrap_opt_if,
    "vector": _vector,
    "back": _back,
    "reverse_list": _reverse_list,
    "fmap": _fmap,
    "is_enabled": torch.is_grad_enabled,
    "is_contiguous": Tensor.is_contiguous,
    "requires_grad": lambda tensor: tensor is not None and tensor.requires_grad,
    "device": lambda tensor: tensor.device,
    "is_cpu": lambda device: device.type == "cpu",
    "is_xpu": lambda device: device.type == "xpu",
    "suggest_memory_format": _suggest_memory_format,
}
