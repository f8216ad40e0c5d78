"""Triton for GPUs.

Comes in: the parts of a `Kernel`. Goes out: a Python module that stands alone, with one
`@triton.jit` function, called on a one-dimensional grid of programs of BLOCK elements:

    NAME(self_ptr, ..., result_ptr, alpha, ..., n, BLOCK)

In place of `n`, a kernel that is not flat takes the sizes, outermost first, and those
of the strides that it needs (`shape_parameters` lists them). Numbers, sizes and strides
have declared types and are not specialised on: another value compiles nothing. The
exception is `n`, where Triton tells apart whether 16 divides it; without that, no load
under the mask could be a vector.

A kernel with sums works on tiles of BLOCK elements in rows of COLUMNS, which is another
constant after BLOCK. Of each sum it writes the part of every tile into a buffer, to be
added up by the caller.

Numbers and elements of uniform operands are scalars, all other values are blocks.
"""

from __future__ import annotations

import math
import struct
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from fuser import ir
from fuser.dtypes import DType, float32, int32, int64
from fuser.ir import Node, Number
from fuser.kernel import (
    Access,
    Assign,
    Kernel,
    Layout,
    Load,
    Operand,
    Repeat,
    Statement,
    Store,
    Value,
    reads,
    writes,
)
from fuser.optable import PRIMITIVES
from fuser.targets._triton_index import (
    WIDTH,
    added,
    divided,
    names_in,
    shape_parameters,
    stored,
    terms,
    tile_sums,
    tiled,
    unless_taken,
)
from fuser.targets.base import Target, bare, is_integral, operand_dtype

_TYPES = {
    "bool": "tl.int1",
    "uint8": "tl.uint8",
    "int8": "tl.int8",
    "int16": "tl.int16",
    "int32": "tl.int32",
    "int64": "tl.int64",
    "float16": "tl.float16",
    "bfloat16": "tl.bfloat16",
    "float32": "tl.float32",
    "float64": "tl.float64",
}

# The table's spelling of a quotient or a root rounds correctly in float64; in float32
# it would be the fast one, which is 2 ulp wide.
_ON_FLOAT32 = {"div": "tl.div_rn({0}, {1})", "sqrt": "tl.sqrt_rn({0})"}

# On bools PyTorch's sum is "or" and its product "and"; one bit would wrap around.
_ON_BOOLS = {"add": "({0} | {1})", "mul": "({0} & {1})"}


