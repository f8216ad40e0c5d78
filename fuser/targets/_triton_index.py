"""Where the elements of a Triton program lie.

Comes in: a `Kernel`. Goes out: the sizes and strides that it takes as arguments, and
the lines that find an element's offset in each operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fuser.kernel import Access, Kernel, writes

WIDTH = 88
"""The columns that a line of generated source may have."""


class ShapeParameter(NamedTuple):
    """A size or a stride that the kernel is given.

    `operand` is None for the size of dimension `dim`, else the number of the operand
    whose stride along it this is. A flat kernel has one size, the number of elements.
    """

    name: str
    operand: int | None
    dim: int


def shape_parameters(kernel: Kernel) -> tuple[ShapeParameter, ...]:
    """The sizes and strides that the compiled kernel takes, in order."""
    if kernel.layout.flat:
        return (ShapeParameter("n", None, 0),)
    rank = kernel.layout.rank
    found = [ShapeParameter(f"size_{d}", None, d) for d in range(rank)]
    taken = names_in(kernel)
    for number, operand in enumerate(kernel.operands):
        strided = operand.access is Access.STRIDED
        for dim in range(rank if strided else rank - 1):
            name = unless_taken(f"{operand.name}_stride_{dim}", taken)
            found.append(ShapeParameter(name, number, dim))
    return tuple(found)


def names_in(kernel: Kernel) -> frozenset[str]:
    """Every name that the scheduler has given, less those inside of loops."""
    statements = (*kernel.prologue, *kernel.body)
    return frozenset(
        {o.pointer for o in kernel.operands}
        | {a.name for a in kernel.arguments}
        | {name for s in statements for name in writes(s)}
    )


def unless_taken(name: str, taken: frozenset[str]) -> str:
    """The name, or one like it; no name of a value begins with an underscore."""
    return f"_{name}" if name in taken else name


def added(name: str, values: list[str]) -> list[str]:
    """The lines that give the name the sum of the values."""
    line = f"{name} = {' + '.join(values)}"
    if len(line) <= WIDTH - 4:
        return [line]
    more = [f"    + {value}" for value in values[1:]]
    return [f"{name} = (", f"    {values[0]}", *more, ")"]


def divided(sizes: list[str]) -> Iterator[str]:
    """The lines that take the number of an element apart, one index a dimension."""
    rest = "index"
    for dim in reversed(range(1, len(sizes))):
        yield f"dim{dim} = {rest} % {sizes[dim]}"
        yield f"rest = {rest} // {sizes[dim]}"
        rest = "rest"
    yield f"dim0 = {rest}"


def terms(kernel: Kernel, number: int, shape: Iterable[ShapeParameter]) -> list[str]:
    """What the offset of operand `number` is the sum of."""
    found = [f"dim{p.dim} * {p.name}" for p in shape if p.operand == number]
    if not found or kernel.operands[number].access is Access.LINEAR:
        found.append(f"dim{kernel.layout.rank - 1}")
    return found
