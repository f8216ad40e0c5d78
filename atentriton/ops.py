"""The operators by their ATen names: `ops.acosh(x)`, `ops.add.Tensor(x, y, alpha=2)`.

Comes in: attribute names. Goes out: callables that mirror torch.ops.aten and compute by
the formulas of derivatives.yaml: values, and derivatives of any order. A name with an
underscore at its end works in place. Their docstrings show signatures and formulas.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from torch.compiler import is_compiling

from atentriton import binding, catalogue
from atentriton.operators import Overload, Quick, make
from atentriton.sites import MISS, Sites
from fuser.errors import nearest


class Packet:
    """The overloads of an operator; a call goes to the one that its arguments fit."""

    def __init__(self, base: str, overloads: dict[str, Overload]) -> None:
        self.__name__ = self.__qualname__ = base
        self.__doc__ = "\n\n".join(str(o.__doc__) for o in overloads.values())
        self._overloads = overloads
        self._only = next(iter(overloads.values())) if len(overloads) == 1 else None
        self._chosen: dict[Any, Overload] = {}
        self._sites = Sites()

    def __repr__(self) -> str:
        return f"<atentriton operator {self.__name__}: {', '.join(self._overloads)}>"

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._overloads})

    def __getattr__(self, name: str) -> Overload:
        if name.startswith("_") or name not in self._overloads:
            raise AttributeError(
                f"the operator {self.__name__} has no overload '{name}'"
                f"{_hint(name, self._overloads)}; there is {', '.join(self._overloads)}"
            )
        return self._overloads[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.__name__,)  # copies and pickles are the operator itself

    def overloads(self) -> list[str]:
        """The names of the overloads; one without a name is called `default`."""
        return list(self._overloads)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        found = self._sites.call(args, kwargs)
        if found is not MISS:
            return found
        overload = self._choose(args, kwargs)
        if isinstance(overload, Quick):
            return overload.anew(args, kwargs, self._sites)
        return overload(*args, **kwargs)

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Overload:
        if self._only is not None:
            return self._only
        if is_compiling():
            return self._resolve(args, kwargs)
        key = (tuple(map(type, args)), tuple((k, type(v)) for k, v in kwargs.items()))
        found = self._chosen.get(key)
        if found is None:
            found = self._chosen[key] = self._resolve(args, kwargs)
        return found

    def _resolve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Overload:
        """The overload for these arguments; TypeError where there is none.

        One that takes the arguments as they are goes before one that would take a
        number out of a tensor.
        """
        for exact in (True, False):
            for overload in self._overloads.values():
                if binding.accepts(overload.signature, args, kwargs, exact):
                    return overload
        signatures = [o.signature for o in self._overloads.values()]
        raise binding.invalid_combination(self.__name__, signatures, args, kwargs)


def _named(base: str, overload: str | None = None) -> Any:
    packet = globals().get(base) or __getattr__(base)
    return packet if overload is None else getattr(packet, overload)


def _hint(name: str, known: Iterable[str]) -> str:
    guess = nearest(name, known)
    return f"; did you mean '{guess}'?" if guess else ""


def __getattr__(name: str) -> Packet:
    asked = not name.startswith("__") or hasattr(operator, name)  # as __lshift__
    overloads = catalogue.overloads_of(name) if asked else {}
    if not overloads:
        raise AttributeError(
            f"there is no operator called '{name}'{_hint(name, catalogue.names())}"
        )
    packet = Packet(name, {short: make(full) for short, full in overloads.items()})
    globals()[name] = packet
    return packet


def __dir__() -> list[str]:
    return sorted(catalogue.names())
