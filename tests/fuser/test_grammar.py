"""Formulas: text to tree, tree to text, and what is said where it does not parse."""

from __future__ import annotations

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.errors import FormulaSyntaxError
from fuser.grammar import parse_formula
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
    bare,
    called_functions,
    children,
    free_names,
    unparse,
    walk,
)

A, B, C = Name("a"), Name("b"), Name("c")


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


TREES: list[tuple[str, Expr]] = [
    ("a", A),
    ("at::Reduction::None", Name("None", "at::Reduction::")),
    ("12", Literal(12, "12")),
    ("0.", Literal(0.0, "0.")),
    (".5e-3", Literal(0.0005, ".5e-3")),
    ("1f", Literal(1.0, "1f")),
    ("true", Literal(True, "true")),
    ("nullopt", Literal(None, "nullopt")),
    ("::std::nullopt", Literal(None, "::std::nullopt")),
    (r'"a\"b\n"', Literal('a"b\n', r'"a\"b\n"')),
    ("-a", Unary("-", A)),
    ("!*a", Unary("!", Unary("*", A))),
    ("a - -b", Binary("-", A, Unary("-", B))),
    ("a - b - c", Binary("-", Binary("-", A, B), C)),
    ("a + b * c", Binary("+", A, Binary("*", B, C))),
    ("a * b + c", Binary("+", Binary("*", A, B), C)),
    ("-a * b", Binary("*", Unary("-", A), B)),
    ("a || b && c", Binary("||", A, Binary("&&", B, C))),
    ("a & b == c", Binary("&", A, Binary("==", B, C))),
    ("a < b + c", Binary("<", A, Binary("+", B, C))),
    ("a ? b : c", Conditional(A, B, C)),
    ("a ? b : c ? a : b", Conditional(A, B, Conditional(C, A, B))),
    ("a || b ? b : c", Conditional(Binary("||", A, B), B, C)),
    ("f()", Call("f", ())),
    ("at::f(a, b)", Call("f", (A, B), "at::")),
    ("std::get<0>(a)", Call("get", (A,), "std::", ("0",))),
    ("std::tuple<A, B>()", Call("tuple", (), "std::", ("A", "B"))),
    (
        "std::vector<c10::optional<a, b>>(c)",
        Call("vector", (C,), "std::", ("c10::optional<a, b>",)),
    ),
    ("a.f(b).g()", Method(Method(A, "f", (B,)), "g", ())),
    ("a->f()", Method(A, "f", (), arrow=True)),
    ("a.item<int>()", Method(A, "item", (), template=("int",))),
    ("-a.f()", Unary("-", Method(A, "f", ()))),
    ("(a).f()", Method(Paren(A), "f", ())),
    ("a[0]", Index(A, Literal(0, "0"))),
    ("{}", Braces(())),
    ("{a, {b}}", Braces((A, Braces((B,))))),
    ("/*x=*/a", Commented("/*x=*/", A)),
    ("a /*x*/", Commented("/*x*/", A, after=True)),
    ("/*x*/-a + b", Binary("+", Commented("/*x*/", Unary("-", A)), B)),
    (
        "[](int i, c10::X x){return -i;}",
        Lambda((("int", "i"), ("c10::X", "x")), Unary("-", Name("i"))),
    ),
    ("a < b > c", Binary(">", Binary("<", A, B), C)),
]


@pytest.mark.parametrize(("text", "tree"), TREES)
def test_tree_and_text(text: str, tree: Expr) -> None:
    assert parse_formula(text) == tree
    assert squeezed(unparse(tree)) == squeezed(text)


def test_spans_cover_what_they_name() -> None:
    text = "a.foo(b) + at::bar<1>(-c)[2] * ({a})"
    tree = parse_formula(text)

    def covered(node: Expr) -> str:
        return text[node.span.column - 1 : node.span.end_column - 1]

    for node in walk(tree):
        assert squeezed(covered(node)) == squeezed(unparse(node))
    assert [text[c.span.column - 1 :][: len(c.name)] for c in called_functions(tree)]
    assert [c.name for c in called_functions(tree)] == ["foo", "bar"]
    assert [c.span.column for c in called_functions(tree)] == [3, 16]


def test_lines_count_in_spans() -> None:
    tree = parse_formula("a +\n  b")
    assert isinstance(tree, Binary)
    assert (tree.right.span.line, tree.right.span.column) == (2, 3)


def test_free_names_leave_out_functions_and_bound_names() -> None:
    text = "f(a, [](int i){return i + b;}).g(i) + at::c + M_PI"
    assert free_names(parse_formula(text)) == {"a", "b", "i", "M_PI"}


def test_long_and_deep_formulas_need_no_recursion() -> None:
    long = "+".join(["a"] * 5000)
    deep = "(" * 3000 + "a" + ")" * 3000
    for text in (long, deep):
        tree = parse_formula(text)
        assert squeezed(unparse(tree)) == text
        assert free_names(tree) == {"a"}


