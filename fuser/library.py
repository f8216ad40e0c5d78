"""The formulas that come with the package, and those a user adds, as one library.

Comes in: files. Goes out: `Library`: the derivative entries, and the functions that
formulas may call. An in-place operator computes what the operator without the
underscore does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuser import bessel, errorfunctions, gammas, incompletegamma, special
from fuser.entries import load, load_functions
from fuser.formulas import Entry, EntryFile, FunctionEntry
from fuser.functions import Function, Functions
from fuser.optable import BY_ATEN, Primitive
from fuser.queries import QUERIES
from fuser.resources import resource
from fuser.signatures import parse_signature

PACKAGED = ("helpers.yaml", "definitions.yaml")
# The modules whose import adds operators to `special.SPECIAL`.
BUILDERS = (errorfunctions, bessel, gammas, incompletegamma)


@dataclass(frozen=True, slots=True)
class Library:
    """`opaque` names the operators that are kept whole for the entry they have."""

    entries: EntryFile
    functions: Functions
    opaque: frozenset[str]


def library(
    derivatives: Path | str | None = None,
    *more: Path | str,
    known: Collection[str] | None = None,
) -> Library:
    """The packaged formulas; `derivatives` stands in for derivatives.yaml, and `more`
    are files of functions like definitions.yaml. FormulaFileError for their mistakes.

    `known` names what the formulas of `derivatives` may call besides the functions that
    have a pointwise formula here; with None, what they call is not looked at.
    """
    paths = [*(resource(name) for name in PACKAGED), *more]
    functions = Functions([*_from_files(paths), *_builders()])
    names = None if known is None else {*known, *functions.names, *QUERIES}
    entries = load(derivatives or resource("derivatives.yaml"), functions=names)
    functions = Functions(_with_primitives(functions, entries.by_name))
    functions = Functions(_with_inplace(functions, entries.entries))
    whole = {n for n, f in functions.by_name.items() if _is_whole(f)}
    return Library(entries, functions, frozenset(whole) & frozenset(entries.by_name))


def _from_files(paths: Sequence[Path | str]) -> Iterator[Function]:
    for path in paths:
        for entry in load_functions(path):
            yield _function(entry)


def _function(entry: FunctionEntry) -> Function:
    promotes = entry.promotes
    if promotes is None:
        return Function(entry.signature, None, None, entry)
    over = None if promotes.over is None else frozenset(promotes.over)
    return Function(entry.signature, promotes.kind, over, entry)


def _builders() -> Iterator[Function]:
    for found in special.SPECIAL:
        signature = parse_signature(found.signature)
        yield Function(signature, found.promotes, None, found.builder)


def _with_primitives(
    functions: Functions, entries: Mapping[str, Entry]
) -> Iterator[Function]:
    """The functions, and the primitives as operators where nothing else is said."""
    yield from functions.by_name.values()
    for name, row in BY_ATEN.items():
        if name in entries and name not in functions.by_name:
            yield Function(entries[name].signature, row.promotes, None, row)


def _is_whole(function: Function) -> bool:
    """A primitive is a node of its own kind already; the others become call nodes, an
    operator that computes in place what a primitive does among them."""
    body = function.body
    return not isinstance(body, Primitive) or body.aten != function.name


def _with_inplace(functions: Functions, entries: Iterable[Entry]) -> Iterator[Function]:
    yield from functions.by_name.values()
    for entry in entries:
        found = functions.functional(entry.name)
        if found is None or entry.name in functions.by_name:
            continue
        if set(found.signature.by_name) == set(entry.signature.by_name):
            yield Function(entry.signature, found.promotes, found.over, found.body)
