"""Where a mistake is, what it is, and how it is shown.

In: positions in a source text, and what a pass found wrong there. Out: `Span` and
`Diagnostic`, the exceptions that carry them, and their text: `file:line:column: error:
...`, the source line, a caret, what was expected, the nearest valid name.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol


class Origin(Protocol):
    """Says where in a file the characters of a formula stand."""

    def span(self, start: int, end: int) -> Span:
        """The span of the formula's characters `start` up to, not with, `end`."""
        ...


class SourceText:
    """A named text that spans point into; finds lines and columns of offsets."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def __repr__(self) -> str:
        return f"SourceText({self.name!r})"

    @cached_property
    def line_starts(self) -> list[int]:
        starts = [0]
        find = self.text.find
        at = find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = find("\n", at + 1)
        return starts

    def locate(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, of the character at `offset`."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of line `number` (from 1) without its line break; "" outside."""
        if not 1 <= number <= len(self.line_starts):
            return ""
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")

    def span(self, start: int, end: int) -> Span:
        """The span of the characters from offset `start` up to, not with, `end`."""
        line, column = self.locate(start)
        if end - 1 <= start:
            return Span(self.name, line, column, line, column + end - start, self)
        end_line, end_column = self.locate(end - 1)
        return Span(self.name, line, column, end_line, end_column + 1, self)


class Span(NamedTuple):
    """A stretch of a file. Lines and columns are from 1; the end column is exclusive.

    `source` is the text itself where it is known, so that an error raised late can
    still show the line; two spans are the same whatever it holds.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    source: SourceText | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Span) and self[:5] == other[:5]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:5])

    def __repr__(self) -> str:
        return f"Span({self})"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to(self, other: Span) -> Span:
        """From the start of this span to the end of `other`."""
        return Span(
            self.file,
            self.line,
            self.column,
            other.end_line,
            other.end_column,
            self.source,
        )


NOWHERE = Span("<none>", 0, 0, 0, 0)
"""The span of what was made by a pass and stands in no file."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake: where, what is wrong, what was expected, the nearest valid name."""

    span: Span
    message: str
    expected: str | None = None
    hint: str | None = None

    @property
    def position(self) -> tuple[str, int, int]:
        return self.span.file, self.span.line, self.span.column

    def render(self) -> str:
        """The text a person reads, several lines without a trailing line break."""
        place = "" if self.span is NOWHERE else f"{self.span}: "
        lines = [f"{place}error: {self.message}"]
        lines += _quote(self.span)
        if self.expected is not None:
            lines.append(f"  expected {self.expected}")
        if self.hint is not None:
            lines.append(f'  did you mean "{self.hint}"?')
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


def _quote(span: Span) -> list[str]:
    """The source line of `span` and the line with the caret below it."""
    if span.source is None:
        return []
    line = span.source.line(span.line)
    last = span.end_column if span.end_line == span.line else len(line) + 1
    width = max(1, last - span.column)
    # Tabs stay tabs, so that the caret stands right at any tab width.
    lead = "".join("\t" if c == "\t" else " " for c in line[: span.column - 1])
    lead = lead.ljust(span.column - 1)
    return [f"  {line}", f"  {lead}^{'~' * (width - 1)}"]


class FormulaError(Exception):
    """A mistake in a formula, or in what was asked of one.

    `diagnostic` says where and what; `span` may be left out where no file is involved.
    """

    def __init__(
        self,
        message: str | Diagnostic,
        span: Span | None = None,
        expected: str | None = None,
        hint: str | None = None,
    ) -> None:
        if isinstance(message, str):
            message = Diagnostic(span or NOWHERE, message, expected, hint)
        super().__init__(message)
        self.diagnostic = message

    @property
    def span(self) -> Span:
        return self.diagnostic.span

    def __str__(self) -> str:
        return self.diagnostic.render()


class FormulaSyntaxError(FormulaError):
    """A formula or signature that does not parse."""


class FormulaFileError(FormulaError):
    """Everything that is wrong with a file, in the order of the file.

    `diagnostics` holds at least one; `diagnostic` is the first.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(
            sorted(diagnostics, key=lambda d: d.position)
        )
        super().__init__(self.diagnostics[0])

    def __str__(self) -> str:
        count = len(self.diagnostics)
        shown = "\n\n".join(d.render() for d in self.diagnostics)
        return f"{count} error{'s' if count > 1 else ''}\n\n{shown}"


class DerivativeNotImplemented(NotImplementedError):
    """A derivative was asked for that the file says is not implemented.

    `operator` and `argument` say which; `message` is the file's own word for it.
    """

    def __init__(self, operator: str, argument: str, message: str) -> None:
        super().__init__(f"the derivative for '{message}' is not implemented.")
        self.operator = operator
        self.argument = argument
        self.message = message


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `name`, or None when none is close enough to be meant."""
    pool: Sequence[str] = sorted(set(candidates) - {name})
    by_lower = {c.lower(): c for c in reversed(pool)}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    close = difflib.get_close_matches(name, pool, n=1, cutoff=0.6)
    return close[0] if close else None
