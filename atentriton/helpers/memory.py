"""Tensors of their own, to be filled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def new_zeros(like: Tensor, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros of those sizes on the device of `like`; `options()` stands for a dtype."""
    return like.new_zeros(sizes, dtype=dtype)


FUNCTIONS: dict[str, Callable[..., Any]] = {"new_zeros": new_zeros}
