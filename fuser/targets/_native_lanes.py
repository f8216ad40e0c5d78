"""Loops inside of kernels, vectorised: elements are computed a block at a time.

Comes in: the statements of an element, with loops among them, each element with its own
number of rounds. Goes out: lines of C for a block of LANES elements. C compilers do not
vectorise a loop over elements with such a loop inside, so the two change places: values
that outlive a step are kept in arrays, one item an element, each step is a loop over
the lanes that does vectorise, and a loop goes on until the last lane is done. So does a
remainder, which is a function of arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from fuser.dtypes import DType, int32, int64
from fuser.kernel import (
    Assign,
    Load,
    Repeat,
    Statement,
    Store,
    Value,
    reads,
    stored,
    typed,
    writes,
)

LANES = 16


class Remainder(NamedTuple):
    """A function of arrays for a remainder: its type, C's suffix of functions of that,
    and the power of two that a divisor is multiplied by where the quotient would not be
    finite: twice if need be."""

    type: str
    f: str
    power: str


class Printer(Protocol):
    """What is asked of the target."""

    def type_name(self, dtype: DType) -> str: ...
    def value(self, value: Value) -> str: ...
    def assign(self, name: str, dtype: DType, text: str) -> list[str]: ...
    def store(self, store: Store) -> list[str]: ...
    def round(self, loop: Repeat) -> list[str]: ...
    def indented(self, lines: Iterable[str]) -> list[str]: ...
    def level(
        self, statements: Iterable[Statement], checks: tuple[str, ...]
    ) -> list[str]: ...


def lanes(
    printer: Printer,
    statements: Sequence[Statement],
    stores: Sequence[Store],
    checks: tuple[str, ...],
) -> list[str]:
    """The lines that compute LANES elements of a row, from `block` on."""
    return _Lanes(printer, statements, stores, checks).lines()


class _Lanes:
    def __init__(
        self,
        printer: Printer,
        statements: Sequence[Statement],
        stores: Sequence[Store],
        checks: tuple[str, ...],
    ) -> None:
        self.printer = printer
        self.stores = stores
        self.checks = checks
        self.steps = _steps(statements)
        self.dtypes = {name: d for s in statements for name, d in typed(s)}
        self.kept = self.find_kept()

    def find_kept(self) -> dict[str, DType]:
        """The values that a step after that which makes them reads."""
        kept = stored(self.stores)
        for step in self.steps:
            made = {name for s in step for name in writes(s)}
            read = {name for s in step for name in reads(s)}
            kept |= made if isinstance(step[0], Load) or is_long(step[0]) else set()
            kept |= read - made
        return {name: d for name, d in self.dtypes.items() if name in kept}

    def lines(self) -> list[str]:
        lines = [
            f"{self.printer.type_name(self.stored(dtype))} {_array(name)}[{LANES}];"
            for name, dtype in self.kept.items()
        ]
        for step in self.steps:
            if isinstance(step[0], Load):
                lines += self.load(step)
            elif isinstance(step[0], Repeat) and is_long(step[0]):
                lines += self.repeat(step[0])
            elif isinstance(step[0], Assign) and is_long(step[0]):
                lines += self.remainder(step[0])
            else:
                lines += self.compute(step)
        return [*lines, *self.write()]

    def stored(self, dtype: DType) -> DType:
        """The type of an array. A bool takes as many bits as the numbers it chooses
        between, since GCC vectorises no choice by a narrower one that it reads."""
        if dtype.kind != "bool":
            return dtype
        widest = max(d.bits for d in self.kept.values())
        return int64 if widest == 64 else int32

    def load(self, step: Sequence[Statement]) -> list[str]:
        names = [name for s in step for name in writes(s)]
        inside = ["const int64_t i = block + lane;"]
        inside += self.printer.level(step, ()) + self.keep(names)
        return over_lanes(inside)

    def compute(self, step: Sequence[Statement]) -> list[str]:
        made = [name for s in step for name in writes(s)]
        read = {name for s in step for name in reads(s)} - set(made)
        inside = self.fetch(read) + self.printer.level(step, self.checks)
        inside += self.keep(made)
        return over_lanes(inside, reduce="status" if self.checks else "")

    def repeat(self, loop: Repeat) -> list[str]:
        number = loop.state[0].rpartition("_")[2]
        start = {v for v in loop.start if isinstance(v, str)}
        values = zip(loop.state, loop.start, strict=True)
        first = self.fetch(start)
        first += [f"{_array(n)}[lane] = {self.printer.value(v)};" for n, v in values]
        inside = self.fetch(_read_inside(loop) | {*loop.state}, loop.state)
        inside += self.printer.round(loop) + self.keep(loop.state)
        k = f"round_{number}"
        head = f"for (int32_t {k} = 0; {k} < {loop.limit}; {k}++) {{"
        if loop.proceed is None:
            rounds = over_lanes(inside)
        else:
            alive = f"alive_{number}"
            inside.append(f"{alive} |= {self.printer.value(loop.proceed)};")
            rounds = [f"int32_t {alive} = 0;", *over_lanes(inside, reduce=alive)]
            rounds.append(f"if (!{alive}) break;")
        return [*over_lanes(first), head, *self.printer.indented(rounds), "}"]

    def remainder(self, step: Assign) -> list[str]:
        """A call with arrays of both arguments; one that is no lane's own is spread."""
        of = self.printer.type_name(step.node.dtype)
        lines: list[str] = []
        arrays: list[str] = []
        for part, value in zip(("of", "by"), step.args, strict=True):
            if isinstance(value, str) and value in self.kept:
                arrays.append(_array(value))
                continue
            arrays.append(_array(f"{step.name}_{part}"))
            lines.append(f"{of} {arrays[-1]}[{LANES}];")
            lines += over_lanes([f"{arrays[-1]}[lane] = {self.printer.value(value)};"])
        arguments = ", ".join((*arrays, _array(step.name)))
        return [*lines, f"{of}_fmod_lanes({arguments});"]

    def write(self) -> list[str]:
        inside = ["const int64_t i = block + lane;"]
        inside += self.fetch(stored(self.stores))
        for store in self.stores:
            inside += self.printer.store(store)
        return over_lanes(inside)

    def fetch(self, names: set[str], mutable: Iterable[str] = ()) -> list[str]:
        """The lines that read those of the names which are kept in arrays."""
        lines: list[str] = []
        for name, dtype in self.kept.items():
            if name in names:
                definition = self.printer.assign(name, dtype, _item(name, dtype))
                change = name in mutable
                lines += [d.removeprefix("const ") if change else d for d in definition]
        return lines

    def keep(self, names: Iterable[str]) -> list[str]:
        return [f"{_array(n)}[lane] = {n};" for n in names if n in self.kept]


