"""The languages kernels are printed in: one module a target, found by its name.

To add a target is to add a module `fuser/targets/NAME.py` that has a `TARGET`, and the
template it names. A module whose name begins with `_` is a part of one.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from fuser.errors import nearest
from fuser.targets.base import Target


def names() -> tuple[str, ...]:
    """The names of all targets, sorted."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(n for n in found if n != "base" and not n.startswith("_")))


@cache
def target(name: str) -> Target:
    """The target called `name` (`native`, `triton`); KeyError with the nearest name."""
    if name not in names():
        guess = nearest(name, names())
        hint = f'; did you mean "{guess}"?' if guess else f"; there are {names()}"
        raise KeyError(f'no target is called "{name}"{hint}')
    found = import_module(f"{__name__}.{name}").TARGET
    assert isinstance(found, Target), f"{name}.TARGET is not a Target"
    return found
