"""Formula text in, syntax tree out; or a FormulaSyntaxError at the exact place.

formula.lark says what is a formula; the builder here makes the nodes of syntax.py while
lark parses, and groups flat operator chains by PRECEDENCE.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from fuser.errors import FormulaSyntaxError, Origin, SourceText, Span
from fuser.resources import resource
from fuser.slips import explain
from fuser.syntax import (
    PRECEDENCE,
    Binary,
    Braces,
    Call,
    Commented,
    Conditional,
    Expr,
    Index,
    Lambda,
    Literal,
    Method,
    Name,
    Paren,
    Unary,
)

ABSENT = frozenset({"nullopt", "std::nullopt", "::std::nullopt", "c10::nullopt"})
"""The spellings of the absent value."""


def parse_formula(text: str, origin: Origin | None = None) -> Expr:
    """The tree of the formula `text`, its spans as `origin` gives them.

    Without an origin they are lines and columns of the text itself. Raises
    FormulaSyntaxError.
    """
    return _parser()(text, origin or SourceText("<formula>", text))


@cache
def _parser() -> Callable[[str, Origin], Expr]:
    """Build the parser once; its builder holds the origin, hence one text at a time."""
    builder = _Builder()
    grammar = resource("formula.lark").read_text(encoding="utf-8")
    parser: Any = Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        transformer=builder,
        maybe_placeholders=False,
    )
    lock = threading.Lock()

    def parse(text: str, origin: Origin) -> Expr:
        with lock:
            builder.origin = origin
            try:
                return cast("Expr", parser.parse(text))
            except UnexpectedInput as error:
                raise _syntax_error(text, origin, error) from None

    return parse


def _syntax_error(
    text: str, origin: Origin, error: UnexpectedInput
) -> FormulaSyntaxError:
    allowed: set[str] = set()
    at = error.pos_in_stream
    if isinstance(error, UnexpectedCharacters):
        allowed = error.allowed or set()
    elif isinstance(error, UnexpectedToken):
        allowed = error.accepts or error.expected
        untyped: Any = error
        if untyped.token.type == "$END":
            at = None
    end = len(text.rstrip())
    slip = explain(text, end if at is None else min(at, end), allowed)
    span = origin.span(slip.start, slip.end)
    return FormulaSyntaxError(slip.message, span, slip.expected, slip.hint)


def _is_operand(part: Any) -> bool:
    return not isinstance(part, Token)


def group(parts: list[Any]) -> Expr:
    """Group the flat chain `a op b op c ...` by precedence, all from the left."""
    operands: list[Expr] = [parts[0]]
    pending: list[str] = []

    def reduce() -> None:
        op = pending.pop()
        right = operands.pop()
        left = operands.pop()
        operands.append(Binary(op, left, right, left.span.to(right.span)))

    for position in range(1, len(parts), 2):
        op = str(parts[position])
        while pending and PRECEDENCE[pending[-1]] >= PRECEDENCE[op]:
            reduce()
        pending.append(op)
        operands.append(parts[position + 1])
    while pending:
        reduce()
    return operands[0]


class _Builder(Transformer[Token, Any]):
    """Called by lark with the parts of each rule; returns the node."""

    origin: Origin

    def _span(self, first: Token, last: Token) -> Span:
        return self.origin.span(cast("int", first.start_pos), cast("int", last.end_pos))

    def start(self, parts: list[Any]) -> Expr:
        return parts[0]

    def conditional(self, parts: list[Any]) -> Expr:
        test, then, otherwise = parts
        return Conditional(test, then, otherwise, test.span.to(otherwise.span))

    def chain(self, parts: list[Any]) -> Expr:
        return group(parts)

    def prefixed(self, parts: list[Any]) -> Expr:
        op, operand = parts
        return Unary(str(op), operand, self._span(op, op).to(operand.span))

    def commented(self, parts: list[Any]) -> Expr:
        comment, inner = parts
        span = self._span(comment, comment).to(inner.span)
        return Commented(str(comment), inner, False, span)

    def comment_after(self, parts: list[Any]) -> Expr:
        inner, comment = parts
        span = inner.span.to(self._span(comment, comment))
        return Commented(str(comment), inner, True, span)

    def method(self, parts: list[Any]) -> Expr:
        receiver, dot, member = parts[:3]
        name, template = split_template(member)
        return Method(
            receiver,
            name,
            tuple(filter(_is_operand, parts[3:])),
            dot == "->",
            template,
            receiver.span.to(self._span(parts[-1], parts[-1])),
            self.origin.span(member.start_pos, member.start_pos + len(name)),
        )

    def index(self, parts: list[Any]) -> Expr:
        base, _, index, closing = parts
        return Index(base, index, base.span.to(self._span(closing, closing)))

    def name(self, parts: list[Any]) -> Expr:
        (token,) = parts
        span = self._span(token, token)
        if token == "true" or token == "false":
            return Literal(token == "true", str(token), span)
        if token in ABSENT:
            return Literal(None, str(token), span)
        namespace, id = split_namespace(token)
        return Name(id, namespace, span)

    def number(self, parts: list[Any]) -> Expr:
        (token,) = parts
        digits = token.rstrip("fFlLuU")
        value = int(digits) if digits.isdigit() else float(digits)
        if value.__class__ is int and token[-1] in "fF":
            value = float(value)
        return Literal(value, str(token), self._span(token, token))

    def string(self, parts: list[Any]) -> Expr:
        (token,) = parts
        return Literal(unescape(token), str(token), self._span(token, token))

    def call(self, parts: list[Any]) -> Expr:
        callee = parts[0]
        qualified, template = split_template(callee)
        namespace, name = split_namespace(qualified)
        begin = callee.start_pos + len(namespace)
        return Call(
            name,
            tuple(filter(_is_operand, parts[1:])),
            namespace,
            template,
            self._span(callee, parts[-1]),
            self.origin.span(begin, begin + len(name)),
        )

    def paren(self, parts: list[Any]) -> Expr:
        opening, inner, closing = parts
        return Paren(inner, self._span(opening, closing))

    def braces(self, parts: list[Any]) -> Expr:
        items = tuple(filter(_is_operand, parts))
        return Braces(items, self._span(parts[0], parts[-1]))

    def parameter(self, parts: list[Any]) -> tuple[str, str]:
        kind, name = parts
        return str(kind), str(name)

    def lambda_(self, parts: list[Any]) -> Expr:
        captures, *parameters, body, closing = parts
        return Lambda(tuple(parameters), body, self._span(captures, closing))


def split_namespace(qualified: str) -> tuple[str, str]:
    """`at::Reduction::None` -> (`at::Reduction::`, `None`)."""
    at = qualified.rfind("::") + 2
    return (qualified[:at], qualified[at:]) if at > 1 else ("", str(qualified))


def split_template(callee: str) -> tuple[str, tuple[str, ...]]:
    """`tuple<A, B>` -> (`tuple`, (`A`, `B`)); commas inside `<>` do not separate."""
    at = callee.find("<")
    if at < 0:
        return str(callee), ()
    arguments: list[str] = []
    depth, begin = 0, at + 1
    for position in range(at, len(callee)):
        character = callee[position]
        depth += (character == "<") - (character == ">")
        if (character == "," and depth == 1) or depth == 0:
            arguments.append(callee[begin:position].strip())
            begin = position + 1
    return callee[:at].rstrip(), tuple(arguments)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def unescape(quoted: str) -> str:
    """The value of a C++ string literal given with its quotes."""
    body = quoted[1:-1]
    if "\\" not in body:
        return body
    out: list[str] = []
    characters = iter(body)
    for character in characters:
        if character == "\\":
            escaped = next(characters)
            character = _ESCAPES.get(escaped, escaped)
        out.append(character)
    return "".join(out)
