"""PyTorch operators, and their derivatives of any order, compiled from formulas.

    from atentriton import ops
    y = ops.acosh(x)

`import atentriton` itself is cheap; the formulas are read when something is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atentriton import ops as ops
    from atentriton.decisions import FellBack as FellBack
    from atentriton.explaining import explain as explain
    from atentriton.fusing import FusionError as FusionError
    from atentriton.fusing import fuse as fuse
    from atentriton.override import disable as disable
    from atentriton.override import enable as enable
    from atentriton.override import use as use
    from atentriton.settings import backend as backend
    from atentriton.settings import strict as strict

__version__ = "0.1.0"

# Where each name is; a module is imported when one of its names is used.
_PLACES = {
    "FellBack": "decisions",
    "FusionError": "fusing",
    "backend": "settings",
    "disable": "override",
    "enable": "override",
    "explain": "explaining",
    "fuse": "fusing",
    "strict": "settings",
    "use": "override",
}
__all__ = ["ops", "register", *_PLACES]


def register() -> None:
    """Make every operator known to torch.ops.atentriton.

    One that is used is registered by that; a program which torch.export has saved needs
    its operators before it can be loaded.
    """
    from atentriton import registry

    registry.register_all()


def __getattr__(name: str) -> Any:
    if name == "ops":
        return import_module("atentriton.ops")
    place = _PLACES.get(name)
    if place is None:
        from fuser.errors import nearest

        guess = None if name.startswith("_") else nearest(name, __all__)
        hint = f"; did you mean '{guess}'?" if guess else ""
        raise AttributeError(f"module 'atentriton' has no attribute '{name}'{hint}")
    return getattr(import_module(f"atentriton.{place}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
