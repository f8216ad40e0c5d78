"""A mapping whose values are made when they are asked for.

Comes in: a function for each name. Goes out: the mapping; each function is called once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class Shelf(Mapping[str, T]):
    """Names, and what stands under them; in order, and nothing is made by looking."""

    def __init__(self, makers: Mapping[str, Callable[[], T]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        found = self._made.get(name)
        if found is None:
            found = self._made.setdefault(name, self._makers[name]())
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
