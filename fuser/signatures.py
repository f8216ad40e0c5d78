"""The signature of an operator: text in, `Signature` out, and the same text back.

    base[.overload](Type name=default, ..., *, Type name, ...) -> returns

A mistake raises FormulaSyntaxError with its place inside the signature.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Final, NoReturn, TypeAlias

from fuser.errors import (
    NOWHERE,
    FormulaSyntaxError,
    Origin,
    SourceText,
    Span,
    nearest,
)

_TENSORS = "Tensor", "Scalar", "Storage", "Generator"
_PLAIN = "int", "SymInt", "float", "bool", "SymBool", "str", "Dimname", "DimVector"
_OPTIONS = "ScalarType", "Layout", "Device", "DeviceIndex", "MemoryFormat", "QScheme"
TYPES: Final = frozenset([*_TENSORS, *_PLAIN, *_OPTIONS, "Stream"])
"""The base types that a signature may name."""

DefaultValue: TypeAlias = "int | float | bool | str | tuple[int | float, ...] | None"


@dataclass(frozen=True, slots=True)
class Type:
    """A type: `base` and what follows it, from the inside out: `[]`, `[2]`, `?`."""

    base: str
    suffixes: tuple[str, ...] = ()

    @property
    def is_tensor(self) -> bool:
        """A Tensor, Tensor?, or a list of either."""
        return self.base == "Tensor"

    @property
    def is_list(self) -> bool:
        return any(suffix != "?" for suffix in self.suffixes)

    @property
    def optional(self) -> bool:
        """The value as a whole may be None (not merely the items of a list)."""
        return self.suffixes[-1:] == ("?",)

    @property
    def size(self) -> int | None:
        """The n of `int[n]`: how often a single value given for it is repeated."""
        for suffix in self.suffixes:
            if suffix[1:-1].isdigit():
                return int(suffix[1:-1])
        return None

    def __str__(self) -> str:
        return self.base + "".join(self.suffixes)


@dataclass(frozen=True, slots=True)
class Default:
    """A default: its value and its spelling. The name of an enum member is a str."""

    value: DefaultValue
    text: str


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument; `alias` is the text in `Tensor(a!)`, here `a!`, or None."""

    name: str
    type: Type
    default: Default | None = None
    kwarg_only: bool = False
    alias: str | None = None

    @property
    def is_tensor(self) -> bool:
        return self.type.is_tensor

    @property
    def is_list(self) -> bool:
        return self.type.is_list

    @property
    def optional(self) -> bool:
        return self.type.optional

    @property
    def required(self) -> bool:
        return self.default is None

    @property
    def mutated(self) -> bool:
        """The operator writes to it: `Tensor(a!)`."""
        return self.alias is not None and "!" in self.alias

    def __str__(self) -> str:
        default = f"={self.default.text}" if self.default else ""
        return f"{_spell(self.type, self.alias)} {self.name}{default}"


@dataclass(frozen=True, slots=True)
class Return:
    """One return value; `name` is None where the signature gives none."""

    name: str | None
    type: Type
    alias: str | None = None

    @property
    def is_tensor(self) -> bool:
        return self.type.is_tensor

    def __str__(self) -> str:
        spelled = _spell(self.type, self.alias)
        return spelled if self.name is None else f"{spelled} {self.name}"


