"""What was decided about a call, for who wants to know.

Comes in: what ran for an operator, or a launch, as it is decided. Goes out: the same to
whoever watches, and to the log of the name "atentriton" when ATENTRITON_LOG=1 is set.
While someone watches, repeated calls do not take the quick way, and so are seen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from atentriton.settings import chosen

Ran = Literal["fused", "matrix", "composite", "torch"]


@dataclass(frozen=True, slots=True)
class Decision:
    """An operator was called; `reason` says why PyTorch's own ran, where it did."""

    operator: str
    ran: Ran
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.operator}: {self.ran}{self.reason and f', {self.reason}'}"


@dataclass(frozen=True, slots=True)
class Launched:
    """A program ran: its lineage, its kernels and what they are, bytes in and out."""

    lineage: str
    kernels: int
    target: str
    elements: int
    read: int
    written: int
    formulas: tuple[str, ...]

    def __str__(self) -> str:
        kernels = f"{self.kernels} {self.target} kernel{'s' * (self.kernels != 1)}"
        return f"{self.lineage}: {kernels}, {self.elements} elements"


class Told(Protocol):
    """Another thing that has happened; its text says what."""

    def __str__(self) -> str: ...


Event = Decision | Launched | Told


class FellBack(RuntimeError):
    """An operator that is replaced was left to PyTorch, and strict mode is on."""

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(
            f"{operator} falls back to PyTorch: {reason} (strict mode is on)"
        )


class _Watch:
    """`on` is read wherever a quick way begins."""

    __slots__ = ("lists", "on")

    def __init__(self) -> None:
        self.on = False
        self.lists: list[list[Event]] = []


watch = _Watch()
_log = logging.getLogger("atentriton")
_logged: set[Event] = set()


@contextmanager
def watched() -> Iterator[list[Event]]:
    """All that happens meanwhile, in this process, in order."""
    events: list[Event] = []
    watch.lists.append(events)
    watch.on = True
    try:
        yield events
    finally:
        watch.lists.remove(events)
        watch.on = bool(watch.lists)


def asked() -> bool:
    """Whether anybody wants to know what happens."""
    return watch.on or chosen.log


def decided(operator: str, ran: Ran, reason: str = "") -> None:
    """Tell what ran for an operator, if anybody wants to know."""
    if asked():
        happened(Decision(operator, ran, reason))


def happened(event: Event) -> None:
    """Tell who watches, and the log, which gets the same line once."""
    for events in watch.lists:
        events.append(event)
    if chosen.log and event not in _logged:
        _logged.add(event)
        _handler()
        _log.info("%s", event)


def fell_back(operator: str, reason: str) -> None:
    """PyTorch's own is about to run for `operator`; `FellBack` in strict mode."""
    decided(operator, "torch", reason)
    if chosen.strict:
        raise FellBack(operator, reason)


def _handler() -> None:
    """Lines go to stderr, unless the program has its own handlers."""
    if not _log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        _log.addHandler(handler)
    if _log.level == logging.NOTSET:
        _log.setLevel(logging.INFO)
