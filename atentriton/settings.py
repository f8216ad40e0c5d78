"""What can be set: the backend, strictness, whether anything is replaced, the log.

Comes in: environment variables when the package is first used, then calls. Goes out:
`chosen`, one object for the whole process, which everything reads.

    ATENTRITON_BACKEND=auto|triton|native|reference   ATENTRITON_STRICT=1
    ATENTRITON_DISABLE=1                              ATENTRITON_LOG=1
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

from fuser.errors import nearest

Backend = Literal["auto", "triton", "native", "reference"]
BACKENDS: tuple[Backend, ...] = ("auto", "triton", "native", "reference")

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")


class Settings:
    """What holds for the whole process. `changed` is called when the backend is."""

    __slots__ = ("backend", "changed", "disabled", "log", "strict")

    def __init__(self, environment: Any = os.environ) -> None:
        self.backend: Backend = _backend(environment.get("ATENTRITON_BACKEND", "auto"))
        self.strict = _flag(environment, "ATENTRITON_STRICT")
        self.disabled = _flag(environment, "ATENTRITON_DISABLE")
        self.log = _flag(environment, "ATENTRITON_LOG")
        self.changed: list[Callable[[], None]] = []


def _flag(environment: Any, name: str) -> bool:
    text = environment.get(name, "").strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError(f"{name} is {text!r}; it is 1 to turn on, or 0")


def _backend(name: str) -> Backend:
    for backend in BACKENDS:
        if backend == str(name).strip().lower():
            return backend
    guess = nearest(str(name), BACKENDS)
    hint = f"; did you mean '{guess}'?" if guess else ""
    raise ValueError(
        f"there is no backend called {name!r}{hint}; there is {', '.join(BACKENDS)}"
    )


chosen = Settings()


class _Changed:
    """A setting that has been changed; as a context manager it is put back at the end.

    Settings are the process's: other threads see the change, too.
    """

    def __init__(self, name: str, value: Any) -> None:
        self._name = name
        self._before = getattr(chosen, name)
        _set(name, value)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        _set(self._name, self._before)


def _set(name: str, value: Any) -> None:
    before = getattr(chosen, name)
    setattr(chosen, name, value)
    if before != value:
        for call in chosen.changed:
            call()


def backend(name: str) -> _Changed:
    """Let kernels run there: `auto` (by the device), `triton`, `native` (compiled C) or
    `reference` (PyTorch's operators, step by step).

    For the whole process, from the call on, or in `with atentriton.backend(name):`.
    ValueError for another name. A tensor whose device the backend does not know is an
    error when it is met.
    """
    return _Changed("backend", _backend(name))


def strict(on: bool = True) -> _Changed:
    """Raise `FellBack` where an operator that is replaced would be left to PyTorch.

    For the whole process, from the call on, or in `with atentriton.strict():`.
    """
    return _Changed("strict", bool(on))