class Triton(Target):
    """Prints one kernel, or none yet: `context` makes a printer for its kernel."""

    name = "triton"
    template = "triton.py.jinja"
    column = "triton"

    def __init__(self, layout: Layout | None = None, taken: Iterable[str] = ()) -> None:
        """Print for the layout; `taken` are names that the kernel has given away."""
        self.layout = layout or Layout(1, (), int32)
        self.taken = frozenset(taken)

    def context(self, kernel: Kernel) -> Mapping[str, object]:
        printer = Triton(kernel.layout, names_in(kernel))
        prologue = printer.statements(kernel.prologue)
        body = printer.statements(kernel.body)
        return {
            "name": function_name(kernel),
            "comment": [c for text in kernel.comment for c in printer.wrapped(text)],
            "libdevice": any("libdevice." in line for line in (*prologue, *body)),
            "decorator": decorator(unspecialized(kernel)),
            "parameters": printer.parameters(kernel),
            "index": list(printer.index(kernel)),
            "prologue": prologue,
            "body": body,
            "stores": [line for s in printer.stores(kernel) for line in s],
        }

    def wrapped(self, text: str) -> list[str]:
        return textwrap.wrap(self.comment(text), WIDTH - 2, subsequent_indent="  ")

    def parameters(self, kernel: Kernel) -> list[str]:
        index = self.type_name(kernel.layout.index)
        pointers = [o.pointer for o in kernel.operands]
        numbers = [f"{a.name}: {self.type_name(a.dtype)}" for a in kernel.arguments]
        shape = [f"{p.name}: {index}" for p in shape_parameters(kernel)]
        constants = [f"{name}: tl.constexpr" for name in constant_names(kernel)]
        return [f"{p}," for p in (*pointers, *numbers, *shape, *constants)]

    def index(self, kernel: Kernel) -> Iterator[str]:
        """The lines that find this program's elements, and where they lie."""
        program = "tl.program_id(0)"
        if self.layout.index == int64:
            program += f".to({self.type_name(int64)})"
        if self.layout.is_line:
            yield f"offsets = {program} * BLOCK + tl.arange(0, BLOCK)"
            yield "mask = offsets < n"
            return
        sizes = [f"size_{d}" for d in range(self.layout.rank)]
        if self.layout.tile is not None:
            yield from tiled(program, sizes, self.layout.tile)
        else:
            yield f"index = {program} * BLOCK + tl.arange(0, BLOCK)"
            yield f"mask = index < {' * '.join(sizes)}"
            yield from divided(sizes)
        shape = shape_parameters(kernel)
        for number, operand in enumerate(kernel.operands):
            if self.is_block(operand) and not operand.is_sum:
                yield from added(self.at(operand), terms(kernel, number, shape))

    def is_block(self, operand: Operand) -> bool:
        """Whether the elements of a program may differ, or are written."""
        uniform = self.layout.rank == 1 and operand.access is Access.UNIFORM
        return operand.is_output or not uniform

    def address(self, operand: Operand, part: int | None) -> str:
        """Where the elements lie, or a component of the complex ones."""
        parts = [operand.pointer]
        if self.is_block(operand):
            at = self.at(operand)
            parts.append(at if part is None else f"2 * {at}")
        if part:
            parts.append(str(part))
        return " + ".join(parts)

    def at(self, operand: Operand) -> str:
        """The name of the offsets of an operand's elements."""
        if self.layout.is_line:
            return "offsets"
        return unless_taken(f"{operand.name}_at", self.taken)

    def load(self, load: Load) -> list[str]:
        mask = ", mask" if self.is_block(load.operand) else ""
        text = f"tl.load({self.address(load.operand, load.part)}{mask})"
        return self.assign(load.name, load.dtype, text)

    def stores(self, kernel: Kernel) -> Iterator[list[str]]:
        """The lines of each store: of the elements, or of the sums of the tile."""
        tile = self.layout.tile
        outputs = tile.down if tile else (False,) * len(kernel.stores)
        for store, down in zip(kernel.stores, outputs, strict=True):
            yield self.sum(store, down) if store.operand.is_sum else self.store(store)

    def sum(self, store: Store, down: bool) -> list[str]:
        """The lines that add up a tile; a sum has the type of its values."""
        (value,) = map(self.value, store.values)
        if not self.layout.is_line:
            last = f"size_{self.layout.rank - 1}"
            return tile_sums(store.operand, self.at(store.operand), down, value, last)
        total = f"tl.sum(tl.where(mask, {value}, 0.0))"
        return stored(f"{store.operand.pointer} + tl.program_id(0)", total)

    def store(self, store: Store) -> list[str]:
        operand, target = store.operand, store.operand.dtype.real
        lines: list[str] = []
        for number, value in enumerate(store.values):
            part = number if operand.dtype.is_complex else None
            text = self.value(value)
            if store.dtype.real != target:
                text = self.converted(text, store.dtype.real, target)
            lines.append(f"tl.store({self.address(operand, part)}, {text}, mask)")
        return lines

    def assign(self, name: str, dtype: DType, text: str) -> list[str]:
        return [f"{name} = {text}"]

    def type_name(self, dtype: DType) -> str:
        return _TYPES[dtype.name]

    def literal(self, value: Number, dtype: DType) -> str:
        return f"tl.full((), {python_literal(value, dtype)}, {self.type_name(dtype)})"

    def block(self, value: Value) -> str:
        """The value as a block, also where it is the same for all elements."""
        if isinstance(value, str):
            return f"tl.broadcast_to({value}, [BLOCK])"
        text = python_literal(ir.value_of(value), value.dtype)
        return f"tl.full([BLOCK], {text}, {self.type_name(value.dtype)})"

    def cast(self, node: Node, arg: str) -> str:
        return self.converted(arg, node.args[0].dtype, node.dtype)

    def converted(self, text: str, source: DType, target: DType) -> str:
        """The value in another type, rounded or wrapped around as PyTorch does."""
        if target.kind == "bool":
            return f"{text} != 0"
        if target.is_half and source != float32:
            text = f"{text}.to({self.type_name(float32)})"
        elif source.is_floating and target.is_integral and target.bits < 32:
            wide = int32 if target.signed else int64
            text = f"{text}.to({self.type_name(wide)})"
        return f"{text}.to({self.type_name(target)})"

    def statement(self, statement: Statement) -> list[str]:
        if not isinstance(statement, Assign):
            return super().statement(statement)
        node = statement.node
        text = self.expression(node, self.arguments(node, statement.args))
        return self.assign(statement.name, node.dtype, text)

    def arguments(self, node: Node, args: tuple[Value, ...]) -> tuple[str, ...]:
        """The printed arguments; a literal has its type where it would not get it."""
        plain = any(isinstance(a, str) for a in args)
        infix = node.op != "cast" and self.spelling(node).startswith("({0} ")
        return tuple(
            python_literal(ir.value_of(a), a.dtype)
            if not isinstance(a, str) and plain and gets_type(a, infix)
            else self.value(a)
            for a in args
        )

    def expression(self, node: Node, args: tuple[str, ...]) -> str:
        if node.op == "cast":
            return self.cast(node, *args)
        return bare(self.spelling(node).format(*args, **self.fields(node)))

    def spelling(self, node: Node) -> str:
        dtype = operand_dtype(node)
        if dtype == float32 and node.op in _ON_FLOAT32:
            return _ON_FLOAT32[node.op]
        if dtype.kind == "bool" and node.op in _ON_BOOLS:
            return _ON_BOOLS[node.op]
        return PRIMITIVES[node.op].spelling("triton", is_integral(node))

    def repeat(self, loop: Repeat) -> list[str]:
        number = loop.state[0].rpartition("_")[2]
        count, alive = f"round_{number}", f"alive_{number}"
        begin = [
            f"{name} = {self.block(start)}"
            for name, start in zip(loop.state, loop.start, strict=True)
        ]
        body = self.statements(loop.body)
        if loop.proceed is None:
            head = f"for {count} in range({loop.limit}):"
            inside = [*body, *simultaneous(loop.state, self.blocks(loop))]
            return [*begin, head, *self.indented(inside)]
        # An element that is done keeps its state; the block goes on for the others.
        begin += [f"{alive} = mask", f"{count} = 0"]
        head = (
            f"while ({count} < {loop.limit}) & (tl.max({alive}.to(tl.int32), 0) > 0):"
        )
        kept = [
            f"tl.where({alive}, {self.value(after)}, {name})"
            for name, after in zip(loop.state, loop.next, strict=True)
        ]
        inside = [
            *self.statements(loop.guard),
            f"{alive} = {alive} & {self.value(loop.proceed)}",
            *body,
            *simultaneous(loop.state, kept),
            f"{count} += 1",
        ]
        return [*begin, head, *self.indented(inside)]

    def blocks(self, loop: Repeat) -> list[str]:
        """The next state; the state is blocks from the start and has to stay so."""
        known = set(loop.state)
        for statement in loop.body:
            if isinstance(statement, Repeat) or reads(statement) & known:
                known.update(writes(statement))
        return [
            value if isinstance(value, str) and value in known else self.block(value)
            for value in loop.next
        ]


