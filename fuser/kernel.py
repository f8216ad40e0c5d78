"""What a kernel is before it has a language: what is scheduled, and then printed.

Comes in: nothing. Goes out: the data classes. A kernel walks an index space of `rank`
dimensions; the innermost is the fast one. Every operand (tensors in, then tensors out)
has an access: how its address moves along the innermost dimension. Sizes, and the
strides of the other dimensions, are arguments of the compiled kernel, never part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fuser.dtypes import DType
from fuser.ir import Node
from fuser.memory import Access as Access
from fuser.memory import Layout as Layout
from fuser.memory import Tile as Tile

# An argument of a statement: the name of a value computed before, or a const node,
# which the target prints as a literal.
Value = Node | str


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor argument; a complex one is an array of interleaved pairs.

    `name` is an identifier; so are, and are given to nothing else, `name` with any of
    `fuser.names.SUFFIXES`. To the elements of a sum is added what is stored there.
    """

    name: str
    dtype: DType
    access: Access
    is_output: bool
    is_sum: bool = False

    @property
    def pointer(self) -> str:
        """The name of the parameter that holds its address."""
        return f"{self.name}_ptr"


@dataclass(frozen=True, slots=True)
class Load:
    """`name` = element of an operand; `part` 0 or 1 picks a component of a complex one.

    `dtype` is the storage type (float16, bool, ...), of a complex operand that of its
    component. Nothing is widened here: an `Assign` of a cast does it.
    """

    name: str
    operand: Operand
    dtype: DType
    part: int | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """A number handed over at call time: `dtype` is bool, int64 or float64.

    A complex number is two arguments, NAME_re and NAME_im.
    """

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Assign:
    """`name` = the node's operation on `args`, with the dtypes of `node.args`."""

    name: str
    node: Node
    args: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop. `state` variables begin as `start`; each of at most `limit` rounds

    1. computes `guard`, and where `proceed` is false ends the loop for that element,
    2. computes `body`,
    3. sets the state to `next`, all at once.

    `proceed` is None for a loop of exactly `limit` rounds; `guard` is then empty. Names
    in `guard` and `body` are local to the round; the state is read afterwards.
    """

    state: tuple[str, ...]
    dtypes: tuple[DType, ...]
    start: tuple[Value, ...]
    guard: tuple[Statement, ...]
    proceed: Value | None
    body: tuple[Statement, ...]
    next: tuple[Value, ...]
    limit: int


Statement = Load | Assign | Repeat


def reads(statement: Statement) -> set[str]:
    """The names of the values that a statement reads, less those it makes itself."""
    if isinstance(statement, Load):
        return set()
    if isinstance(statement, Assign):
        return {a for a in statement.args if isinstance(a, str)}
    inside = (*statement.guard, *statement.body)
    values = {*statement.start, *statement.next, statement.proceed}
    names = {v for v in values if isinstance(v, str)}
    made = {*statement.state}
    for inner in inside:
        names |= reads(inner)
        made.update(writes(inner))
    return names - made


def writes(statement: Statement) -> tuple[str, ...]:
    """The names of the values that a statement makes for those after it."""
    return statement.state if isinstance(statement, Repeat) else (statement.name,)


def typed(statement: Statement) -> Iterable[tuple[str, DType]]:
    """The same names, with the types of the values."""
    if isinstance(statement, Repeat):
        return zip(statement.state, statement.dtypes, strict=True)
    if isinstance(statement, Assign):
        return [(statement.name, statement.node.dtype)]
    return [(statement.name, statement.dtype)]


@dataclass(frozen=True, slots=True)
class Store:
    """Element of the output operand = value (or, for a complex one, two values).

    `dtype` is the type the values have; the store rounds to `operand.dtype`, or to its
    component type.
    """

    operand: Operand
    values: tuple[Value, ...]
    dtype: DType


def stored(stores: Iterable[Store]) -> set[str]:
    """The names of the values that are stored."""
    return {v for s in stores for v in s.values if isinstance(v, str)}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One loop over the index space.

    Operands are the program's inputs and then its outputs, arguments its scalars, in
    the program's order, whether used or not. `prologue` computes, once a call, what
    depends on numbers alone; `body` what each element needs: first every load, in the
    order of the operands, so that an output may share its memory with an input.
    `checks` are bool values; one that is true for any element is an integer division by
    zero, which the kernel reports.
    """

    name: str
    layout: Layout
    operands: tuple[Operand, ...]
    arguments: tuple[Argument, ...]
    prologue: tuple[Statement, ...]
    body: tuple[Statement, ...]
    stores: tuple[Store, ...]
    checks: tuple[str, ...]
    comment: tuple[str, ...]
