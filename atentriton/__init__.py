"""PyTorch operators, and their derivatives of any order, compiled from formulas.

    from atentriton import ops
    y = ops.acosh(x)

`import atentriton` itself is cheap; the formulas are read when something is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atentriton import ops as ops

__version__ = "0.1.0"
__all__ = ["ops", "register"]


def register() -> None:
    """Make every operator known to torch.ops.atentriton.

    One that is used is registered by that; a program which torch.export has saved needs
    its operators before it can be loaded.
    """
    from atentriton import registry

    registry.register_all()


def __getattr__(name: str) -> Any:
    if name == "ops":
        from importlib import import_module

        return import_module("atentriton.ops")
    raise AttributeError(f"module 'atentriton' has no attribute '{name}'")
