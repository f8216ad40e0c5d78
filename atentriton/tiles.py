"""How the programs of a Triton kernel share an index space.

Comes in: a `Layout`, sizes, and the elements of a program. Goes out: a `Cut`, with the
number of programs, and of the tiles in them where outputs are sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fuser.memory import Access, Layout

NARROW = 32
"""Columns that a tile has at least, where there are as many: a line of a cache."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Tiles of so many columns: `heights` times `widths` of them in each batch."""

    columns: int
    batches: int
    heights: int
    widths: int

    @property
    def programs(self) -> int:
        return self.batches * self.heights * self.widths


def cut(layout: Layout, sizes: Sequence[int], block: int) -> Cut:
    """The programs, of `block` elements each, that a space of these sizes takes."""
    if layout.tile is None or layout.is_line:
        return Cut(block, 1, 1, _up(math.prod(sizes), block))
    return _tiled(layout, tuple(sizes), block)


@lru_cache(maxsize=1024)
def _tiled(layout: Layout, sizes: tuple[int, ...], block: int) -> Cut:
    """The cheapest of the tiles that there may be."""
    tile = layout.tile
    assert tile is not None
    outside = sizes[: len(sizes) - 1 - tile.dims]
    rows, size = math.prod(sizes[len(outside) : -1]), sizes[-1]
    outputs = layout.access[len(layout.access) - len(layout.summed) :]
    pairs = zip(outputs, layout.summed, strict=True)
    keeping = any(sum_ and access is not Access.UNIFORM for access, sum_ in pairs)

    def cost(found: Cut) -> int:
        """Elements that are visited, and sums that are written and read again."""
        places = found.heights * size if keeping else rows * found.widths
        return found.batches * (found.heights * found.widths * block + 2 * places)

    most = min(block, 1 << (size - 1).bit_length())
    found = [
        Cut(n, math.prod(outside), _up(rows, block // n), _up(size, n))
        for n in (most >> k for k in range(most.bit_length()))
        if n >= min(NARROW, most)
    ]
    return min(found, key=cost)


def _up(number: int, by: int) -> int:
    return -(-number // by)