def unspecialized(kernel: Kernel) -> list[str]:
    """The integers whose values Triton may not compile in; it leaves floats alone."""
    integers = [a.name for a in kernel.arguments if a.dtype.is_integral]
    return integers + [p.name for p in shape_parameters(kernel) if p.name != "n"]


def constant_names(kernel: Kernel) -> tuple[str, ...]:
    """What a kernel is compiled anew for: elements of a program, columns of a tile."""
    tiled = kernel.layout.tile is not None and not kernel.layout.is_line
    return ("BLOCK", "COLUMNS") if tiled else ("BLOCK",)


def function_name(kernel: Kernel) -> str:
    """What the kernel's function is called; the scheduler has kept that name free."""
    return f"{kernel.name}_kernel"


def decorator(names: list[str]) -> list[str]:
    """The lines above the function, which name the arguments not to specialise on."""
    if not names:
        return ["@triton.jit"]
    quoted = [f'"{name}"' for name in names]
    line = f"@triton.jit(do_not_specialize=[{', '.join(quoted)}])"
    if len(line) <= WIDTH:
        return [line]
    begin, end = ["@triton.jit(", "    do_not_specialize=["], ["    ]", ")"]
    return [*begin, *(f"        {name}," for name in quoted), *end]


def simultaneous(names: tuple[str, ...], values: list[str]) -> list[str]:
    """The lines that give all names their values at once."""
    if len(names) == 1:
        return [f"{names[0]} = {values[0]}"]
    return [f"{', '.join(names)} = (", *(f"    {value}," for value in values), ")"]


def gets_type(node: Node, infix: bool) -> bool:
    """Whether a bare literal becomes a value of the constant's dtype.

    Between Python's operators it takes the type of the other operand, exactly.
    Elsewhere Triton makes it float32 or int32 if it fits.
    """
    if infix:
        return node.dtype.kind != "bool"
    if node.dtype != float32:
        return node.dtype == int32
    value = abs(float(ir.value_of(node).real))
    return not 0 < value < 2.0**-126


def python_literal(value: Number, dtype: DType) -> str:
    """The constant as Python spells it; Triton rounds it to the type it gets."""
    assert not isinstance(value, complex), "complex values are taken apart before"
    if dtype.kind == "bool":
        return str(bool(value))
    if dtype.kind == "int":
        return str(ir.wrap_integer(int(value), dtype))
    value = float(value)
    if math.isnan(value):
        return 'float("nan")'
    if _overflows(value, dtype):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    return repr(value)


def _overflows(value: float, dtype: DType) -> bool:
    """Whether the value is infinite, or is rounded to infinity."""
    try:
        struct.pack({"float16": "<e", "float64": "<d"}.get(dtype.name, "<f"), value)
    except OverflowError:
        return True
    return math.isinf(value)


TARGET = Triton()
