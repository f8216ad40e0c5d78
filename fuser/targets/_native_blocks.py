"""Elements a block at a time, so that a value does not depend on its place.

Comes in: a `Kernel` whose elements call functions of the C library, and the lines that
compute a block. Goes out: what the template needs for a function that takes nothing but
whole blocks. The vector forms of these functions round differently from the scalar
ones, which compilers take for what is left of a loop; with a number of rounds that they
know there is nothing left. An incomplete block is copied to arrays, filled up with its
last element, and copied back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fuser.dtypes import DType
from fuser.kernel import (
    Access,
    Assign,
    Kernel,
    Operand,
    Statement,
    reads,
    stored,
    typed,
    writes,
)
from fuser.optable import PRIMITIVES
from fuser.targets._native_loops import Levels, element, every, fit

# Functions of the C library that processors have instructions for, or that have no
# vector form anywhere.
_ALIKE = frozenset({"copysign", "floor", "ceil", "trunc", "sqrt", "fmod"})


class Printer(Protocol):
    """What is asked of the target."""

    def type_name(self, dtype: DType) -> str: ...
    def pointer(self, operand: Operand, name: str) -> str: ...
    def storage_name(self, dtype: DType) -> str: ...


@dataclass(frozen=True, slots=True)
class Blocks:
    """Lines and names around the function `blocks`.

    It computes the elements from `begin` up to, not with, `end`, `lanes` at a time, in
    the lines of `body`; `passed` are its other arguments. What is left of a row goes
    through the arrays of `pads`, with `padded` passed: `read` copies element `i` of the
    row to `lane`, `write` copies back.
    """

    lanes: int
    parameters: tuple[str, ...]
    passed: tuple[str, ...]
    padded: tuple[str, ...]
    pads: tuple[str, ...]
    read: tuple[str, ...]
    write: tuple[str, ...]
    body: tuple[str, ...]


class Single(NamedTuple):
    """A function of the C library that is called for a row as for its elements."""

    name: str
    type: str
    arguments: tuple[str, ...]
    parameters: str
    item: str


def blocks(
    printer: Printer, kernel: Kernel, level: Levels, lanes: int, body: Iterable[str]
) -> Blocks:
    """Blocks of so many elements, which the lines of `body` compute from `block` on."""
    uniform = [o for o in kernel.operands if o.access is Access.UNIFORM and o.is_output]
    moving = [o for o in kernel.operands if o.access is not Access.UNIFORM]
    steps = [f"{o.name}_step" for o in moving if o.access is Access.STRIDED]
    elements = [(o, pair) for o in moving for pair in _elements(o)]
    values = _values(kernel, level)
    rest = [*(o.pointer for o in uniform), *values]
    passed = [*(o.pointer for o in moving), *steps, *rest]
    padded = [*(f"{o.name}_pad" for o in moving), *("1" for _ in steps), *rest]
    return Blocks(
        lanes=lanes,
        parameters=(
            *(printer.pointer(o, o.pointer) for o in moving),
            *(f"int64_t {step}" for step in steps),
            *(printer.pointer(o, o.pointer) for o in uniform),
            *(f"{printer.type_name(d)} {n}" for n, d in values.items()),
        ),
        passed=fit([", ".join(passed)], 24),
        padded=fit([", ".join(padded)], 24),
        pads=tuple(
            f"{printer.storage_name(o.dtype)} {o.name}_pad[{_parts(o) * lanes}];"
            for o in moving
        ),
        read=tuple(f"{pad} = {at};" for o, (pad, at) in elements if not o.is_output),
        write=tuple(f"{at} = {pad};" for o, (pad, at) in elements if o.is_output),
        body=fit(body, 8),
    )


def lane_count(kernel: Kernel) -> int:
    """As many elements as fill the widest register with the narrowest type: compilers
    take shorter registers for a shorter loop."""
    narrowest = min(o.dtype.real.bits for o in kernel.operands)
    return {8: 64, 16: 32}.get(max(narrowest, 8), 16)


def calls(statements: Iterable[Statement]) -> list[Assign]:
    """Those, also inside of loops, that call a function which has vector forms."""
    return [
        s for s in every(statements) if isinstance(s, Assign) and is_call(s.node.op)
    ]


def is_call(op: str) -> bool:
    """Whether C spells the operation as a call of a function with vector forms."""
    spelling = PRIMITIVES[op].c if op in PRIMITIVES else ""
    call = isinstance(spelling, str) and spelling.startswith(op + "{f}(")
    return call and op not in _ALIKE


def singles(printer: Printer, statements: Sequence[Statement]) -> list[Single]:
    """The functions that the statements of a row call, each once."""
    found: dict[str, Single] = {}
    for call in calls(statements):
        dtype, op = call.node.dtype, call.node.op
        name = op if dtype.bits == 64 else f"{op}f"
        arguments = ("a", "b")[: PRIMITIVES[op].arity]
        of = printer.type_name(dtype)
        parameters = ", ".join(f"{of} {a}" for a in arguments)
        item = f"{name}({', '.join(f'{a}_lanes[lane]' for a in arguments)})"
        found[name] = Single(name, of, arguments, parameters, item)
    return [found[name] for name in sorted(found)]


def _values(kernel: Kernel, level: Levels) -> dict[str, DType]:
    """What an element needs and is computed outside of blocks, with its type."""
    known = {a.name: a.dtype for a in kernel.arguments}
    for statement in (*level.prologue, *level.row):
        known.update(typed(statement))
    needed = stored(kernel.stores)
    for statement in level.body:
        needed |= reads(statement)
    made = {name for s in level.body for name in writes(s)}
    return {n: d for n, d in known.items() if n in needed - made}


def _parts(operand: Operand) -> int:
    return 2 if operand.dtype.is_complex else 1


def _elements(operand: Operand) -> Iterable[tuple[str, str]]:
    """An element of the array and that of the operand, for each component."""
    if not operand.dtype.is_complex:
        return [(f"{operand.name}_pad[lane]", element(operand, None))]
    items = ("2 * lane", "2 * lane + 1")
    return [
        (f"{operand.name}_pad[{t}]", element(operand, p)) for p, t in enumerate(items)
    ]
