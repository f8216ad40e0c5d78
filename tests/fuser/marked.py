"""Texts in which the spot of each mistake stands between « and »."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.entries import load
from fuser.errors import Diagnostic, FormulaFileError, SourceText

FUNCTIONS = frozenset({"exp", "conj", "handle_r_to_c", "mul_", "where", "sizes"})


def unmarked(marked: str) -> tuple[str, list[tuple[int, int, int, int]]]:
    """The text without its marks, and lines and columns of what was between them."""
    text = ""
    spots: list[tuple[int, int]] = []
    for piece in marked.split("«"):
        inside, closed, outside = piece.partition("»")
        if closed:
            spots.append((len(text), len(text) + len(inside)))
        text += inside + outside
    spans = [SourceText("", text).span(*spot) for spot in spots]
    return text, [(s.line, s.column, s.end_line, s.end_column) for s in spans]


def errors_of(text: str, read: Callable[..., object] = load) -> tuple[Diagnostic, ...]:
    with pytest.raises(FormulaFileError) as caught:
        read(text, functions=FUNCTIONS, name="a.yaml")
    return caught.value.diagnostics


def check(
    marked: str,
    *found: tuple[str, str | None, str | None],
    read: Callable[..., object] = load,
) -> None:
    """Hold the mistakes of the text against (message, expected, hint) and the marks."""
    text, spots = unmarked(marked)
    errors = errors_of(text, read)
    assert [(e.message, e.expected, e.hint) for e in errors] == list(found)
    assert [e.span[1:5] for e in errors] == spots
    lines = text.split("\n")
    for error in errors:
        span = error.span
        place, line, caret, *_ = error.render().split("\n")
        assert place.startswith(f"a.yaml:{span.line}:{span.column}: error: ")
        assert line == "  " + lines[span.line - 1]
        width = max(1, span.end_column - span.column)
        assert caret == " " * (span.column + 1) + "^" + "~" * (width - 1)