@dataclass(frozen=True)
class Signature:
    """An operator's signature; `span` is all of it, `name_span` its name."""

    base: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    name_span: Span = field(default=NOWHERE, compare=False, repr=False)

    @cached_property
    def name(self) -> str:
        """`base.overload`, or `base` alone."""
        return f"{self.base}.{self.overload}" if self.overload else self.base

    @cached_property
    def by_name(self) -> dict[str, Argument]:
        return {argument.name: argument for argument in self.arguments}

    @cached_property
    def result_names(self) -> tuple[str, ...]:
        """What formulas call the returns, in order.

        A name of the signature; `result` for a single return without one, `resultN` for
        one of several. A name that an argument has too gets `_return` behind it.
        """
        single = len(self.returns) == 1
        names: list[str] = []
        for position, returned in enumerate(self.returns):
            if returned.name is None:
                names.append("result" if single else f"result{position}")
            elif returned.name in self.by_name:
                names.append(f"{returned.name}_return")
            else:
                names.append(returned.name)
        return tuple(names)

    @property
    def inplace(self) -> bool:
        """Writes its result over its first argument: `op_(Tensor(a!) self, ...)`."""
        return (
            self.base.endswith("_")
            and bool(self.arguments)
            and self.arguments[0].mutated
        )

    @property
    def view(self) -> bool:
        """A return shares the memory of an argument without writing to it."""
        return any(r.alias is not None and "!" not in r.alias for r in self.returns)

    def __str__(self) -> str:
        shown: list[str] = []
        starred = False
        for argument in self.arguments:
            if argument.kwarg_only and not starred:
                shown.append("*")
                starred = True
            shown.append(str(argument))
        returns = ", ".join(map(str, self.returns))
        if len(self.returns) != 1:
            returns = f"({returns})"
        return f"{self.name}({', '.join(shown)}) -> {returns}"


def parse_signature(text: str, origin: Origin | None = None) -> Signature:
    """The signature that `text` spells, with spans as `origin` gives them."""
    return _Reader(text, origin or SourceText("<signature>", text)).signature()


def _spell(kind: Type, alias: str | None) -> str:
    marked = f"({alias})" if alias is not None else ""
    return f"{kind.base}{marked}{''.join(kind.suffixes)}"


@cache
def _type(base: str, suffixes: str) -> Type:
    return Type(base, tuple(re.findall(r"\?|\[\d*\]", suffixes)))


