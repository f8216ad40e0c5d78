"""A YAML file in, its entries out as nodes that know where each character stands.

In: a SourceText whose top level is a list of mappings. Out: `Item`s, and a diagnostic
for all that is not YAML. PyYAML composes the nodes; what is added is the way back from
an offset in a scalar's value, past quotes, escapes and folded lines, to the file, and
going on after an error: then each entry, and in a wrong entry each key, is read for
itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, cast

import yaml

from fuser.errors import Diagnostic, SourceText, Span

# PyYAML has no types of its own.
_PYYAML: Any = yaml
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Scalar:
    """A scalar: its value, and the offset in the file where it begins.

    `span(start, end)` is where the characters `start` up to, not with, `end` of the
    value stand in the file. `tag` is the YAML tag `!x` or anchor `&x` before it, or "".
    """

    source: SourceText
    value: str
    start: int
    style: str
    tag: str = ""
    _offsets: list[tuple[int, int]] | None = field(default=None, repr=False)
    _line: int = field(default=0, repr=False)
    _column: int = field(default=0, repr=False)

    def span(self, start: int, end: int) -> Span:
        if self._line == 0:
            self._look()
        if self._offsets is None:
            column = self._column
            return Span(
                self.source.name,
                self._line,
                column + start,
                self._line,
                column + end,
                self.source,
            )
        first = self._offsets[start][0]
        last = first if end <= start else self._offsets[end - 1][1]
        return self.source.span(first, last)

    @property
    def whole(self) -> Span:
        """The span of the value, without its quotes and the blanks around it."""
        if self.tag or not self.value.strip():
            return self.source.span(self.start, self.start + len(self.tag))
        return self.span(
            len(self.value) - len(self.value.lstrip()), len(self.value.rstrip())
        )

    def _look(self) -> None:
        """Find the line and column of the value; its offsets where it needs them."""
        begin = self.start + (self.style in ('"', "'"))
        self._line, self._column = self.source.locate(begin)
        value = self.value
        if "\n" in value or not self.source.text.startswith(value, begin):
            self._offsets = [*_offsets(self.source.text, self), (begin, begin)]


@dataclass(slots=True)
class Sequence:
    """A list; `start` is the offset of its first character."""

    source: SourceText
    items: list[Node]
    start: int

    @property
    def whole(self) -> Span:
        return self.source.span(self.start, self.start + 1)


@dataclass(slots=True)
class Mapping:
    """A mapping: its pairs in the order of the file, repeated keys included."""

    source: SourceText
    pairs: list[tuple[Scalar, Node]]
    start: int

    @property
    def whole(self) -> Span:
        return self.source.span(self.start, self.start + 1)


# A tag or an anchor before a value.
_MARK = re.compile(r"[!&]\S*")

Node: TypeAlias = "Scalar | Sequence | Mapping"


@dataclass
class Item:
    """One item of the list at the top of a file.

    `complete` is false where parts of it were not YAML and are missing.
    """

    source: SourceText
    node: Node
    start: int
    complete: bool = True

    @cached_property
    def comment(self) -> str:
        """The comment lines directly above the item, without their `#`."""
        line, _ = self.source.locate(self.start)
        lines: list[str] = []
        while (text := self.source.line(line - 1)).startswith("#"):
            lines.append(text[1:].removeprefix(" ").rstrip())
            line -= 1
        return "\n".join(reversed(lines))


def read_items(source: SourceText) -> tuple[list[Item], list[Diagnostic]]:
    """The items of the list at the top of `source`, and what is not YAML in it."""
    try:
        root = _compose(source, 0, source.text, _FAST)
    except yaml.YAMLError:
        return _read_apart(source)
    if root is None:
        return [], []
    if not isinstance(root, Sequence):
        message = "the top of the file is not a list of entries"
        return [], [Diagnostic(root.whole, message, "`- name: ...` for each entry")]
    return [Item(source, node, node.start) for node in root.items], []


def read_item(
    source: SourceText, start: int, end: int
) -> tuple[Item, list[Diagnostic]]:
    """The one item between those offsets, as `read_items` gives it."""
    piece = source.text[start:end]
    try:
        root = _compose(source, start, piece, _FAST)
    except yaml.YAMLError:
        return _read_keys(source, start, piece)
    assert isinstance(root, Sequence)
    (node,) = root.items
    return Item(source, node, node.start), []


def _compose(source: SourceText, base: int, text: str, loader: Any) -> Node | None:
    """The nodes of `text`, which stands in `source` from offset `base` on."""
    try:
        root = _PYYAML.compose(text, Loader=loader)
        return None if root is None else _convert(source, base, root, set())
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None


def _convert(
    source: SourceText, base: int, node: yaml.Node, seen: set[yaml.Node]
) -> Node:
    """Our node for PyYAML's.

    `seen` are the lists and mappings so far: an alias of one, which could make a tree
    without an end, is an error.
    """
    start = base + cast("int", node.start_mark.index)
    value: Any = node.value
    if isinstance(node, yaml.ScalarNode):
        mark = _MARK.match(source.text, start)
        return Scalar(source, value, start, node.style or "", mark[0] if mark else "")
    if node in seen:
        problem = "an alias of a list or mapping"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    seen.add(node)
    if isinstance(node, yaml.SequenceNode):
        items = [_convert(source, base, item, seen) for item in value]
        return Sequence(source, items, start)
    pairs: list[tuple[Scalar, Node]] = []
    for key, item in value:
        named = _convert(source, base, key, seen)
        if not isinstance(named, Scalar):
            # `{...}` where a key must stand; its text will be reported as no known key.
            end = cast("int", key.end_mark.index) + base
            named = Scalar(source, source.text[named.start : end], named.start, "")
        pairs.append((named, _convert(source, base, item, seen)))
    return Mapping(source, pairs, start)


def _read_apart(source: SourceText) -> tuple[list[Item], list[Diagnostic]]:
    """Read every entry for itself, after the file as a whole was not YAML."""
    items: list[Item] = []
    errors: list[Diagnostic] = []
    for start, text in _cut(source.text, r"^-(?=[ \n])"):
        try:
            root = _compose(source, start, text, _FAST)
        except yaml.YAMLError:
            root = None
            if text.startswith("-"):
                item, wrong = _read_keys(source, start, text)
                items.append(item)
                errors += wrong
                continue
        if isinstance(root, Sequence):
            items += [Item(source, node, node.start) for node in root.items]
        elif not _only_comments(text):
            errors.append(_outside(source, start + len(text) - len(text.lstrip())))
    return items, errors


def _read_keys(
    source: SourceText, start: int, text: str
) -> tuple[Item, list[Diagnostic]]:
    """Read every key of the entry `text` for itself, after the entry was not YAML."""
    text = " " + text[1:]
    indent = re.match(r" *", text)
    assert indent is not None
    pairs: list[tuple[Scalar, Node]] = []
    errors: list[Diagnostic] = []
    for offset, piece in _cut(text, rf"^(?: {{{indent.end()}}})?(?=[^\s#])"):
        if piece[:1].strip():
            errors.append(_outside(source, start + offset))
            continue
        try:
            root = _compose(source, start + offset, piece, yaml.SafeLoader)
        except yaml.YAMLError as error:
            errors.append(_not_yaml(source, start + offset, piece, error))
            continue
        if isinstance(root, Mapping):
            pairs += root.pairs
        elif root is not None:
            errors.append(Diagnostic(root.whole, "bad YAML: no key", "`key: formula`"))
    begin = start + indent.end()
    return Item(source, Mapping(source, pairs, begin), begin, complete=False), errors


def _outside(source: SourceText, offset: int) -> Diagnostic:
    message = "bad YAML: this stands outside the list of entries"
    span = source.span(offset, offset + 1)
    return Diagnostic(span, message, "`- name: ...` for each entry")


def _cut(text: str, start: str) -> Iterator[tuple[int, str]]:
    """The pieces of `text`, each from a match of `start` up to the next one."""
    at = [m.start() for m in re.finditer(start, text, re.MULTILINE)]
    if not at or at[0] > 0:
        at.insert(0, 0)
    for begin, end in zip(at, [*at[1:], len(text)], strict=True):
        yield begin, text[begin:end]


def _only_comments(text: str) -> bool:
    return all(not s.strip() or s.lstrip().startswith("#") for s in text.split("\n"))


# What PyYAML says of a formula that had to be quoted, and what to do.
_QUOTE = "quotes around a formula that {}"
_EXPECTED = (
    ("mapping values are not allowed", _QUOTE.format("holds `: `")),
    ("found undefined alias", _QUOTE.format("begins with `*`")),
    ("cannot start any token", _QUOTE.format("begins with such a character")),
    ("found unexpected end of stream", "the closing quote"),
    ("but found '<scalar>'", "the end of the value after its closing quote"),
    ("sequence entries are not allowed", _QUOTE.format("begins with `- `")),
)


def _not_yaml(
    source: SourceText, base: int, piece: str, error: yaml.YAMLError
) -> Diagnostic:
    """PyYAML's `error` in `piece`, in our form."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        position = cast("int", getattr(error, "position", 0))
        span = source.span(base + position, base + position + 1)
        reason = getattr(error, "reason", str(error))
        return Diagnostic(span, f"bad YAML: {reason}")
    problem = str(error.problem)
    mark = error.problem_mark
    if "end of stream" in problem and error.context_mark is not None:
        mark = error.context_mark
    offset = min(mark.index, max(0, len(piece.rstrip()) - 1))
    context = f" {error.context}" if error.context else ""
    span = source.span(base + offset, base + offset + 1)
    expected = next((e for part, e in _EXPECTED if part in problem), None)
    return Diagnostic(span, f"bad YAML{context}: {problem}", expected)


