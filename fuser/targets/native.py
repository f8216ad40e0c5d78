"""C for the CPU.

Comes in: the parts of a `Kernel`. Goes out: C11 with OpenMP's simd and parallel
pragmas, which GCC and Clang vectorise. The file exports one function, called as the
kernel:

    int32_t NAME_kernel(int64_t n, const T *self_ptr, ..., T *result_ptr, double alpha,
    ...,
                        int32_t threads)

It returns 0, or 1 if an integer was divided by zero. In place of `n`, a kernel that is
not flat takes `sizes` (rank numbers) and `strides` (for each operand, inputs first,
rank numbers, in elements). A bool is a byte, a complex number two reals. At most
`threads` threads work, fewer where the work is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fuser.dtypes import DType
from fuser.ir import Node, Number
from fuser.kernel import (
    Access,
    Argument,
    Assign,
    Kernel,
    Load,
    Operand,
    Repeat,
    Statement,
    Store,
    writes,
)
from fuser.targets._c_literals import float_literal, half_bits, integer_literal
from fuser.targets._native_lanes import LANES, is_short, lanes
from fuser.targets._native_loops import Walk, cost, every, fit, levels, walk
from fuser.targets.base import Target, bare, operand_dtype

_TYPES = {
    "bool": "bool",
    "uint8": "uint8_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
}

# On bools, which compilers vectorise best as bits.
_ON_BOOLS = {
    "maximum": "({0} | {1})",
    "minimum": "({0} & {1})",
    "fmax": "({0} | {1})",
    "fmin": "({0} & {1})",
    "where": "(({0} & {1}) | (!{0} & {2}))",
}

# Work that is worth another thread, in units of `cost`.
_GRAIN = 1 << 17


class Native(Target):
    name = "native"
    template = "native.c.jinja"
    column = "c"

    def type_name(self, dtype: DType) -> str:
        return _TYPES[dtype.name]

    def storage_name(self, dtype: DType) -> str:
        """The type of an element in memory, of a complex one that of its component."""
        return "uint8_t" if dtype.kind == "bool" else self.type_name(dtype.real)

    def literal(self, value: Number, dtype: DType) -> str:
        assert not isinstance(value, complex), "complex values are taken apart before"
        if dtype.kind == "bool":
            return "true" if value else "false"
        if dtype.kind == "int":
            return integer_literal(int(value), dtype)
        if dtype.is_half:
            return f"0x{half_bits(float(value), dtype):04x}"
        return float_literal(float(value), double=dtype.bits == 64)

    def expression(self, node: Node, args: tuple[str, ...]) -> str:
        if node.op in _ON_BOOLS and node.dtype.kind == "bool":
            return bare(_ON_BOOLS[node.op].format(*args))
        return super().expression(node, args)

    def fields(self, node: Node) -> Mapping[str, str]:
        dtype = operand_dtype(node)
        return {
            "f": "" if dtype.bits == 64 else "f",
            "t": self.type_name(dtype),
            "n": dtype.name,
        }

    def cast(self, node: Node, arg: str) -> str:
        return self.converted(arg, node.args[0].dtype, node.dtype)

    def converted(self, arg: str, source: DType, target: DType) -> str:
        """The expression that converts a value of one dtype to another."""
        if source == target:
            return arg
        if source.is_half:
            arg = f"{source}_to_float({arg})"
        if source.opmath == target:
            return arg
        if target.kind == "bool":
            return f"{arg} != 0"
        if target.is_half:  # C converts a double to float first, as PyTorch does
            return f"float_to_{target}({arg})"
        if source.is_floating and target.is_integral and target.bits < 32:
            return f"({self.type_name(target)})(int32_t){arg}"  # wraps, as PyTorch's
        return f"({self.type_name(target)}){arg}"

    def load(self, load: Load) -> list[str]:
        text = element(load.operand, load.part)
        if load.dtype.kind == "bool":
            text += " != 0"
        return self.assign(load.name, load.dtype, text)

    def store(self, store: Store) -> list[str]:
        operand = store.operand
        parts = (0, 1) if operand.dtype.is_complex else (None,)
        return [
            f"{element(operand, part)} = "
            f"{self.converted(self.value(value), store.dtype, operand.dtype.real)};"
            for part, value in zip(parts, store.values, strict=True)
        ]

    def assign(self, name: str, dtype: DType, text: str) -> list[str]:
        return [f"const {self.type_name(dtype)} {name} = {text};"]

    def repeat(self, loop: Repeat) -> list[str]:
        start = zip(loop.state, loop.dtypes, loop.start, strict=True)
        before = [
            f"{self.type_name(dtype)} {name} = {self.value(value)};"
            for name, dtype, value in start
        ]
        k = loop.state[0].replace("state", "round")
        head = f"for (int32_t {k} = 0; {k} < {loop.limit}; {k}++) {{"
        if is_short(loop):
            pragma = f"#pragma GCC unroll {loop.limit}"
            return [*before, pragma, head, *self.indented(self.round(loop)), "}"]
        kept, pairs = self.next_state(loop)
        inside = self.statements(loop.guard)
        if loop.proceed is not None:
            inside.append(f"if (!{self.value(loop.proceed)}) break;")
        inside += self.statements(loop.body) + kept
        inside += [f"{name} = {value};" for name, value in pairs]
        return [*before, head, *self.indented(inside), "}"]

    def round(self, loop: Repeat) -> list[str]:
        """A round without a branch, in which a state that is done stays as it is."""
        kept, pairs = self.next_state(loop)
        lines = self.statements((*loop.guard, *loop.body)) + kept
        if loop.proceed is None:
            return lines + [f"{name} = {value};" for name, value in pairs]
        proceed = self.value(loop.proceed)
        return lines + [f"{name} = {proceed} ? {v} : {name};" for name, v in pairs]

    def context(self, kernel: Kernel) -> Mapping[str, object]:
        flat = kernel.layout.flat
        bases = [o.pointer if flat else f"{o.name}_base" for o in kernel.operands]
        pointers = map(self.pointer, kernel.operands, bases)
        passed = [*(() if flat else SHAPE), *bases, *(a.name for a in kernel.arguments)]
        level = levels(kernel)
        looping = any(isinstance(s, Repeat) and not is_short(s) for s in level.body)
        if looping:
            body = lanes(self, level.body, kernel.stores, kernel.checks)
        else:
            body = self.element_lines(kernel, level.body)
        return {
            "name": f"{kernel.name}_kernel",
            "comment": fit(map(self.comment, kernel.comment), 3),
            "halves": sorted(halves(kernel)),
            "quotients": sorted(quotients(kernel)),
            "walk": None if flat else self.walk(kernel, bases),
            "shape": ["int64_t n"] if flat else [f"const int64_t *{s}" for s in SHAPE],
            "parameters": [*pointers, *map(self.number, kernel.arguments)],
            "passed": fit([", ".join(passed)], 12),
            "prologue": fit(self.level(level.prologue, kernel.checks), 4),
            "row": fit(self.level(level.row, kernel.checks), 16),
            "lanes": LANES if looping else None,
            "body": fit(body, 20),
            "checked": bool(kernel.checks),
            "grain": max(1024, _GRAIN // cost(kernel)),
        }

    def element_lines(self, kernel: Kernel, body: Iterable[Statement]) -> list[str]:
        """The lines that compute and store one element."""
        stores = (line for s in kernel.stores for line in self.store(s))
        return [*self.level(body, kernel.checks), *stores]

    def walk(self, kernel: Kernel, bases: list[str]) -> Walk:
        pointers = [self.pointer(o, o.pointer) for o in kernel.operands]
        pairs = list(zip(pointers, bases, strict=True))
        return walk(kernel.layout.rank, kernel.operands, pairs)

    def level(
        self, statements: Iterable[Statement], checks: tuple[str, ...]
    ) -> list[str]:
        """The lines of the statements, and of what is checked in them."""
        lines: list[str] = []
        for statement in statements:
            lines += self.statement(statement)
            lines += [f"status |= {n};" for n in writes(statement) if n in checks]
        return lines

    def pointer(self, operand: Operand, name: str) -> str:
        """The declaration of a pointer into the operand."""
        const = "" if operand.is_output else "const "
        return f"{const}{self.storage_name(operand.dtype)} *{name}"

    def number(self, argument: Argument) -> str:
        return f"{self.type_name(argument.dtype)} {argument.name}"


SHAPE = ("sizes", "strides")
TARGET = Native()


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


def halves(kernel: Kernel) -> set[str]:
    """The half types that occur in the kernel."""
    dtypes = [o.dtype for o in kernel.operands]
    for statement in every((*kernel.prologue, *kernel.body)):
        if isinstance(statement, Assign):
            dtypes += [statement.node.dtype, *(a.dtype for a in statement.node.args)]
    return {d.name for d in dtypes if d.is_half}


def quotients(kernel: Kernel) -> set[str]:
    """The integer types, as C calls them, that are divided in the kernel."""
    statements = every((*kernel.prologue, *kernel.body))
    nodes = (s.node for s in statements if isinstance(s, Assign))
    return {TARGET.type_name(n.dtype) for n in nodes if n.op in ("idiv", "imod")}
