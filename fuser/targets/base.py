"""What a target language has to say for itself.

Comes in: the parts of a `Kernel`. Goes out: lines of source. A subclass spells types,
literals, operations, loads and stores, and hands its template what that asks for by
name; what is the same in every language is here.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

from fuser import ir
from fuser.dtypes import DType
from fuser.ir import Node, Number
from fuser.kernel import Assign, Kernel, Load, Repeat, Statement, Store, Value
from fuser.optable import PRIMITIVES


class Target(ABC):
    """A language. It has no state: one object prints every kernel."""

    name: ClassVar[str]
    # The file under templates/ that a kernel is printed through.
    template: ClassVar[str]
    # The column of the op table that holds this language's spellings.
    column: ClassVar[Literal["c", "triton"]]
    # What a line inside a block is indented by.
    indent: ClassVar[str] = "    "

    @abstractmethod
    def type_name(self, dtype: DType) -> str:
        """The type of a variable that holds a value of this dtype."""

    @abstractmethod
    def literal(self, value: Number, dtype: DType) -> str:
        """The constant, rounded to the dtype; NaN and infinities included."""

    @abstractmethod
    def cast(self, node: Node, arg: str) -> str:
        """The expression that converts `arg` from `node.args[0].dtype`."""

    @abstractmethod
    def load(self, load: Load) -> list[str]:
        """The lines that read an element."""

    @abstractmethod
    def store(self, store: Store) -> list[str]:
        """The lines that round the values and write the element."""

    @abstractmethod
    def assign(self, name: str, dtype: DType, text: str) -> list[str]:
        """The lines that define a value which never changes."""

    @abstractmethod
    def repeat(self, loop: Repeat) -> list[str]:
        """The lines of a loop; its state is read after them."""

    @abstractmethod
    def context(self, kernel: Kernel) -> Mapping[str, object]:
        """Everything the template asks for, by name."""

    def comment(self, text: str) -> str:
        """The text, made safe to stand in a comment of this language.

        Only printable ASCII is left, so that no line ends in it, and neither a
        backslash nor the trigraph of one, which would join it to the next.
        """
        text = "".join(c if " " <= c <= "~" and c != "\\" else "_" for c in text)
        return re.sub(r"\?(?=\?)", "? ", text)

    def value(self, value: Value) -> str:
        """An argument of a statement: a name, or a literal for a const node."""
        if isinstance(value, str):
            return value
        return self.literal(ir.value_of(value), value.dtype)

    def expression(self, node: Node, args: tuple[str, ...]) -> str:
        """The node's operation on printed arguments."""
        if node.op == "cast":
            return self.cast(node, *args)
        text = PRIMITIVES[node.op].spelling(self.column, is_integral(node))
        return bare(text.format(*args, **self.fields(node)))

    def fields(self, node: Node) -> Mapping[str, str]:
        """What the spellings of the op table name besides the arguments."""
        return {"t": self.type_name(operand_dtype(node))}

    def statements(self, statements: Iterable[Statement]) -> list[str]:
        """The lines of the statements, one after the other."""
        return [line for s in statements for line in self.statement(s)]

    def statement(self, statement: Statement) -> list[str]:
        match statement:
            case Load():
                return self.load(statement)
            case Repeat():
                return self.repeat(statement)
            case Assign(name, node, args):
                text = self.expression(node, tuple(map(self.value, args)))
                return self.assign(name, node.dtype, text)

    def next_state(self, loop: Repeat) -> tuple[list[str], list[tuple[str, str]]]:
        """How a round of a loop sets the state to `next`, all at once.

        Lines that keep values which would be overwritten too early, and then pairs
        (state variable, new value) to be assigned in order.
        """
        lines: list[str] = []
        pairs: list[tuple[str, str]] = []
        done: set[str] = set()
        for name, dtype, value in zip(loop.state, loop.dtypes, loop.next, strict=True):
            text = self.value(value)
            if text in done:
                lines += self.assign(f"{text}_next", dtype, text)
                text = f"{text}_next"
            if text != name:
                pairs.append((name, text))
                done.add(name)
        return lines, pairs

    def indented(self, lines: Iterable[str]) -> list[str]:
        return [self.indent + line for line in lines]


def operand_dtype(node: Node) -> DType:
    """The dtype that decides how an operation is spelled: that of its last argument."""
    return node.args[-1].dtype


def is_integral(node: Node) -> bool:
    """Whether the operation is on integers or bools."""
    return operand_dtype(node).kind in ("int", "bool")


def bare(text: str) -> str:
    """The text without a pair of parentheses that encloses all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and at < len(text) - 1:
            return text
    return text[1:-1]