def over_lanes(
    inside: Iterable[str], count: int = LANES, reduce: str = ""
) -> list[str]:
    """A loop over the lanes, whose number the compiler knows."""
    clause = f" reduction(|: {reduce})" if reduce else ""
    head = f"for (int32_t lane = 0; lane < {count}; lane++) {{"
    body = ("    " + line for line in inside)
    return [f"#pragma omp simd{clause}", head, *body, "}"]


def _item(name: str, dtype: DType) -> str:
    return f"{_array(name)}[lane]" + (" != 0" if dtype.kind == "bool" else "")


def _array(name: str) -> str:
    return f"{name}_lanes"


def _steps(statements: Sequence[Statement]) -> list[list[Statement]]:
    """Statements by what they are: loads, then turns of others and single long ones."""
    steps: list[list[Statement]] = []
    kind = ""
    for statement in statements:
        before, kind = kind, "load" if isinstance(statement, Load) else "compute"
        if is_long(statement):
            kind = "long"
        if kind == before != "long":
            steps[-1].append(statement)
        else:
            steps.append([statement])
    return steps


def is_long(statement: Statement) -> bool:
    """Whether each element takes a number of rounds of its own: a loop, if its rounds
    cannot be written out, or a remainder."""
    if isinstance(statement, Repeat):
        return not is_short(statement)
    return isinstance(statement, Assign) and statement.node.op == "fmod"


def remainders(printer: Printer, statements: Iterable[Statement]) -> list[Remainder]:
    """The functions for the remainders among the statements, each once."""
    nodes = (s.node for s in statements if isinstance(s, Assign) and is_long(s))
    dtypes = {node.dtype for node in nodes}
    return sorted(
        Remainder(printer.type_name(d), "", "900")
        if d.bits == 64
        else Remainder(printer.type_name(d), "f", "100")
        for d in dtypes
    )


def is_short(loop: Repeat) -> bool:
    """Whether all rounds can be written out, which C compilers then vectorise."""
    inside = (*loop.guard, *loop.body)
    nested = any(isinstance(s, Repeat) for s in inside)
    return not nested and loop.limit <= 16 and loop.limit * len(inside) <= 128


def _read_inside(loop: Repeat) -> set[str]:
    """Names that a round reads."""
    read = {v for v in (*loop.next, loop.proceed) if isinstance(v, str)}
    for statement in (*loop.guard, *loop.body):
        read |= reads(statement)
    return read
