"""Cutting a long program into pieces that a kernel each can compute.

Comes in: a program without calls. Goes out: programs, in running order, that compute
the same. Time to compile grows faster than a kernel's length, and so do the registers
that its values take, so a long graph is cut where few values are alive. A value that is
read soon after a cut passes on through memory, in the type that is computed in, so that
nothing is rounded which one kernel would not round. One that is read much later, as the
steps of a forward pass are by its derivative, is computed again where that costs less.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fuser import ir
from fuser.ir import Loop, Node
from fuser.optable import PRIMITIVES
from fuser.program import Output, Program, used
from fuser.schedule import numbers_only

BUDGET = 320
"""Operations a kernel may have."""

MOST_ALIVE = 40
"""Values that may be alive at once in a piece."""

MOST_READ = 48
"""Tensors that a piece may read."""

WORTH_STORING = 25
"""Additions that take as long as writing a value to memory and reading it again."""

_LEAVES = frozenset({"input", "scalar", "const", "param"})
_CHEAP_NODES = 3
_SLOW = frozenset({"pow", "fmod", "idiv", "imod", "iterate", "item", "call", "complex"})


def partition(program: Program, budget: int = BUDGET) -> tuple[Program, ...]:
    """The program in pieces of at most `budget` operations.

    A loop counts as what one round of it does, and is never cut. A value that is stored
    for a later piece is an output `cut0`, `cut1`, ... of the piece that computes it and
    an input of that name of those that read it.
    """
    if sum(map(weight, program.nodes)) <= budget:
        return (program,)
    cutter = _Cutter(program, budget)
    pieces = [p for p in cutter.cut() if p.outputs]
    if len(pieces) < 2:
        return (program,)
    return tuple(
        replace(
            piece,
            name=f"{program.name}_part{number}",
            lineage=f"{program.lineage} part {number}",
        )
        for number, piece in enumerate(pieces)
    )


def weight(node: Node) -> int:
    """How many operations a node is: none for leaves, those of a round for a loop."""
    if node.op in _LEAVES or _is_part(node) or node.op == "item":
        return 0
    if isinstance(node.attrs, Loop):
        return 1 + sum(map(weight, ir.topological(node.attrs.roots)))
    return 1


def expense(node: Node) -> int:
    """About how many additions take the time of a node."""
    if isinstance(node.attrs, Loop):
        inside = ir.topological(node.attrs.roots)
        return node.attrs.limit * sum(map(expense, inside))
    if node.op in _SLOW:
        return 30
    row = PRIMITIVES.get(node.op)
    slow = row is not None and row.promotes == "int_to_float"
    return 10 if slow else weight(node)


def _is_part(node: Node) -> bool:
    """Whether it is a component of a complex argument, read like an argument."""
    return node.op in ("real", "imag") and node.args[0].op in ("input", "scalar")


@dataclass(slots=True)
class _Piece:
    """Nodes that a piece computes, and the stored ones and inputs that it reads."""

    stored: set[Node]
    nodes: set[Node] = field(default_factory=set[Node])
    reads: set[Node] = field(default_factory=set[Node])
    operations: int = 0

    def add(self, roots: Iterable[Node]) -> list[Node]:
        """Compute the roots, and what they need that is not stored; the new nodes."""
        new: list[Node] = []
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in self.nodes:
                continue
            if node.op == "input" or node in self.stored:
                self.reads.add(node)
                continue
            self.nodes.add(node)
            self.operations += weight(node)
            new.append(node)
            stack += node.args
        return new


class _Cutter:
    """The greedy walk along the program that decides where to cut and what to store."""

    def __init__(self, program: Program, budget: int) -> None:
        self.program = program
        self.budget = budget
        order = program.nodes
        self.place = {node: i for i, node in enumerate(order)}
        self.free = _free(order)
        self.units = list(_units(order, self.free))
        self.unit_of = {node: t for t, unit in enumerate(self.units) for node in unit}
        self.uses = self.find_uses()
        self.stored: set[Node] = set()
        self.names = self.fresh_names()
        self.inputs: dict[Node, Node] = {}

    def find_uses(self) -> dict[Node, list[int]]:
        """The units that read each value from outside, in order."""
        uses: dict[Node, list[int]] = {n: [] for n in self.unit_of}
        for t, unit in enumerate(self.units):
            for arg in dict.fromkeys(a for node in unit for a in node.args):
                if arg in uses and self.unit_of[arg] != t:
                    uses[arg].append(t)
        return uses

    def fresh_names(self) -> Iterator[str]:
        taken = {str(n.attrs) for n in (*self.program.inputs, *self.program.scalars)}
        taken |= {o.name for o in self.program.outputs}
        count = 0
        while True:
            if f"cut{count}" not in taken:
                yield f"cut{count}"
            count += 1

    def cut(self) -> Iterator[Program]:
        """The pieces in order; some may have no outputs, and are not needed."""
        start = 0
        while start < len(self.units):
            for limit in (self.budget, self.budget // 2):
                end = self.best_end(start, self.reach(start, limit))
                piece = self.piece(start, end)
                near, far = self.crossing(piece, end)
                again = self.recomputed(near, far)
                if again is None or again <= self.budget // 2:
                    break
            if again is None:
                near, far = near | far, set[Node]()
            yield self.program_of(piece, start, end, near)
            self.stored |= near
            start = end

    def reach(self, start: int, limit: int) -> int:
        """The furthest end of a piece that keeps to all limits, at least one unit."""
        piece = _Piece(self.stored)
        alive = 0
        ends: dict[int, int] = {}
        for t in range(start, len(self.units)):
            for node in piece.add(self.units[t]):
                last = self.last_use(node)
                if last > t:
                    alive += 1
                    ends[last] = ends.get(last, 0) + 1
            alive -= ends.pop(t, 0)
            fits = piece.operations <= limit and alive <= MOST_ALIVE
            if t > start and not (fits and len(piece.reads) <= MOST_READ):
                return t
        return len(self.units)

    def last_use(self, node: Node) -> int:
        uses = self.uses.get(node)
        return uses[-1] if uses else -1

    def piece(self, start: int, end: int) -> _Piece:
        piece = _Piece(self.stored)
        for unit in self.units[start:end]:
            piece.add(unit)
        return piece

    def best_end(self, start: int, end: int) -> int:
        """Where in the second half the fewest values pass on; of equals the last."""
        if end == len(self.units):
            return end
        piece = _Piece(self.stored)
        added = [piece.add(unit) for unit in self.units[start:end]]
        values = [n for new in added for n in new if n in self.uses]
        lowest, best = len(values) + 1, end
        for candidate in range(end, start + (end - start) // 2, -1):
            count = sum(self.is_near(n, candidate) for n in values)
            for node in added[candidate - 1 - start]:
                if node in self.uses:
                    values.pop()
            if count < lowest:
                lowest, best = count, candidate
        return best

    def next_use(self, node: Node, unit: int) -> int | None:
        uses = self.uses.get(node, [])
        at = bisect_left(uses, unit)
        return uses[at] if at < len(uses) else None

    def is_near(self, node: Node, end: int) -> bool:
        """Whether the piece after `end` is likely to read the value."""
        following = self.next_use(node, end)
        return following is not None and following < end + self.budget // 2

    def crossing(self, piece: _Piece, end: int) -> tuple[set[Node], set[Node]]:
        """Values of the piece that are read soon after `end`, and those read later."""
        values = [n for n in piece.nodes if n in self.uses and n.op != "iterate"]
        later = {n for n in values if self.next_use(n, end) is not None}
        near = {n for n in later if self.is_near(n, end)}
        return near, later - near

    def recomputed(self, near: set[Node], far: set[Node]) -> int | None:
        """How many operations compute the far values again, given the near ones.

        None if that is too many for a piece, or takes longer than to store them.
        """
        again = _Piece(self.stored | near)
        again.add(far)
        cost = sum(map(expense, again.nodes))
        if again.operations > self.budget or cost > WORTH_STORING * len(far):
            return None
        return again.operations

    def program_of(
        self, piece: _Piece, start: int, end: int, near: set[Node]
    ) -> Program:
        """The program of units from `start` to `end` that stores the near values."""
        replaced: dict[Node, Node] = {}
        for node in sorted(piece.nodes | piece.reads, key=self.place.__getitem__):
            if node in piece.reads:
                replaced[node] = self.inputs.get(node, node)
            else:
                args = tuple(replaced[a] for a in node.args)
                replaced[node] = ir.rebuild(node, args)
        outputs: list[Output] = []
        for node in sorted(near, key=self.place.__getitem__):
            name = next(self.names)
            self.inputs[node] = ir.input_(name, node.dtype)
            outputs.append(Output(name, replaced[node], node.dtype))
        final = end == len(self.units)
        for output in self.program.outputs:
            unit = self.unit_of.get(output.node)
            if unit is None and final:  # free: not in any unit
                outputs.append(output)
            elif unit is not None and start <= unit < end:
                outputs.append(replace(output, node=replaced[output.node]))
        roots = [o.node for o in outputs]
        inputs = (*self.program.inputs, *self.inputs.values())
        return replace(
            self.program,
            inputs=used(inputs, roots),
            scalars=used(self.program.scalars, roots),
            outputs=tuple(outputs),
        )


def _free(order: Sequence[Node]) -> set[Node]:
    """Nodes that every piece computes for itself, at no more cost than to read them.

    Leaves, what depends on numbers alone, and a few quick operations on one tensor.
    """
    free = numbers_only(order)
    tensors: dict[Node, frozenset[Node]] = dict.fromkeys(free, frozenset())
    sizes: dict[Node, int] = dict.fromkeys(free, 0)
    for node in order:
        if node in free:
            continue
        if node.op == "input":
            free.add(node)
            tensors[node], sizes[node] = frozenset({node}), 0
        elif all(a in free for a in node.args) and expense(node) <= 1:
            read = frozenset[Node]().union(*(tensors[a] for a in node.args))
            size = weight(node) + sum(sizes[a] for a in node.args)
            if len(read) == 1 and size <= _CHEAP_NODES:
                free.add(node)
                tensors[node], sizes[node] = read, size
    return free


def _units(order: Sequence[Node], free: set[Node]) -> Iterator[tuple[Node, ...]]:
    """The nodes that are not free, in order; a loop is one unit with all its items."""
    items: dict[Node, list[Node]] = {}
    for node in order:
        if node.op == "item" and node not in free:
            items.setdefault(node.args[0], []).append(node)
    for node in order:
        if node in items:
            yield (node, *items[node])
        elif node not in free and node.op != "item":
            yield (node,)
