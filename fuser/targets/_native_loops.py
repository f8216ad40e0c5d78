"""How a C kernel walks its index space, and what is computed how often.

Comes in: a `Kernel`. Goes out: its statements by the loop they stand in, the lines of
index arithmetic that carry a thread through its share of the rows, and an estimate of
what an element costs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fuser.kernel import (
    Access,
    Assign,
    Kernel,
    Load,
    Operand,
    Repeat,
    Statement,
    reads,
    writes,
)
from fuser.optable import PRIMITIVES

WIDTH = 88


@dataclass(frozen=True, slots=True)
class Levels:
    """Statements that run once a call, once a row and once an element."""

    prologue: tuple[Statement, ...]
    row: tuple[Statement, ...]
    body: tuple[Statement, ...]


def levels(kernel: Kernel) -> Levels:
    """The statements of the kernel, each as far out as what it reads allows."""
    varying: set[str] = set()
    row: list[Statement] = []
    body: list[Statement] = []
    for statement in kernel.body:
        moves = isinstance(statement, Load) and (
            statement.operand.access is not Access.UNIFORM
        )
        if moves or reads(statement) & varying:
            varying.update(writes(statement))
            body.append(statement)
        else:
            row.append(statement)
    return Levels(kernel.prologue, tuple(row), tuple(body))


class Tile(NamedTuple):
    """Rows and columns that are computed together, where an operand is strided along
    the rows: few enough for the cache, where a row then finds what the one before read.
    """

    rows: int = 16
    columns: int = 64


@dataclass(frozen=True, slots=True)
class Walk:
    """Lines of a loop over the rows from element `begin` up to, not with, `end`.

    `count` declares the number of elements, `n`; `start` finds the first row, `row`
    points into a row, `next` goes on to the one after it. A row's elements are counted
    by `i` from `first` to `last`; `at_0`, `at_1`, ... are the indices of the row in the
    outer dimensions. In tiles, the last of these runs from `top` to `bottom`.
    """

    size: str
    height: str
    index: str
    count: tuple[str, ...]
    start: tuple[str, ...]
    row: tuple[str, ...]
    next: tuple[str, ...]
    tile: Tile | None


def walk(
    rank: int, operands: Sequence[Operand], declarations: Sequence[tuple[str, str]]
) -> Walk:
    """The walk over `rank` dimensions.

    `declarations` holds for each operand that of its pointer into a row, and the name
    of the parameter it starts from.
    """
    inner = rank - 1
    tiled = inner > 0 and any(o.access is Access.STRIDED for o in operands)
    at = [f"at_{d}" for d in range(inner)]
    digits = [*at[:-1], "top"] if tiled else at
    row: list[str] = []
    for index, (operand, (pointer, base)) in enumerate(
        zip(operands, declarations, strict=True)
    ):
        stride = [f"strides[{index * rank + d}]" for d in range(rank)]
        if operand.access is Access.STRIDED:
            row.append(f"const int64_t {operand.name}_step = {stride[inner]};")
        offset = " + ".join(f"{a} * {stride[d]}" for d, a in enumerate(at))
        if operand.dtype.is_complex and offset:
            offset = f"2 * ({offset})"
        row += _sum(f"{pointer} = {base}", offset)
    product = " * ".join(f"sizes[{d}]" for d in range(rank))
    return Walk(
        size=f"sizes[{inner}]",
        height=f"sizes[{inner - 1}]",
        index=f"at_{inner - 1}",
        count=fit([f"const int64_t n = {product};"], 4),
        start=tuple(_digits(digits)),
        row=tuple(row),
        next=_carry(digits, "top = bottom" if tiled else ""),
        tile=Tile() if tiled else None,
    )


def element(operand: Operand, part: int | None) -> str:
    """Element `i` of a row of the operand, or a component of it."""
    index = "i"
    if operand.access is Access.STRIDED:
        index = f"i * {operand.name}_step"
    if operand.access is Access.UNIFORM:
        index = str(part or 0)
    elif part is not None:
        index = f"2 * {index}" + (f" + {part}" if part else "")
    return f"{operand.pointer}[{index}]"


def _digits(names: Sequence[str]) -> Iterator[str]:
    """Take `begin` apart, into the index in the row and those of the row."""
    inner = len(names)
    yield f"int64_t first = begin % sizes[{inner}];"
    if inner == 0:
        return
    yield f"int64_t rest = begin / sizes[{inner}];"
    for d in range(inner - 1, 0, -1):
        yield f"int64_t {names[d]} = rest % sizes[{d}];"
        yield f"rest /= sizes[{d}];"
    yield f"int64_t {names[0]} = rest;"


def _sum(start: str, offset: str) -> list[str]:
    """A statement that adds the offset, on a second line where the first is full."""
    if not offset:
        return [f"{start};"]
    line = f"{start} + {offset};"
    return (
        [line] if len(line) <= WIDTH - 16 else [start, *fit([f"    + {offset};"], 16)]
    )


def _carry(names: Sequence[str], step: str) -> tuple[str, ...]:
    """Go on to the next row, as one adds to the digits of a number; `step` adds to the
    last digit, if that is not 1."""
    if not names:
        return ()
    lines = ["first = 0;"]
    pad = ""
    for d in range(len(names) - 1, 0, -1):
        test = f"++{names[d]}"
        if step and not pad:
            lines.append(f"{step};")
            test = names[d]
        lines += [
            f"{pad}if ({test} == sizes[{d}]) {{",
            f"{pad}    {names[d]} = 0;",
        ]
        pad += "    "
    lines.append(f"{pad}{step if step and not pad else names[0] + '++'};")
    while pad:
        pad = pad[4:]
        lines.append(pad + "}")
    return tuple(lines)


# What an operation costs, in additions, where a vector function exists.
_COSTS: dict[str, int] = {
    "div": 4,
    "sqrt": 4,
    "rsqrt": 8,
    "idiv": 20,
    "imod": 20,
    "atan2": 30,
    "pow": 40,
    "fmod": 25,
}
_FUNCTION = 15


def cost(kernel: Kernel) -> int:
    """About what an element costs, in additions of float32 that are vectorised."""
    return len(kernel.operands) + _cost(kernel.body)


def _cost(statements: Iterable[Statement]) -> int:
    total = 0
    for statement in statements:
        if isinstance(statement, Repeat):
            rounds = min(statement.limit, 20)
            total += 8 * rounds * _cost((*statement.guard, *statement.body))
        elif isinstance(statement, Assign):
            total += _operation(statement.node.op)
    return max(1, total)


def _operation(op: str) -> int:
    elementary = op in PRIMITIVES and PRIMITIVES[op].promotes == "int_to_float"
    return _COSTS.get(op, _FUNCTION if elementary else 1)


def every(statements: Iterable[Statement]) -> Iterable[Statement]:
    """The statements, and those inside of loops."""
    for statement in statements:
        yield statement
        if isinstance(statement, Repeat):
            yield from every((*statement.guard, *statement.body))


def fit(lines: Iterable[str], indent: int) -> tuple[str, ...]:
    """The lines of C, those too long for the page broken at spaces."""
    width = WIDTH - indent
    return tuple(
        part
        for line in lines
        for part in ([line] if len(line) <= width else _broken(line, width))
    )


def _broken(line: str, width: int) -> list[str]:
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * (4 + len(line) - len(line.lstrip())),
        break_long_words=False,
        break_on_hyphens=False,
    )