def test_threads_do_not_mix_their_origins() -> None:
    wrong: list[Expr] = []

    def work(pad: int) -> None:
        for _ in range(50):
            tree = parse_formula(" " * pad + "a")
            if tree.span.column != pad + 1:
                wrong.append(tree)

    threads = [threading.Thread(target=work, args=(pad,)) for pad in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- random trees -------------------------------------------------------------------

IDS = st.sampled_from(["a", "self", "grad_x", "x_p"])
SPACES = st.sampled_from(["", "at::", "std::x::"])
LEAVES: st.SearchStrategy[Expr] = st.one_of(
    st.builds(Name, IDS, SPACES),
    st.integers(0, 99).map(lambda n: Literal(n, str(n))),
    st.floats(0, 1e9).map(lambda x: Literal(x, repr(x))),
    st.booleans().map(lambda b: Literal(b, str(b).lower())),
    st.just(Literal("s,)", '"s,)"')),
    st.just(Literal(None, "std::nullopt")),
)


def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    many = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Unary, st.sampled_from("+-!~*"), inner),
        st.builds(Binary, st.sampled_from(sorted(PRECEDENCE)), inner, inner),
        st.builds(Conditional, inner, inner, inner),
        st.builds(Call, IDS, many, SPACES),
        st.builds(Call, IDS, many, st.just("std::"), st.just(("0", "a::b<c>"))),
        st.builds(Method, inner, IDS, many, st.booleans()),
        st.builds(Index, inner, inner),
        st.builds(Braces, many),
        st.builds(Paren, inner),
        st.builds(Commented, st.just("/* c */"), inner, st.booleans()),
        st.builds(Lambda, st.just((("int", "i"),)), inner),
    )


def stripped(expr: Expr) -> object:
    """`expr` without parentheses, as nested tuples."""
    while isinstance(expr, Paren):
        expr = expr.inner
    inner = tuple(stripped(child) for child in children(expr))
    if isinstance(expr, (Name, Literal)):
        return expr
    own = [getattr(expr, n, None) for n in ("op", "function", "name", "namespace")]
    own += [getattr(expr, n, None) for n in ("template", "arrow", "text", "after")]
    return type(expr), *own, inner


@given(st.recursive(LEAVES, extend, max_leaves=12))
def test_any_tree_prints_as_itself(tree: Expr) -> None:
    text = unparse(tree)
    again = parse_formula(text)
    assert stripped(again) == stripped(tree)
    assert unparse(again) == text


# --- mistakes: the spot is between « and » -------------------------------------------

MISTAKES = [
    ("«»", "the formula is empty", "an expression", None),
    ("grad «*»", "the formula ends too early", "a value", None),
    ("grad * «(»a + b", "`(` is never closed", "`)`", None),
    ("f«(»a, b", "`(` is never closed", "`,` or `)`", None),
    ("f(a «b»)", "unexpected `b`", "an operator, `,` or `)`", None),
    ("a«)»", "`)` closes nothing", "the end of the formula", None),
    ("f(a«]»", "unexpected `]`", "`,` or `)`", None),
    ("a ? «b»", "the formula ends too early", "`:`", None),
    ("x.«shape» * 2", None, "`shape(...)`", None),
    ("grad «**» 2", "`**` is Python's power", "`pow(x, n)` or `x.pow(n)`", None),
    ("a «=» b", "`=` assigns, a formula only computes", None, "=="),
    ("a «+=» b", "`+=` assigns, a formula only computes", None, None),
    ("a «===» b", "`===` is not an operator", None, "=="),
    ("a «;»", None, None, None),
    ("«return» a", None, None, None),
    ("«auto» x = 3", None, None, None),
    ("a «and» b", "`and` is Python's", None, "&&"),
    ("a «or» b", "`or` is Python's", None, "||"),
    ("«not» a", "`not` is Python's", None, "!"),
    ("a «is» b", "`is` is Python's", None, "=="),
    ("a «if» b else c", None, "`test ? then : otherwise`", None),
    ("«lambda» x: x", "`lambda` is Python's", "`[](type name){return ...;}`", None),
    ("a «@» b", None, "`a.matmul(b)` or `a.mm(b)`", None),
    ("a «//» b", None, "`/`, or `/* */`", None),
    ("f(«'a'»)", "'a' is not a string", 'a string in double quotes, "..."', None),
    ('f(«"a)»', "the string does not end", 'a closing `"`', None),
    ("a + «/*» b", "the comment does not end", "`*/`", None),
    ("f(«dim=»1)", None, "`/*dim=*/` before the value", None),
    ("x[1«:»2]", "slices are Python's", None, None),
    ("«(double)»a", None, "`x.to(dtype)`", None),
    ("«[&]»(int i){return i;}", None, "`[](type name){return ...;}`", None),
    ("a «$» b", "unexpected `$`", "an operator", None),
    ("«&»a", "unexpected `&`", "a value", None),
    ("a «grad»", "unexpected `grad`", "an operator or the end of the formula", None),
]


@pytest.mark.parametrize(("marked", "message", "expected", "hint"), MISTAKES)
def test_mistakes(
    marked: str, message: str | None, expected: str | None, hint: str | None
) -> None:
    start, end = marked.index("«"), marked.index("»") - 1
    text = marked.replace("«", "").replace("»", "")
    with pytest.raises(FormulaSyntaxError) as caught:
        parse_formula(text)
    found = caught.value.diagnostic
    assert (found.span.column - 1, found.span.end_column - 1) == (start, end)
    assert message is None or found.message == message
    assert expected is None or found.expected == expected
    assert found.hint == hint
    caret = found.render().split("\n")[2]
    assert caret == "  " + " " * start + "^" + "~" * (end - start - 1)


def test_no_terminal_of_the_parser_is_ever_named() -> None:
    for marked, *_ in MISTAKES:
        with pytest.raises(FormulaSyntaxError) as caught:
            parse_formula(marked.replace("«", "").replace("»", ""))
        assert not re.search(r"\b[A-Z]{4,}\b|\$END", caught.value.diagnostic.message)


def test_bare_takes_parentheses_and_comments_away() -> None:
    assert bare(parse_formula("((/*x*/ (a)))")) == A
