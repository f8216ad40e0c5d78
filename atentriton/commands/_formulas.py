"""What commands ask of the files of formulas.

Comes in: the name or path of a file, or of an operator. Goes out: compilers, verdicts
on entries, operators, the text of an entry. A name that does not exist is a UsageError
that says which name is nearest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from atentriton.commands import UsageError
from fuser.classify import Class, Verdict, classify
from fuser.entries import load
from fuser.errors import Diagnostic, SourceText, Span, nearest
from fuser.formulas import Entry, FormulaSet, FunctionEntry
from fuser.pipeline import Compiler, compiler, default_compiler
from fuser.resources import resource
from fuser.syntax import called_functions

CLASSES: tuple[str, ...] = get_args(Class)
MEANING: dict[str, str] = {
    "fused": "value and formulas are pointwise: kernels of our own, of any order",
    "matrix": "products of matrices through torch, with fused pointwise parts",
    "view": "torch's own view",
    "composite": "torch's own value; the formulas over whole tensors, through torch",
    "zero": "torch's own operator, every gradient is zero",
    "not_implemented": "the file gives no derivative: asking for one is an error",
    "non_differentiable": "no gradient, by the file's word",
    "not_yet": "calls something that atentriton cannot run so far",
}

# Parts of derivatives.yaml, by the heading that they stand under: entries of operators
# that formulas are made of, and those that files for a newer PyTorch have besides. All
# others are the operators that the file was begun for.
OPERATORS = "operators"
PARTS = {
    "Entries that the primitives' own derivatives need": "primitives",
    "Entries of newer files": "newer",
}
_HEADING = re.compile(r"#\s*=+\s+(?P<title>.*?)\s+=+\s*")


@dataclass(frozen=True, slots=True)
class Item:
    """An entry, what becomes of it, and the heading that it stands under, if any."""

    entry: Entry
    verdict: Verdict
    section: str

    @property
    def part(self) -> str:
        return PARTS.get(self.section, OPERATORS)

    def as_json(self) -> dict[str, Any]:
        line = self.entry.span.line
        return {**self.verdict.as_json(), "line": line, "section": self.section}


def file_of(given: str | None) -> Path | None:
    """The path that --file means: `torch` is PyTorch's own file, None ours."""
    if given is None:
        return None
    if given == "torch":
        return torch_file()
    path = Path(given)
    if not path.is_file():
        raise UsageError(f'there is no file "{given}"')
    return path


def torch_file() -> Path:
    """The derivatives.yaml that the installed PyTorch brings along."""
    spec = find_spec("torchgen")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / "packaged" / "autograd" / "derivatives.yaml"
        if path.is_file():
            return path
    raise UsageError("the installed PyTorch does not bring its derivatives.yaml along")


def compiler_of(path: Path | None) -> Compiler:
    """The compiler of the file; FormulaFileError with all that is wrong with it."""
    if path is None:
        return default_compiler()
    return compiler(path, known=known_functions())


@cache
def known_functions() -> frozenset[str]:
    """What a formula may call that has no pointwise formula here: PyTorch's operators
    and methods, and the functions that PyTorch's own file calls, or ours."""
    import torch

    registered = torch._C._dispatch_get_all_op_names()
    aten = {n[6:].partition(".")[0] for n in registered if n.startswith("aten::")}
    called = {
        found.name
        for path in (torch_file(), resource("derivatives.yaml"))
        for entry in load(path).entries
        for part in (
            FormulaSet(entry.gradients, entry.forwards),
            *entry.dispatch.values(),
        )
        for formula in (*part.gradients, *part.forwards)
        if formula.expr is not None
        for found in called_functions(formula.expr)
    }
    return frozenset({*aten, *called, *dir(torch.Tensor)})


def items(path: Path | None = None) -> list[Item]:
    """All entries of the file (ours if None), in its order."""
    from atentriton.catalogue import RUNTIME

    made = compiler_of(path)
    entries = list(made.entries.values())
    verdicts = classify(made, entries, RUNTIME)
    sections = _Sections(entries)
    return [
        Item(entry, verdict, sections.of(entry.span))
        for entry, verdict in zip(entries, verdicts, strict=True)
    ]


def counts(found: Iterable[Item]) -> dict[str, int]:
    """How many entries there are of each class, those with none left out."""
    counter = Counter(item.verdict.kind for item in found)
    return {kind: counter[kind] for kind in CLASSES if counter[kind]}


def operator_names(text: str, made: Compiler) -> list[str]:
    """The full names of the operators that a user means by `text`.

    A base name means all its overloads; `aten::` or `torch.` may stand in front.
    """
    name = re.sub(r"^(aten::|aten\.|torch\.ops\.aten\.|torch\.)", "", text)
    name = name.removesuffix(".default")
    known = {*made.entries, *made.functions.by_name}
    if name in known:
        return [name]
    overloads = sorted(n for n in made.entries if n.partition(".")[0] == name)
    if overloads:
        return overloads
    guess = nearest(name, {*known, *(n.partition(".")[0] for n in made.entries)})
    hint = f'; did you mean "{guess}"?' if guess else "; `atentriton list` has them all"
    raise UsageError(f'there is no operator "{text}"{hint}')


def operator_name(text: str, made: Compiler) -> str:
    """The one operator that a user means by `text`."""
    names = operator_names(text, made)
    if len(names) > 1:
        raise UsageError(f'"{text}" has several overloads: {", ".join(names)}')
    return names[0]


def entry_text(entry: Entry | FunctionEntry) -> str:
    """The lines of the entry as they stand in its file, comments above it included."""
    source = entry.span.source
    if source is None:
        return str(entry.signature)
    first = last = entry.span.line
    while source.line(first - 1).startswith("#") and not _HEADING.fullmatch(
        source.line(first - 1)
    ):
        first -= 1
    while source.line(last + 1).startswith((" ", "\t")):
        last += 1
    return "\n".join(source.line(i) for i in range(first, last + 1))


def place(span: Span) -> str:
    """file:line, the file relative to here where that is shorter."""
    path, here = Path(span.file), Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"{shown}:{span.line}"


def diagnostic_json(found: Diagnostic) -> dict[str, Any]:
    """A mistake in a file, for programs."""
    span = found.span
    return {
        "file": span.file,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
        "message": found.message,
        "expected": found.expected,
        "hint": found.hint,
    }


class _Sections:
    """The headings of a file: comments like `# === Title ===`."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._found: list[tuple[int, str]] = []
        source = next((e.span.source for e in entries), None)
        if isinstance(source, SourceText):
            for number, line in enumerate(source.text.splitlines(), start=1):
                if match := _HEADING.fullmatch(line):
                    self._found.append((number, match["title"]))

    def of(self, span: Span) -> str:
        """The last heading above the span, "" where there is none."""
        above = [title for line, title in self._found if line < span.line]
        return above[-1] if above else ""
