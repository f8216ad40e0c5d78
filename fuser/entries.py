"""Files of formulas in, checked entries out; or every error of the file at once.

`load` reads derivatives.yaml, `load_functions` the files of the same shape that give
the values of operators and of helpers as formulas.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

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
from fuser.signatures import Signature
from fuser.yamlsource import read_items

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
    "load",
    "load_functions",
]


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
    entries: list[Entry] = []
    by_name: dict[str, Entry] = {}
    for item in items:
        entry = EntryReader(item, functions, errors).entry()
        if entry is None:
            continue
        if entry.name in by_name:
            _twice(entry.signature, by_name[entry.name].span, errors)
            continue
        by_name[entry.name] = entry
        entries.append(entry)
    if errors:
        raise FormulaFileError(errors)
    return EntryFile(source.name, tuple(entries), by_name)


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


def _source(path: Path | str, name: str) -> SourceText:
    if isinstance(path, str) and "\n" in path:
        return SourceText(name, path)
    return SourceText(str(path), Path(path).read_text(encoding="utf-8"))


def _twice(signature: Signature, first: Span, errors: list[Diagnostic]) -> None:
    message = (
        f'a second entry for "{signature.name}"; the first is at line {first.line}'
    )
    errors.append(Diagnostic(signature.name_span, message))
