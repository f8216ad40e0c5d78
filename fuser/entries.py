"""Files of formulas in, checked entries out; or every error of the file at once.

`load` reads derivatives.yaml, `load_functions` the files of the same shape that give
the values of operators and of helpers as formulas. For files that are known to be right
there are `shelf` and `function_shelf`, which read an entry when it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TypeVar

from fuser.errors import Diagnostic, FormulaFileError, SourceText, Span
from fuser.formulas import (
    Condition,
    Entry,
    EntryFile,
    Formula,
    FormulaSet,
    ForwardFormula,
    FunctionEntry,
    GradientFormula,
    Promotion,
)
from fuser.functionreader import FunctionReader
from fuser.reader import EntryReader
from fuser.shelf import Shelf
from fuser.signatures import Signature
from fuser.yamlsource import Item, read_item, read_items

__all__ = [
    "Condition",
    "Entry",
    "EntryFile",
    "Formula",
    "FormulaSet",
    "ForwardFormula",
    "FunctionEntry",
    "GradientFormula",
    "Promotion",
    "function_shelf",
    "load",
    "load_functions",
    "shelf",
]

T = TypeVar("T")


def load(
    path: Path | str,
    *,
    functions: Collection[str] | None = None,
    name: str = "<text>",
) -> EntryFile:
    """Read a file of derivatives, or its text where `path` is a str with line breaks.

    `functions` are the names of the functions and methods that formulas may call; with
    None they are not checked. `name` stands for a text in errors. Raises
    FormulaFileError with everything that is wrong.
    """
    source = _source(path, name)
    items, errors = read_items(source)
    by_name: dict[str, Entry] = {}
    for item in items:
        entry = EntryReader(item, functions, errors).entry()
        if entry is None:
            continue
        if entry.name in by_name:
            _twice(entry.signature, by_name[entry.name].span, errors)
            continue
        by_name[entry.name] = entry
    if errors:
        raise FormulaFileError(errors)
    return EntryFile(source.name, by_name)


def load_functions(
    path: Path | str,
    *,
    functions: Collection[str] | None = None,
    name: str = "<text>",
) -> tuple[FunctionEntry, ...]:
    """Read a file of functions; arguments and errors as for `load`.

    The names that the file itself defines may be called in it.
    """
    source = _source(path, name)
    items, errors = read_items(source)
    readers = [FunctionReader(item, functions, errors) for item in items]
    signatures = [reader.signature() for reader in readers]
    if functions is not None:
        known = {*functions, *(s.base for s in signatures if s is not None)}
        for reader in readers:
            reader.functions = known
    found: dict[str, FunctionEntry] = {}
    for reader, signature in zip(readers, signatures, strict=True):
        entry = reader.function(signature)
        if entry is None:
            continue
        if entry.name in found:
            _twice(entry.signature, found[entry.name].span, errors)
            continue
        found[entry.name] = entry
    if errors:
        raise FormulaFileError(errors)
    return tuple(found.values())


def shelf(path: Path) -> Shelf[Entry]:
    """The entries of a file of derivatives by name, each read when it is asked for.

    Every entry begins with a line `- name: signature`. What is wrong with an entry is
    found, and raised as FormulaFileError, when it is read; what it calls is not looked
    at.
    """

    def read(item: Item, errors: list[Diagnostic]) -> Entry | None:
        return EntryReader(item, None, errors).entry()

    return _shelf(path, read)


def function_shelf(path: Path) -> Shelf[FunctionEntry]:
    """The same for a file of functions."""

    def read(item: Item, errors: list[Diagnostic]) -> FunctionEntry | None:
        reader = FunctionReader(item, None, errors)
        return reader.function(reader.signature())

    return _shelf(path, read)


_BEGIN = re.compile(r"^- name: *([\w.]+)", re.MULTILINE)


def _shelf(path: Path, read: Callable[[Item, list[Diagnostic]], T | None]) -> Shelf[T]:
    source = _source(path, "")
    starts = list(_BEGIN.finditer(source.text))
    ends = [*(found.start() for found in starts[1:]), len(source.text)]
    return Shelf(
        {
            found[1]: partial(_read_one, source, found.start(), end, read)
            for found, end in zip(starts, ends, strict=True)
        }
    )


def _read_one(
    source: SourceText,
    start: int,
    end: int,
    read: Callable[[Item, list[Diagnostic]], T | None],
) -> T:
    item, errors = read_item(source, start, end)
    entry = read(item, errors)
    if errors or entry is None:
        raise FormulaFileError(errors)
    return entry


def _source(path: Path | str, name: str) -> SourceText:
    if isinstance(path, str) and "\n" in path:
        return SourceText(name, path)
    return SourceText(str(path), Path(path).read_text(encoding="utf-8"))


def _twice(signature: Signature, first: Span, errors: list[Diagnostic]) -> None:
    message = (
        f'a second entry for "{signature.name}"; the first is at line {first.line}'
    )
    errors.append(Diagnostic(signature.name_span, message))
