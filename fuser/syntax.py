"""The syntax tree of a formula, its text, and the questions asked of it.

In: nothing but the nodes themselves (grammar.py builds them). Out: frozen nodes, each
with the span it was read from, `unparse` back to text, and queries over a tree. Two
nodes are equal when they mean the same text; spans do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from fuser.errors import NOWHERE, Span

PRECEDENCE: dict[str, int] = {
    "*": 10,
    "/": 10,
    "%": 10,
    "+": 9,
    "-": 9,
    "<<": 8,
    ">>": 8,
    "<": 7,
    "<=": 7,
    ">": 7,
    ">=": 7,
    "==": 6,
    "!=": 6,
    "&": 5,
    "^": 4,
    "|": 3,
    "&&": 2,
    "||": 1,
}
"""How tightly each binary operator binds: C++'s table. All group from the left."""

_POSTFIX, _UNARY, _CONDITIONAL = 12, 11, 0


@dataclass(frozen=True, slots=True)
class Name:
    """A name; `namespace` is what stands before it, `at::Reduction::` or empty."""

    id: str
    namespace: str = ""
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, bool, string or the absent value (None); `text` is its spelling."""

    value: int | float | bool | str | None
    text: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `!x`, ...; the operator `*` takes the value out of an optional."""

    op: str
    operand: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right` for an operator of PRECEDENCE."""

    op: str
    left: Expr
    right: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Conditional:
    """`test ? then : otherwise`."""

    test: Expr
    then: Expr
    otherwise: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`namespace function<template>(args)`, as in `std::get<0>(f(x))`.

    `name_span` covers the name alone, without its namespace and template.
    """

    function: str
    args: tuple[Expr, ...]
    namespace: str = ""
    template: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    name_span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Method:
    """`receiver.name(args)`, or `receiver->name(args)` where `arrow` is set."""

    receiver: Expr
    name: str
    args: tuple[Expr, ...]
    arrow: bool = False
    template: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    name_span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Index:
    """`base[index]`."""

    base: Expr
    index: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Braces:
    """`{a, b}`: a list of sizes, or whatever the place it stands in takes."""

    items: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Paren:
    """`(inner)`; kept, so that a formula prints as it was written."""

    inner: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Commented:
    """`/*text*/ inner`, or `inner /*text*/` where `after` is set; it means `inner`."""

    text: str
    inner: Expr
    after: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Lambda:
    """`[](type name, ...){return body;}`, as it occurs as an argument of fmap."""

    parameters: tuple[tuple[str, str], ...]
    body: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Expr: TypeAlias = (
    Name
    | Literal
    | Unary
    | Binary
    | Conditional
    | Call
    | Method
    | Index
    | Braces
    | Paren
    | Commented
    | Lambda
)


@dataclass(frozen=True, slots=True)
class AutoElementWise:
    """`auto_element_wise`: the forward derivative follows from the gradient formula."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AutoLinear:
    """`auto_linear`: the forward derivative is the operator applied to the tangents."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NotImplementedValue:
    """`not_implemented("message")`: asking for the derivative is an error.

    `text` is the whole spelling: a newer file also has a second argument, the name of a
    longer message, and `not_implemented_list` where the argument is a list of tensors.
    """

    message: str
    text: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NonDifferentiable:
    """`non_differentiable`: the argument never gets a gradient."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


Special: TypeAlias = (
    AutoElementWise | AutoLinear | NotImplementedValue | NonDifferentiable
)


def bare(expr: Expr) -> Expr:
    """`expr` without the parentheses and comments around it."""
    while isinstance(expr, (Paren, Commented)):
        expr = expr.inner
    return expr


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of `expr`, in the order in which they are written."""
    match expr:
        case Name() | Literal():
            return ()
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Conditional(test=test, then=then, otherwise=otherwise):
            return (test, then, otherwise)
        case Call(args=args):
            return args
        case Method(receiver=receiver, args=args):
            return (receiver, *args)
        case Index(base=base, index=index):
            return (base, index)
        case Braces(items=items):
            return items
        case Paren(inner=inner) | Commented(inner=inner):
            return (inner,)
        case Lambda(body=body):
            return (body,)


def walk(expr: Expr) -> Iterator[Expr]:
    """`expr` and everything in it, each before its parts, in the order of the text."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def names(expr: Expr) -> Iterator[Name]:
    """Every use of a name without a namespace that a lambda around it does not bind."""
    stack: list[tuple[Expr, frozenset[str]]] = [(expr, frozenset())]
    while stack:
        node, bound = stack.pop()
        if isinstance(node, Name):
            if not node.namespace and node.id not in bound:
                yield node
        elif isinstance(node, Lambda):
            bound |= {name for _, name in node.parameters}
        stack.extend((child, bound) for child in reversed(children(node)))


def free_names(expr: Expr) -> frozenset[str]:
    """The names that `expr` reads: arguments, results, `grad`, constants.

    Called functions, methods and qualified names (`at::Reduction::None`) are not among
    them, nor are the parameters of a lambda.
    """
    return frozenset(name.id for name in names(expr))


@dataclass(frozen=True, slots=True)
class Called:
    """One use of a function or, where `method` is set, of a method; and where."""

    name: str
    span: Span
    method: bool


def called_functions(expr: Expr) -> tuple[Called, ...]:
    """Every call of a function or method in `expr`, in the order of the text."""
    found: list[Called] = []
    for node in walk(expr):
        if isinstance(node, Call):
            found.append(Called(node.function, node.name_span, False))
        elif isinstance(node, Method):
            found.append(Called(node.name, node.name_span, True))
    return tuple(found)


def binding(expr: Expr) -> int:
    """How tightly `expr` holds together: 0 for `?:`, then as in PRECEDENCE."""
    match expr:
        case Conditional():
            return _CONDITIONAL
        case Binary(op=op):
            return PRECEDENCE[op]
        case Unary():
            return _UNARY
        case Commented(after=False):
            return _UNARY
        case _:
            return _POSTFIX


def unparse(expr: Expr | Special) -> str:
    """The text of `expr`: what was parsed, up to white space.

    A tree that a pass has put together gets the parentheses that it needs.
    """
    if isinstance(expr, Special):
        return _special(expr)
    out: list[str] = []
    stack: list[str | Expr] = [expr]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
        else:
            stack.extend(reversed(list(_pieces(item))))
    return "".join(out)


def _pieces(expr: Expr) -> Iterable[str | Expr]:
    match expr:
        case Name(id=id, namespace=namespace):
            return (namespace + id,)
        case Literal(text=text):
            return (text,)
        case Unary(op=op, operand=operand):
            # `--x` would be C++'s decrement, and `**x` reads as a power.
            twice = isinstance(operand, Unary) and operand.op == op
            return (op, " " * (twice and op in "+-*"), *_held(operand, _UNARY))
        case Binary(op=op, left=left, right=right):
            strength = PRECEDENCE[op]
            return (
                *_held(left, strength),
                f" {op} ",
                *_held(right, strength + 1),
            )
        case Conditional(test=test, then=then, otherwise=otherwise):
            return (*_held(test, 1), " ? ", then, " : ", otherwise)
        case Call(function=function, args=args, namespace=ns, template=template):
            return (ns + function + _template(template), "(", *_commas(args), ")")
        case Method(
            receiver=receiver, name=name, args=args, arrow=arrow, template=template
        ):
            dot = "->" if arrow else "."
            called = dot + name + _template(template)
            return (*_held(receiver, _POSTFIX), called, "(", *_commas(args), ")")
        case Index(base=base, index=index):
            return (*_held(base, _POSTFIX), "[", index, "]")
        case Braces(items=items):
            return ("{", *_commas(items), "}")
        case Paren(inner=inner):
            return ("(", inner, ")")
        case Commented(text=text, inner=inner, after=False):
            return (text, *_held(inner, _UNARY))
        case Commented(text=text, inner=inner):
            return (*_held(inner, _POSTFIX), " ", text)
        case Lambda(parameters=parameters, body=body):
            signature = ", ".join(f"{kind} {name}" for kind, name in parameters)
            return (f"[]({signature}){{return ", body, ";}")


def _held(expr: Expr, strength: int) -> tuple[str | Expr, ...]:
    """`expr`, in parentheses where it would otherwise fall apart."""
    return (expr,) if binding(expr) >= strength else ("(", expr, ")")


def _commas(items: tuple[Expr, ...]) -> Iterator[str | Expr]:
    for position, item in enumerate(items):
        if position:
            yield ", "
        yield item


def _template(template: tuple[str, ...]) -> str:
    return f"<{', '.join(template)}>" if template else ""


def _special(value: Special) -> str:
    match value:
        case AutoElementWise():
            return "auto_element_wise"
        case AutoLinear():
            return "auto_linear"
        case NonDifferentiable():
            return "non_differentiable"
        case NotImplementedValue(text=text):
            return text
