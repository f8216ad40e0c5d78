"""Where the elements of a Triton program lie.

Comes in: a `Kernel`. Goes out: the sizes and strides that it takes as arguments, and
the lines that find an element's offset in each operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fuser.kernel import Access, Kernel, Operand, Tile, writes

WIDTH = 88
"""The columns that a line of generated source may have."""


class ShapeParameter(NamedTuple):
    """A size or a stride that the kernel is given.

    `operand` is None for the size of dimension `dim`, else the number of the operand
    whose stride along it this is. A kernel of one dimension without strides has one
    size, the number of elements.
    """

    name: str
    operand: int | None
    dim: int


def shape_parameters(kernel: Kernel) -> tuple[ShapeParameter, ...]:
    """The sizes and strides that the compiled kernel takes, in order."""
    rank = kernel.layout.rank
    if kernel.layout.is_line:
        return (ShapeParameter("n", None, 0),)
    found = [ShapeParameter(f"size_{d}", None, d) for d in range(rank)]
    taken = names_in(kernel)
    for number, operand in enumerate(kernel.operands):
        if operand.is_sum:
            continue
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


def divided(sizes: Sequence[str], number: str = "index", first: int = 0) -> list[str]:
    """The lines that take the number of an element apart, one index a dimension.

    The sizes are those of dimension `first` and of as many after it.
    """
    lines: list[str] = []
    for dim in reversed(range(first + 1, first + len(sizes))):
        size = sizes[dim - first]
        lines += [f"dim{dim} = {number} % {size}", f"rest = {number} // {size}"]
        number = "rest"
    if sizes:
        lines.append(f"dim{first} = {number}")
    return lines


def tiled(program: str, sizes: Sequence[str], tile: Tile) -> list[str]:
    """The lines that find the elements of a program's tile, and its own place.

    `batch` numbers what is outside of the tiles, `top` and `left` are the first row and
    column; there are `heights` times `widths` tiles to each batch.
    """
    outside, inside = sizes[: -1 - tile.dims], sizes[-1 - tile.dims : -1]
    last = len(sizes) - 1
    return [
        "ROWS: tl.constexpr = BLOCK // COLUMNS",
        "lane = tl.arange(0, BLOCK)",
        *added("rows", [" * ".join(inside) or "1"]),
        "heights = tl.cdiv(rows, ROWS)",
        f"widths = tl.cdiv({sizes[-1]}, COLUMNS)",
        f"program = {program}",
        "left = program % widths * COLUMNS",
        "top = program // widths % heights * ROWS",
        "batch = program // widths // heights",
        f"dim{last} = left + lane % COLUMNS",
        "row = top + lane // COLUMNS",
        f"mask = (dim{last} < {sizes[-1]}) & (row < rows)",
        *divided(inside, "row", len(outside)),
        *divided(outside, "batch"),
    ]


def tile_sums(
    operand: Operand, at: str, down: bool, value: str, last: str
) -> list[str]:
    """The lines that add up the elements of a tile and store what remains of it.

    `at` names the offsets, `last` the size of the innermost dimension. Every program
    has a place of its own in a contiguous buffer: of the tiles of each batch, or of
    their rows or columns.
    """
    total, address = f"{operand.name}_total", f"{operand.pointer} + {at}"
    whole = f"tl.reshape(tl.where(mask, {value}, 0.0), [ROWS, COLUMNS])"
    lines = [f"{total} = {whole}"]
    if operand.access is not Access.UNIFORM:
        assert down, "nothing would be added up"
        columns = "left + tl.arange(0, COLUMNS)"
        lines += added(at, [f"(batch * heights + top // ROWS) * {last}", columns])
        kept = f"tl.sum({total}, 0)", f"{columns} < {last}"
    elif not down:
        rows = "top + tl.arange(0, ROWS)"
        lines += added(at, [f"(batch * rows + {rows}) * widths", "left // COLUMNS"])
        kept = f"tl.sum({total}, 1)", f"{rows} < rows"
    else:
        address, kept = f"{operand.pointer} + program", (f"tl.sum({total})",)
    return [*lines, *stored(address, *kept)]


def stored(*arguments: str) -> list[str]:
    """The lines of a store."""
    line = f"tl.store({', '.join(arguments)})"
    if len(line) <= WIDTH - 4:
        return [line]
    return ["tl.store(", *(f"    {argument}," for argument in arguments), ")"]


def terms(kernel: Kernel, number: int, shape: Iterable[ShapeParameter]) -> list[str]:
    """What the offset of operand `number` is the sum of."""
    found = [f"dim{p.dim} * {p.name}" for p in shape if p.operand == number]
    if not found or kernel.operands[number].access is Access.LINEAR:
        found.append(f"dim{kernel.layout.rank - 1}")
    return found
