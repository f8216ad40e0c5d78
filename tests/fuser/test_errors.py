"""Positions in a text, and how a mistake is shown."""

from __future__ import annotations

import pytest

from fuser.errors import (
    NOWHERE,
    Diagnostic,
    FormulaError,
    FormulaFileError,
    SourceText,
    Span,
    nearest,
)

SOURCE = SourceText("a.yaml", "one\ntwo three\n\nfour")


def test_span_of_offsets() -> None:
    assert SOURCE.span(0, 3)[:5] == ("a.yaml", 1, 1, 1, 4)
    assert SOURCE.span(8, 13)[:5] == ("a.yaml", 2, 5, 2, 10)
    assert SOURCE.span(8, 19)[:5] == ("a.yaml", 2, 5, 4, 5)
    assert SOURCE.span(15, 15)[:5] == ("a.yaml", 4, 1, 4, 1)


def test_every_offset_is_found_again() -> None:
    lines = SOURCE.text.split("\n")
    for offset, character in enumerate(SOURCE.text):
        line, column = SOURCE.locate(offset)
        assert (lines[line - 1] + "\n")[column - 1] == character


def test_lines_outside_the_text_are_empty() -> None:
    assert [SOURCE.line(n) for n in range(6)] == [
        "",
        "one",
        "two three",
        "",
        "four",
        "",
    ]


def test_span_joins_and_compares_without_its_text() -> None:
    joined = SOURCE.span(0, 3).to(SOURCE.span(8, 13))
    assert joined == Span("a.yaml", 1, 1, 2, 10)
    assert hash(joined) == hash(Span("a.yaml", 1, 1, 2, 10))
    assert joined != Span("b.yaml", 1, 1, 2, 10)
    assert repr(joined) == "Span(a.yaml:1:1)"


def test_rendering_has_place_line_caret_and_advice() -> None:
    found = Diagnostic(SOURCE.span(8, 13), 'unknown name "three"', "a number", "tree")
    assert found.render() == "\n".join(
        [
            'a.yaml:2:5: error: unknown name "three"',
            "  two three",
            "      ^~~~~",
            "  expected a number",
            '  did you mean "tree"?',
        ]
    )


def test_caret_of_several_lines_ends_with_the_first() -> None:
    assert Diagnostic(SOURCE.span(8, 19), "x").render().endswith("\n      ^~~~~")


def test_caret_stands_below_tabs() -> None:
    source = SourceText("a", "\tx = y")
    shown = Diagnostic(source.span(5, 6), "x").render().split("\n")
    assert shown[1:] == ["  \tx = y", "  \t    ^"]


def test_without_a_place_only_the_message() -> None:
    assert str(FormulaError("it is wrong", hint="that")) == (
        'error: it is wrong\n  did you mean "that"?'
    )
    assert FormulaError("it is wrong").span is NOWHERE


def test_a_span_without_its_text_shows_no_line() -> None:
    error = FormulaError("wrong", Span("b.yaml", 3, 4, 3, 6))
    assert str(error) == "b.yaml:3:4: error: wrong"


def test_a_file_error_is_sorted_and_counts() -> None:
    late = Diagnostic(SOURCE.span(15, 19), "late")
    early = Diagnostic(SOURCE.span(0, 3), "early")
    error = FormulaFileError([late, early])
    assert error.diagnostics == (early, late)
    assert error.diagnostic is early
    assert str(error).startswith("2 errors\n\na.yaml:1:1: error: early\n")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("handel_r_to_c", "handle_r_to_c"),
        ("SELF", "self"),
        ("zzz", None),
        ("", None),
    ],
)
def test_nearest(name: str, found: str | None) -> None:
    assert nearest(name, ["handle_r_to_c", "self", "other"]) == found


def test_nearest_is_never_the_name_itself() -> None:
    assert nearest("self", ["self"]) is None