@cache
def _default(text: str) -> Default | None:
    """The default spelled `text`; None where it is no value at all."""
    if re.fullmatch(r"[A-Za-z_]\w*", text):
        constants: dict[str, DefaultValue] = {
            "None": None,
            "True": True,
            "False": False,
            "Mean": 1,  # at::Reduction::Mean, the one enum member signatures name
        }
        return Default(constants.get(text, text), text)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    if isinstance(value, list):
        value = tuple(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return Default(value, text)  # pyright: ignore[reportUnknownArgumentType]


_NAME = r"[A-Za-z_]\w*"
_ALIAS = r"[\w|*]+!?(?: -> [\w|*]+)?"
_TYPE = rf"(?P<base>{_NAME})(?:\((?P<alias>{_ALIAS})\))?(?P<suffixes>(?:\[\d*\]|\?)*)"
_DEFAULT = r"""\[[^\]]*\]|"[^"]*"|'[^']*'|[^\s,()]+"""
_ARGUMENT = re.compile(
    rf"{_TYPE}\s+(?P<name>{_NAME})(?:\s*=\s*(?P<default>{_DEFAULT}))?\s*(?=[,)])"
)
_RETURN = re.compile(rf"{_TYPE}(?:\s+(?P<name>{_NAME}))?\s*")
_OPERATOR = re.compile(rf"\s*(?P<base>{_NAME})(?:\.(?P<overload>\w+))?\s*")
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[\w.]+|->|\S|$")


class _Reader:
    """Reads one signature from left to right."""

    def __init__(self, text: str, origin: Origin) -> None:
        self.text = text
        self.origin = origin
        self.at = 0

    def fail(
        self,
        message: str,
        place: tuple[int, int],
        expected: str | None = None,
        hint: str | None = None,
    ) -> NoReturn:
        start, end = place
        # At the end of the text the caret stands under its last character.
        if start >= len(self.text):
            start, end = max(0, len(self.text) - 1), len(self.text)
        span = self.origin.span(start, max(end, start + 1))
        raise FormulaSyntaxError(message, span, expected, hint)

    def unexpected(self, expected: str) -> NoReturn:
        self.space()
        word = _WORD.match(self.text, self.at)
        assert word is not None
        found = f"unexpected `{word[0]}`" if word[0] else "it ends too early"
        self.fail(f"bad signature: {found}", word.span(), expected)

    def space(self) -> None:
        space = _SPACE.match(self.text, self.at)
        assert space is not None
        self.at = space.end()

    def take(self, literal: str) -> bool:
        self.space()
        if not self.text.startswith(literal, self.at):
            return False
        self.at += len(literal)
        return True

    def signature(self) -> Signature:
        operator = _OPERATOR.match(self.text)
        if operator is None:
            self.unexpected("the name of an operator")
        self.at = operator.end()
        begin, end = operator.start("base"), max(operator.end("base"), operator.end(2))
        if not self.take("("):
            self.unexpected("`(` and the arguments")
        arguments = self.arguments()
        if not self.take("->"):
            self.unexpected("`->` and the returns")
        returns = self.returns()
        self.space()
        if self.at < len(self.text):
            self.unexpected("the end of the signature")
        return Signature(
            operator["base"],
            operator["overload"] or "",
            tuple(arguments),
            tuple(returns),
            self.origin.span(begin, len(self.text.rstrip())),
            self.origin.span(begin, end),
        )

    def arguments(self) -> list[Argument]:
        arguments: list[Argument] = []
        seen: set[str] = set()
        starred = False
        if self.take(")"):
            return arguments
        while True:
            if self.take("*"):
                if starred:
                    place = self.at - 1, self.at
                    self.fail("bad signature: a second `*`", place)
                starred = True
            else:
                argument, start = self.argument(starred)
                if argument.name in seen:
                    message = f'two arguments are called "{argument.name}"'
                    self.fail(message, (start, start + len(argument.name)))
                seen.add(argument.name)
                arguments.append(argument)
            if self.take(")"):
                return arguments
            if not self.take(","):
                self.unexpected("`,` or `)`")

    def argument(self, kwarg_only: bool) -> tuple[Argument, int]:
        """The argument at hand, and where its name stands."""
        self.space()
        found = _ARGUMENT.match(self.text, self.at)
        if found is None:
            self.why_no_argument()
        kind = self.type(found)
        default = None
        if found["default"] is not None:
            default = _default(found["default"])
            if default is None:
                message = f"`{found['default']}` is not a default"
                kinds = "a number, True, False, None, a list, a string, an enum's name"
                self.fail(message, found.span("default"), kinds)
        self.at = found.end()
        named = Argument(found["name"], kind, default, kwarg_only, found["alias"])
        return named, found.start("name")

    def type(self, found: re.Match[str]) -> Type:
        if found["base"] not in TYPES:
            message = f'unknown type "{found["base"]}"'
            expected = "a type such as Tensor, Scalar, int[], bool, ScalarType?"
            hint = nearest(found["base"], TYPES)
            self.fail(message, found.span("base"), expected, hint)
        return _type(found["base"], found["suffixes"])

    def why_no_argument(self) -> NoReturn:
        kind = re.compile(_TYPE).match(self.text, self.at)
        if kind is None:
            self.unexpected("an argument, `Type name`")
        if kind["base"] not in TYPES and re.match(r"\s*[,)=]", self.text[kind.end() :]):
            message = f'the argument "{kind[0]}" has no type'
            self.fail(message, kind.span(), f"`Tensor {kind[0]}`")
        self.type(kind)
        self.at = kind.end()
        if self.text[self.at : self.at + 1] == "(":
            self.unexpected("an alias such as `(a!)`")
        name = re.compile(rf"\s+{_NAME}").match(self.text, self.at)
        if name is None:
            self.unexpected(f"a name after the type `{kind[0]}`")
        self.at = name.end()
        if self.take("="):
            default = re.compile(rf"\s*(?:{_DEFAULT})").match(self.text, self.at)
            if default is None:
                self.unexpected("a default after `=`")
            self.at = default.end()
        self.unexpected("`=`, `,` or `)`")

    def returns(self) -> list[Return]:
        if not self.take("("):
            return [self.returned()]
        returns: list[Return] = []
        if self.take(")"):
            return returns
        while True:
            returns.append(self.returned())
            if self.take(")"):
                return returns
            if not self.take(","):
                self.unexpected("`,` or `)`")

    def returned(self) -> Return:
        self.space()
        found = _RETURN.match(self.text, self.at)
        if found is None:
            self.unexpected("the type of a return")
        kind = self.type(found)
        self.at = found.end()
        return Return(found["name"], kind, found["alias"])
