"""Simplification: the same graph, smaller.

Comes in: roots. Goes out: roots that compute the same for every input, NaN, infinities
and signs of zero included: constants folded, the rules of fuser.rules applied from the
leaves up until none fits, conversions that lose nothing merged, bodies of loops too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from fuser import ir, syntax
from fuser.build import primitive
from fuser.dtypes import KINDS, DType
from fuser.fold import fold_number
from fuser.grammar import parse_formula
from fuser.ir import Loop, Node
from fuser.optable import PRIMITIVES
from fuser.rounding import rounded
from fuser.rules import POWERS, RULES

_OPERATORS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    ("-",): "neg",
    ("!",): "logical_not",
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """A tree to match or to build: a letter, a constant, or an op over patterns."""

    op: str
    args: tuple[Pattern, ...] = ()
    value: bool | int | float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """What matches `left`, with a result of one of the `kinds`, may become `right`."""

    left: Pattern
    right: Pattern
    kinds: frozenset[str]


def simplify(roots: Sequence[Node]) -> tuple[Node, ...]:
    """The roots, simplified; simplifying them once more changes nothing."""

    def visit(node: Node, args: tuple[Node, ...]) -> Node:
        node = ir.rebuild(node, args)
        return _settle(_tidy(node) if node.op == "iterate" else node)

    values = ir.fold(roots, visit)
    return tuple(values[r] for r in roots)


def _settle(node: Node) -> Node:
    """Rewrite the node, and what a rewriting makes anew below it, until nothing fits.

    Every rule makes the expression smaller or its operators simpler: there is an end.
    """
    while (after := _step(node)) is not node:
        node = after
    return node


def _step(node: Node) -> Node:
    folded = fold_number(node)
    if folded is not node:
        return folded
    if node.op == "cast":
        return _merge_casts(node)
    if node.op in ("real", "conj") and node.args[0].op == "cast":
        return _part_of_real(node)
    for rule in _rules().get(node.op, ()):
        bound: dict[str, Node] = {}
        if node.dtype.kind in rule.kinds and _match(rule.left, node, bound):
            return _construct(rule.right, bound, node.dtype)
    return node


# -- conversions -----------------------------------------------------------------------


def _merge_casts(node: Node) -> Node:
    """cast(cast(x, wide), t) -> cast(x, t) where the wide type holds every x."""
    (inner,) = node.args
    if inner.op == "const":
        return ir.cast(inner, node.dtype)
    if inner.op != "cast":
        return node
    (source,) = inner.args
    if source.op == "const" and not node.dtype.is_half:  # rounded to a half type
        value = rounded(rounded(ir.value_of(source), source.dtype), inner.dtype)
        return ir.const(rounded(value, node.dtype), node.dtype)
    if source.dtype.is_half and node.dtype != source.dtype:
        return node  # see `ir.cast`
    return ir.cast(source, node.dtype) if _holds(inner.dtype, source.dtype) else node


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of the narrow type, and its kind, is kept in the wide one."""
    if wide.kind != narrow.kind:
        return narrow.kind == "bool"
    if wide.signed != narrow.signed:
        return wide.signed and wide.bits > narrow.bits
    return wide == narrow or wide.bits > narrow.bits


def _part_of_real(node: Node) -> Node:
    """The real part or the conjugate of a real number made complex."""
    (made,) = node.args
    if made.args[0].dtype.is_complex:
        return node
    return made if node.op == "conj" else ir.cast(made.args[0], node.dtype)


# -- loops -----------------------------------------------------------------------------


def _tidy(node: Node) -> Node:
    """The loop with its body simplified: constants stand in it, not beside it, and what
    it does not read is not handed to it."""
    loop = node.attrs
    assert isinstance(loop, Loop)
    count = len(loop.step)
    state, captured = node.args[:count], node.args[count:]
    known = {
        ir.param(i, a.dtype): a
        for i, a in enumerate(captured, start=count)
        if a.op == "const"
    }
    roots = simplify(ir.substitute(loop.roots, known))
    read = set(ir.leaves(roots, "param"))
    kept = [
        (ir.param(i, a.dtype), a)
        for i, a in enumerate(captured, start=count)
        if ir.param(i, a.dtype) in read
    ]
    renumbered = {p: ir.param(i, p.dtype) for i, (p, _) in enumerate(kept, start=count)}
    roots = ir.substitute(roots, renumbered)
    args = (*state, *(a for _, a in kept))
    return ir.make("iterate", node.dtype, args, loop.with_roots(roots))


# -- rules -----------------------------------------------------------------------------


@cache
def _rules() -> dict[str, tuple[Rule, ...]]:
    """The rules by the op at the top of their left side."""
    table: dict[str, tuple[Rule, ...]] = {}
    for rule in (*rules_of(RULES), *rules_of(POWERS)):
        table[rule.left.op] = (*table.get(rule.left.op, ()), rule)
    return table


def rules_of(text: str) -> Iterator[Rule]:
    """The rules that the text writes down."""
    kinds = frozenset[str](KINDS)
    for line in map(str.strip, text.strip().splitlines()):
        if line.startswith("#"):
            kinds = frozenset(line.lstrip("# ").split(", "))
        elif line:
            left, right = line.split("->")
            yield Rule(_pattern(left), _pattern(right), kinds)


def _pattern(text: str) -> Pattern:
    return _compile(parse_formula(text.strip()))


def _compile(expr: syntax.Expr) -> Pattern:
    match expr:
        case syntax.Paren(inner=inner):
            return _compile(inner)
        case syntax.Name(id=name):
            return Pattern(name)
        case syntax.Literal(value=bool() | int() | float() as value):
            return Pattern("const", value=value)
        case syntax.Unary(
            op="-", operand=syntax.Literal(value=int() | float() as value)
        ):
            return Pattern("const", value=-value)
        case syntax.Unary(op=op, operand=operand):
            return Pattern(_OPERATORS[(op,)], (_compile(operand),))
        case syntax.Binary(op=op, left=left, right=right):
            return Pattern(_OPERATORS[op], (_compile(left), _compile(right)))
        case syntax.Call(function=function, args=args):
            return Pattern(function, tuple(_compile(a) for a in args))
        case _:
            raise ValueError(f"not a pattern: {syntax.unparse(expr)}")


def _match(pattern: Pattern, node: Node, bound: dict[str, Node]) -> bool:
    if pattern.op == "const":
        assert pattern.value is not None
        return _is(node, pattern.value)
    if pattern.op not in PRIMITIVES:
        return bound.setdefault(pattern.op, node) is node
    if node.op != pattern.op:
        return False
    return all(map(_match, pattern.args, node.args, [bound] * len(node.args)))


def _is(node: Node, value: bool | int | float) -> bool:
    """Whether the node is that constant; true and 1 are not the same."""
    if isinstance(value, bool) != (node.dtype.kind == "bool"):
        return False
    return ir.is_const(node, value)


def _construct(pattern: Pattern, bound: dict[str, Node], dtype: DType) -> Node:
    """The pattern's node; constants have `dtype`, that of what is replaced."""
    if pattern.op == "const":
        assert pattern.value is not None
        return ir.const(pattern.value, dtype)
    if pattern.op not in PRIMITIVES:
        return bound[pattern.op]
    args = [_construct(p, bound, dtype) for p in pattern.args]
    return _settle(primitive(pattern.op, *args))
