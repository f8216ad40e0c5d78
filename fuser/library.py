"""The formulas that come with the package, and those a user adds, as one library.

Comes in: files. Goes out: `Library`: the derivative entries, and the functions that
formulas may call. An in-place operator computes what the operator without the
underscore does. The packaged files are known to be right, and an entry of theirs is
read when it is asked for; a user's file is read, and its faults told, as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fuser import bessel, errorfunctions, gammas, incompletegamma, integers, special
from fuser.entries import function_shelf, load, load_functions, shelf
from fuser.formulas import EntryFile, FunctionEntry
from fuser.functions import Function, Functions, functional_name
from fuser.optable import BY_ATEN
from fuser.queries import QUERIES
from fuser.resources import resource
from fuser.shelf import Shelf
from fuser.signatures import parse_signature

DERIVATIVES = "derivatives.yaml"
PACKAGED = ("helpers.yaml", "definitions.yaml")
# The modules whose import adds operators to `special.SPECIAL`.
BUILDERS = (errorfunctions, bessel, gammas, incompletegamma, integers)

Makers = dict[str, Callable[[], Function]]


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
    makers = {**_from_files(more), **_from_builders()}
    if derivatives is None:
        path = resource(DERIVATIVES)
        entries = EntryFile(str(path), shelf(path))
    else:
        names = Functions(Shelf(makers)).names
        called = None if known is None else {*known, *names, *QUERIES}
        entries = load(derivatives, functions=called)
    plain = [n for n in BY_ATEN if n in entries.by_name and n not in makers]
    makers |= {name: partial(_primitive, entries, name) for name in plain}
    makers |= _in_place(entries, makers, Functions(Shelf(makers)))
    # A primitive is a node of its own kind already; the others become call nodes, an
    # operator that computes in place what a primitive does among them.
    whole = makers.keys() & entries.by_name.keys() - set(plain)
    return Library(entries, Functions(Shelf(makers)), frozenset(whole))


def _from_files(more: Collection[Path | str]) -> Makers:
    makers: Makers = {}
    for name in PACKAGED:
        entries = function_shelf(resource(name))
        makers |= {n: partial(_shelved, entries, n) for n in entries}
    for path in more:
        makers |= {e.name: partial(_function, e) for e in load_functions(path)}
    return makers


def _from_builders() -> Makers:
    return {
        found.signature.partition("(")[0]: partial(_built, found)
        for found in special.SPECIAL
    }


def _shelved(entries: Shelf[FunctionEntry], name: str) -> Function:
    return _function(entries[name])


def _function(entry: FunctionEntry) -> Function:
    promotes = entry.promotes
    if promotes is None:
        return Function(entry.signature, None, None, entry)
    over = None if promotes.over is None else frozenset(promotes.over)
    return Function(entry.signature, promotes.kind, over, entry, promotes.into)


def _built(found: special.Special) -> Function:
    signature = parse_signature(found.signature)
    return Function(signature, found.promotes, None, found.builder)


def _primitive(entries: EntryFile, name: str) -> Function:
    """A primitive as an operator, where nothing else is said of that operator."""
    row = BY_ATEN[name]
    return Function(entries.by_name[name].signature, row.promotes, None, row)


def _in_place(entries: EntryFile, makers: Makers, functions: Functions) -> Makers:
    """In-place operators with an entry of their own and without a value of their own:
    they compute what the functional one of the same arguments does."""
    found: Makers = {}
    for name in entries.by_name:
        plain = functional_name(name)
        if name in makers or plain not in makers:
            continue
        if not isinstance(
            entries.by_name, Shelf
        ):  # a user's file: arguments may differ
            theirs = functions.by_name[plain].signature.by_name
            if set(theirs) != set(entries.by_name[name].signature.by_name):
                continue
        found[name] = partial(_written, entries, functions, name, plain)
    return found


def _written(
    entries: EntryFile, functions: Functions, name: str, plain: str
) -> Function:
    return replace(functions.by_name[plain], signature=entries.by_name[name].signature)
