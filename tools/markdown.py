"""What the pages that tools write have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, from its columns' names and its rows of cells."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for cells in rows:
        yield f"| {' | '.join(cells)} |"
