"""Where in a function an operator is called, for messages.

Comes in: a function, and the name of an ATen operator. Goes out: the place in its
source, as text. The function is run once more, on tensors without elements in memory,
while its calls are watched.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_PACKAGES = ("torch.", "atentriton.")


class _Found(Exception):
    pass


class _Frames(TorchFunctionMode):
    """Keeps the frame of the user's code that is calling PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.place: tuple[str, int] | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.place = _user(sys._getframe(1))
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    """Stops at the operator that is looked for."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if _base(str(func)) == self.base:
            raise _Found
        return func(*args, **(kwargs or {}))


def line_of(name: str, flat: Callable[..., Any], given: Sequence[Any]) -> str:
    """The line where `flat(*given)` calls the operator, as ', in FILE, line N: CODE'.

    Empty where it cannot be told.
    """
    tensors = [
        v.detach().to("meta").requires_grad_(v.requires_grad)
        if isinstance(v, Tensor)
        else v
        for v in given
    ]
    frames = _Frames()
    with suppress(Exception), frames, _Operators(_base(name)):
        flat(*tensors)
    if frames.place is None:
        return ""
    file, line = frames.place
    code = linecache.getline(file, line).strip()
    return f"\n  {file}:{line}: {code}"


def innermost(error: BaseException) -> str:
    """The last line of the user's own code that an error came through."""
    place: tuple[str, int] | None = None
    trace = error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if not _ours(module):
            place = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    if place is None:
        return ""
    return f"\n  {place[0]}:{place[1]}: {linecache.getline(*place).strip()}"


def _base(name: str) -> str:
    return name.removeprefix("aten.").removeprefix("aten::").partition(".")[0]


def _user(frame: FrameType | None) -> tuple[str, int] | None:
    while frame is not None:
        if not _ours(frame.f_globals.get("__name__", "")):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _ours(module: str) -> bool:
    return module in ("torch", "atentriton") or module.startswith(_PACKAGES)
