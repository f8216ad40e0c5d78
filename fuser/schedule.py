"""Scheduling: from a graph to the statements of one loop.

Comes in: a `Program` without call nodes, whose complex values have been taken apart,
and the `Layout` of its operands. Goes out: a `Kernel`, which a target prints. Sharing
is the graph's: a node is computed once. What depends on numbers alone is computed once
a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fuser import ir
from fuser.dtypes import bool_
from fuser.ir import Loop, Node
from fuser.kernel import (
    Argument,
    Assign,
    Kernel,
    Layout,
    Load,
    Operand,
    Repeat,
    Statement,
    Store,
    Value,
)
from fuser.names import SUFFIXES, Namer, identifier
from fuser.program import Output, Program


class ScheduleError(ValueError):
    """A program that is not ready to be scheduled, or a layout of another program."""


def schedule(program: Program, layout: Layout) -> Kernel:
    """The kernel that computes all outputs of the program in one loop.

    ScheduleError where the layout does not have one access an operand, where a node is
    a call, or where a complex value is left inside the graph.
    """
    expected = len(program.inputs) + len(program.outputs)
    if len(layout.access) != expected:
        raise ScheduleError(
            f"{program.name} has {expected} operands, the layout {len(layout.access)}"
        )
    builder = _Builder(program, layout)
    builder.build()
    return Kernel(
        name=builder.name,
        layout=layout,
        operands=(*builder.inputs.values(), *builder.outputs),
        arguments=tuple(builder.arguments),
        prologue=tuple(builder.prologue),
        body=tuple(builder.body),
        stores=tuple(builder.stores),
        checks=tuple(builder.checks),
        comment=(*program.formulas, *([program.lineage] if program.lineage else [])),
    )


_SHORT = {
    "bool": "bool",
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
}


@dataclass(slots=True)
class _Scope:
    """Values in reach, and the list that statements computing new ones go to."""

    statements: list[Statement]
    values: dict[Node, Value]
    states: dict[Node, tuple[str, ...]] = field(
        default_factory=dict[Node, tuple[str, ...]]
    )


class _Builder:
    def __init__(self, program: Program, layout: Layout) -> None:
        self.program = program
        self.layout = layout
        self.names = Namer()
        self.name = identifier(program.name)
        self.names.exactly(f"{self.name}_kernel")  # what targets call the function
        self.inputs: dict[Node, Operand] = {}
        self.outputs: list[Operand] = []
        self.arguments: list[Argument] = []
        self.prologue: list[Statement] = []
        self.body: list[Statement] = []
        self.stores: list[Store] = []
        self.checks: list[str] = []
        self.values: dict[Node, Value] = {}

    def build(self) -> None:
        self.declare()
        roots = [p for o in self.program.outputs for p in self.parts(o)]
        nodes = ir.topological(roots)
        self.load(nodes)
        static = numbers_only(nodes)
        states: dict[Node, tuple[str, ...]] = {}
        before = _Scope(self.prologue, self.values, states)
        inside = _Scope(self.body, self.values, states)
        for node in nodes:
            if node not in self.values:
                self.emit(node, before if node in static else inside)
        for output, operand in zip(self.program.outputs, self.outputs, strict=True):
            parts = self.parts(output)
            values = tuple(self.values[p] for p in parts)
            self.stores.append(Store(operand, values, parts[0].dtype))

    def declare(self) -> None:
        """Name the parameters: operands, then numbers."""
        access = iter(self.layout.access)
        for node in self.program.inputs:
            name = self.names.exactly(str(node.attrs), suffixes=SUFFIXES)
            self.inputs[node] = Operand(name, node.dtype, next(access), False)
        summed = self.layout.summed or (False,) * len(self.program.outputs)
        for output, sum_ in zip(self.program.outputs, summed, strict=True):
            name = self.names.exactly(output.name, suffixes=SUFFIXES)
            operand = Operand(name, output.dtype, next(access), True, sum_)
            self.outputs.append(operand)
        for node in self.program.scalars:
            name = self.names.exactly(str(node.attrs), suffixes=("_re", "_im"))
            if not node.dtype.is_complex:
                self.arguments.append(Argument(name, node.dtype))
                self.values[node] = name
                continue
            for op, suffix in (("real", "_re"), ("imag", "_im")):
                self.arguments.append(Argument(name + suffix, node.dtype.real))
                self.values[ir.make(op, node.dtype.real, (node,))] = name + suffix
                self.values[node] = name

    def parts(self, output: Output) -> tuple[Node, ...]:
        """The real nodes an output is made of: two where it is complex."""
        node = output.node
        if node.dtype.is_complex != output.dtype.is_complex:
            raise ScheduleError(
                f"output {output.name} of {self.program.name} is {output.dtype}, "
                f"its value {node.dtype}"
            )
        if not node.dtype.is_complex:
            return (node,)
        if node.op == "complex":
            return node.args
        if node.op in ("input", "scalar"):
            real = node.dtype.real
            return ir.make("real", real, (node,)), ir.make("imag", real, (node,))
        raise self.unexpected(node)

    def load(self, nodes: Iterable[Node]) -> None:
        """Read every operand that is used; the raw value of a half is named so."""
        reached = set(nodes)
        for node in self.program.inputs:
            operand = self.inputs[node]
            if not node.dtype.is_complex:
                if node in reached:
                    half = node.dtype.is_half
                    name = self.names.exactly(f"{operand.name}_half") if half else None
                    self.read(node, Load(name or operand.name, operand, node.dtype))
                continue
            for part, op in enumerate(("real", "imag")):
                component = ir.make(op, node.dtype.real, (node,))
                if component in reached:
                    name = operand.name + ("_re", "_im")[part]
                    self.read(component, Load(name, operand, component.dtype, part))
            self.values[node] = operand.name

    def read(self, node: Node, load: Load) -> None:
        self.body.append(load)
        self.values[node] = load.name

    def emit(self, node: Node, scope: _Scope) -> None:
        """Compute the node in the scope; its arguments are there already."""
        if node.op == "const":
            scope.values[node] = node
        elif node.op == "item":
            scope.values[node] = scope.states[node.args[0]][_index(node)]
        elif node.op == "iterate":
            self.emit_loop(node, scope)
        else:
            self.emit_operation(node, scope)

    def emit_operation(self, node: Node, scope: _Scope) -> None:
        leaf = node.op in ("call", "input", "scalar", "param")
        if leaf or node.dtype.is_complex or any(a.dtype.is_complex for a in node.args):
            raise self.unexpected(node)
        args = tuple(scope.values[a] for a in node.args)
        if node.op in ("idiv", "imod") and scope.values is self.values:
            self.check_divisor(node.args[1], args[1], scope)
        name = self.name_of(node, args)
        scope.statements.append(Assign(name, node, args))
        scope.values[node] = name

    def check_divisor(self, node: Node, value: Value, scope: _Scope) -> None:
        """Division by zero is reported, but not inside loops, where it gives 0."""
        if node.op == "const" and ir.value_of(node) != 0:
            return
        test = ir.make("eq", bool_, (node, ir.const(0, node.dtype)))
        if test not in scope.values:
            name = self.names.numbered("division_by_zero")
            scope.statements.append(Assign(name, test, (value, test.args[1])))
            scope.values[test] = name
        name = scope.values[test]
        if isinstance(name, str) and name not in self.checks:
            self.checks.append(name)

    def name_of(self, node: Node, args: tuple[Value, ...]) -> str:
        """`mul_1`; a conversion is named after what it converts."""
        if node.op != "cast" or not isinstance(args[0], str):
            return self.names.numbered(node.op)
        source = node.args[0]
        if (
            source.op == "input"
            and source.dtype.is_half
            and node.dtype.name == "float32"
        ):
            return self.inputs[source].name
        return self.names.exactly(f"{args[0]}_{_SHORT[node.dtype.name]}")

    def emit_loop(self, node: Node, scope: _Scope) -> None:
        loop = node.attrs
        assert isinstance(loop, Loop)
        count = len(loop.step)
        state = tuple(self.names.numbered("state") for _ in loop.step)
        outer = [scope.values[a] for a in node.args]
        values: list[Value] = [*state, *outer[count:]]
        inner = {p: values[_index(p)] for p in ir.leaves(loop.roots, "param")}
        guard = _Scope([], inner)
        if loop.proceed is not None:
            self.emit_all([loop.proceed], guard)
        body = _Scope([], inner, guard.states)
        self.emit_all(loop.step, body)
        repeat = Repeat(
            state=state,
            dtypes=tuple(a.dtype for a in node.args[:count]),
            start=tuple(outer[:count]),
            guard=tuple(guard.statements),
            proceed=None if loop.proceed is None else inner[loop.proceed],
            body=tuple(body.statements),
            next=tuple(inner[s] for s in loop.step),
            limit=loop.limit,
        )
        scope.statements.append(repeat)
        scope.values[node] = state[0]
        scope.states[node] = state

    def emit_all(self, roots: Sequence[Node], scope: _Scope) -> None:
        for node in ir.topological(roots):
            if node not in scope.values:
                self.emit(node, scope)

    def unexpected(self, node: Node) -> ScheduleError:
        return ScheduleError(
            f"{self.program.name} is not ready to be scheduled: "
            f'"{ir.label(node)}" of {node.dtype} is left in it'
        )


def numbers_only(nodes: Sequence[Node]) -> set[Node]:
    """Those of the nodes, arguments before users, that depend on no tensor."""
    static: set[Node] = set()
    for node in nodes:
        if node.op != "input" and all(a in static for a in node.args):
            static.add(node)
    return static


def _index(node: Node) -> int:
    """The number of an item or a param."""
    assert isinstance(node.attrs, int)
    return node.attrs