_ESCAPE = re.compile(r"\\(?:x[\dA-Fa-f]{2}|u[\dA-Fa-f]{4}|U[\dA-Fa-f]{8}|\s*\n\s*|.)")


def _offsets(text: str, scalar: Scalar) -> Iterator[tuple[int, int]]:
    """Where in `text` each character of the scalar's value begins and ends.

    White space is matched loosely, since folding a line turns any of it into one blank;
    all else must come in the same order as in the value.
    """
    at = scalar.start
    double, single = scalar.style == '"', scalar.style == "'"
    if scalar.style in ("|", ">"):
        at = text.find("\n", at)
    elif double or single:
        at += 1
    last = len(text) - 1
    for character in scalar.value:
        if character.isspace():
            yield min(at, last), min(at, last) + 1
            if double and text[at : at + 1] == "\\":
                at = _skip_escape(text, at)
            else:
                at += text[at : at + 1].isspace()
            continue
        while at < last and (
            text[at].isspace() or (double and re.match(r"\\[ \t]*\n", text[at:]))
        ):
            at = at + 1 if text[at].isspace() else _skip_escape(text, at)
        begin = min(at, last)
        if double and text[at : at + 1] == "\\":
            at = _skip_escape(text, at)
        else:
            at += 2 if single and character == "'" else 1
        yield begin, at


def _skip_escape(text: str, at: int) -> int:
    escape = _ESCAPE.match(text, at)
    return escape.end() if escape else at + 1
