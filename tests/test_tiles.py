"""How programs of Triton kernels share an index space: every element, few of none."""

from __future__ import annotations

import math

import pytest

from atentriton.tiles import cut
from fuser.dtypes import int32
from fuser.memory import Access, Layout, Tile

BLOCK = 1024
LINEAR, UNIFORM = Access.LINEAR, Access.UNIFORM

# The last output is a sum over the rows, or over the columns.
OVER_ROWS = Layout(
    2, (LINEAR, LINEAR, LINEAR), int32, (False, True), Tile(1, (False, True))
)
OVER_COLUMNS = Layout(
    2, (LINEAR, LINEAR, UNIFORM), int32, (False, True), Tile(1, (False, False))
)
LARGE = [(65536, 1024), (1000, 1024), (2, 10**6), (10**6, 3), (10**6, 64), (3, 70000)]
SMALL = [(1, 1), (1, 5), (7, 1), (40, 7), (33, 65)]


@pytest.mark.parametrize("layout", [OVER_ROWS, OVER_COLUMNS], ids=["rows", "columns"])
@pytest.mark.parametrize("sizes", LARGE + SMALL, ids=str)
def test_tiles_cover_everything(layout: Layout, sizes: tuple[int, int]) -> None:
    rows, size = sizes
    found = cut(layout, sizes, BLOCK)
    assert found.columns & (found.columns - 1) == 0
    assert found.columns <= BLOCK
    assert found.columns * found.widths >= size
    assert BLOCK // found.columns * found.heights >= rows
    assert found.programs == found.heights * found.widths


@pytest.mark.parametrize("layout", [OVER_ROWS, OVER_COLUMNS], ids=["rows", "columns"])
@pytest.mark.parametrize("sizes", LARGE, ids=str)
def test_little_of_a_tile_lies_outside(layout: Layout, sizes: tuple[int, int]) -> None:
    """Less than half: 3 columns take up 4, and 1000 rows of 32 are 1024."""
    found = cut(layout, sizes, BLOCK)
    assert found.programs * BLOCK < 1.4 * math.prod(sizes) + BLOCK


@pytest.mark.parametrize("sizes", [(65536, 1024), (10**6, 64), (4096, 4096)], ids=str)
def test_a_sum_over_rows_leaves_few_parts(sizes: tuple[int, int]) -> None:
    """The parts are written and read again: 1 for 32 elements is 3% of a tensor."""
    found = cut(OVER_ROWS, sizes, BLOCK)
    assert found.heights * sizes[1] <= math.prod(sizes) / 30


def test_batches_are_not_cut() -> None:
    layout = Layout(
        3, (LINEAR, LINEAR, LINEAR), int32, (False, True), Tile(1, (False, True))
    )
    assert cut(layout, (5, 40, 100), BLOCK).batches == 5


def test_without_sums_programs_follow_each_other() -> None:
    layout = Layout(2, (LINEAR, LINEAR), int32)
    assert cut(layout, (33, 100), BLOCK).programs == 4
