"""Derivatives of complex numbers made of real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


def polar_backward(grad: Tensor, result: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of r and t from that of r exp(i t): r exp(i t) changes by itself
    over r with the one, and by i times itself with the other; r counts as positive."""
    turned = grad.conj()
    return (turned * result.sgn()).real, (turned * result * 1j).real


FUNCTIONS: dict[str, Callable[..., Any]] = {"polar_backward": polar_backward}
