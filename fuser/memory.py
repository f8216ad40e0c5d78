"""How a kernel walks through memory, as far as its code depends on it.

Comes in: nothing. Goes out: `Layout`, which with a program decides a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fuser.dtypes import DType


class Access(Enum):
    """The stride, in elements, along the innermost dimension."""

    UNIFORM = "uniform"  # 0: one element serves the whole row
    LINEAR = "linear"  # 1
    STRIDED = "strided"  # given at run time


@dataclass(frozen=True, slots=True)
class Tile:
    """The elements that a program of a GPU adds up: so many rows of so many columns.

    Columns are elements of the innermost dimension, rows those of the `dims` dimensions
    before it together; what is outside of these is told apart. `down` has, for each
    output, whether the rows are added up to one.
    """

    dims: int
    down: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The key of everything about memory that code depends on.

    `access` has one item for each operand, inputs before outputs. Rank 1 without a
    STRIDED operand is the flat loop. `index` is int32 or int64: the type of offsets.
    `summed` marks the outputs to whose elements everything is added that falls on them,
    one for each output, or is empty; `tile` is how, where programs do it by tiles. An
    UNIFORM one is then added up along the columns.
    """

    rank: int
    access: tuple[Access, ...]
    index: DType
    summed: tuple[bool, ...] = ()
    tile: Tile | None = None

    @property
    def sums(self) -> bool:
        """Whether some output is a sum."""
        return any(self.summed)

    @property
    def is_line(self) -> bool:
        """Whether elements lie where their number says, in every operand."""
        return self.rank == 1 and Access.STRIDED not in self.access

    @property
    def flat(self) -> bool:
        return self.is_line and not self.sums
