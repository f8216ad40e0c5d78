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
from fuser.targets._native_blocks import (
    Blocks,
    blocks,
    calls,
    is_call,
    lane_count,
    singles,
)
from fuser.targets._native_lanes import (
    LANES,
    is_long,
    is_short,
    lanes,
    over_lanes,
    remainders,
)
from fuser.targets._native_loops import (
    Levels,
    Walk,
    cost,
    element,
    every,
    fit,
    levels,
    walk,
)
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
        if source.kind == "bool" and target.is_floating:  # GCC vectorises no such cast
            one, zero = (self.literal(k, target.opmath) for k in (1, 0))
            arg = f"{arg} ? {one} : {zero}"
            return f"float_to_{target}({arg})" if target.is_half else arg
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
        if operand.is_sum:
            (value,) = store.values
            place = total(operand) if is_total(operand) else element(operand, None)
            return [f"{place} += {self.value(value)};"]
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
        # What is added up is no result by itself: where it was computed cannot be seen.
        framed = None if kernel.layout.sums else self.blocks(kernel, level)
        totals = [o for o in kernel.operands if is_total(o)]
        body = () if framed else fit(self.element_lines(kernel, level.body), 20)
        # What is called once a row has the bits it would have in every element of it.
        alone = singles(self, level.row) if framed else []
        row = (ALONE if alone else self).level(level.row, kernel.checks)
        return {
            "name": f"{kernel.name}_kernel",
            "comment": fit(map(self.comment, kernel.comment), 3),
            "halves": sorted(halves(kernel)),
            "quotients": sorted(quotients(kernel)),
            "walk": None if flat else self.walk(kernel, bases),
            "shape": ["int64_t n"] if flat else [f"const int64_t *{s}" for s in SHAPE],
            "parameters": [*pointers, *map(self.number, kernel.arguments)],
            "passed": fit([", ".join(passed)], 12),
            "shared": fit([", ".join(self.shared(kernel, passed))], 12),
            "totals": [f"double {total(o)} = 0;" for o in totals],
            "add_totals": [f"{element(o, None)} += {total(o)};" for o in totals],
            "reductions": reductions(kernel, totals),
            "prologue": fit(self.level(level.prologue, kernel.checks), 4),
            "row": fit(row, 16),
            "blocks": framed,
            "singles": alone,
            "remainders": remainders(self, level.body) if framed else [],
            "body": body,
            "grain": max(1024, _GRAIN // cost(kernel)),
        }

    def shared(self, kernel: Kernel, passed: list[str]) -> list[str]:
        """The same arguments for thread `k`, which has sums of its own."""
        sums = [o for o in kernel.operands if o.is_sum]
        # The spans of the sums follow the strides.
        first = len(kernel.operands) * kernel.layout.rank
        own = {
            f"{o.name}_base": f"{o.name}_base + k * strides[{first + i}]"
            for i, o in enumerate(sums)
        }
        return [own.get(text, text) for text in passed]

    def element_lines(self, kernel: Kernel, body: Iterable[Statement]) -> list[str]:
        """The lines that compute and store one element."""
        stores = (line for s in kernel.stores for line in self.store(s))
        return [*self.level(body, kernel.checks), *stores]

    def blocks(self, kernel: Kernel, level: Levels) -> Blocks | None:
        """The blocks of elements, where a loop over single ones would not do."""
        looping = any(map(is_long, level.body))
        if not looping and not calls((*level.row, *level.body)):
            return None
        if looping:
            body = lanes(self, level.body, kernel.stores, kernel.checks)
            return blocks(self, kernel, level, LANES, body)
        count = lane_count(kernel)
        inside = ["const int64_t i = block + lane;"]
        inside += self.element_lines(kernel, level.body)
        body = over_lanes(inside, count, "status" if kernel.checks else "")
        return blocks(self, kernel, level, count, body)

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


class Alone(Native):
    """The same language for what is computed once a row."""

    def expression(self, node: Node, args: tuple[str, ...]) -> str:
        text = super().expression(node, args)
        return f"single_{text}" if is_call(node.op) else text


def is_total(operand: Operand) -> bool:
    """Whether all of a row is added to one element: then that is done in a variable."""
    return operand.is_sum and operand.access is Access.UNIFORM


def total(operand: Operand) -> str:
    """The variable for that."""
    return f"{operand.name}_total"


def reductions(kernel: Kernel, totals: Iterable[Operand]) -> str:
    """What the lanes of a loop over elements bring together at its end."""
    found = [" reduction(|: status)"] if kernel.checks else []
    found += [f" reduction(+: {total(o)})" for o in totals]
    return "".join(found)


SHAPE = ("sizes", "strides")
TARGET = Native()
ALONE = Alone()


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
