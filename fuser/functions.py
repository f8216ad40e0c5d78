"""What a name in a formula can mean: the registry of functions.

Comes in: the op table, the formula files definitions.yaml and helpers.yaml, and the
builders of fuser.special. Goes out: `Functions`, which finds the function that a call
means, by name and by the kinds of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from fuser.formulas import FunctionEntry
from fuser.ir import Node, Static
from fuser.optable import PRIMITIVES, Primitive
from fuser.shelf import Shelf
from fuser.signatures import Argument, Signature
from fuser.values import Number, Tensor, Tuple, Undefined, Value, number

Builder: TypeAlias = Callable[..., Node | tuple[Node, ...]]


@dataclass(frozen=True, slots=True)
class Function:
    """A function with a signature and a value: a formula, a primitive, or a builder.

    `promotes` is the promotion kind of its arguments, or None where they come as they
    are; `over` names the arguments that take part (None: every Tensor). The result has
    the dtype of the argument `into`, where there is one.
    """

    signature: Signature
    promotes: str | None
    over: frozenset[str] | None
    body: FunctionEntry | Primitive | Builder
    into: str | None = None

    @property
    def name(self) -> str:
        return self.signature.name

    def takes_part(self, argument: Argument) -> bool:
        """Whether the argument's dtype counts in promotion."""
        if self.over is not None:
            return argument.name in self.over
        return argument.is_tensor


class Functions:
    """All functions, by the base name under which formulas call them; of several of one
    name the last one counts."""

    def __init__(self, functions: Iterable[Function] | Shelf[Function]) -> None:
        if isinstance(functions, Shelf):
            self.by_name = cast("Mapping[str, Function]", functions)
        else:
            self.by_name = {f.name: f for f in functions}
        self._by_base: dict[str, list[str]] = {}
        for name in self.by_name:
            self._by_base.setdefault(name.partition(".")[0], []).append(name)

    @property
    def names(self) -> frozenset[str]:
        """Every name that a formula may call."""
        return frozenset(self._by_base) | frozenset(PRIMITIVES)

    def primitive(self, name: str) -> Primitive | None:
        return PRIMITIVES.get(name)

    def overloads(self, name: str) -> Sequence[Function]:
        """The functions of that base name; a full name gives just that one."""
        if name in self._by_base:
            return [self.by_name[full] for full in self._by_base[name]]
        return [self.by_name[name]] if name in self.by_name else []

    def functional(self, operator: str) -> Function | None:
        """What the operator of that full name computes: its own function, or that of
        the operator without the underscore."""
        found = self.by_name.get(operator)
        return found or self.by_name.get(functional_name(operator))

    def resolve(
        self, name: str, args: Sequence[Value]
    ) -> tuple[Function, dict[str, Value]] | None:
        """The overload that takes the arguments best, and its arguments by name."""
        best: tuple[int, Function, dict[str, Value]] | None = None
        for function in self.overloads(name):
            bound = bind(function.signature, args)
            if bound is None:
                continue
            cost = sum(
                _cost(a, bound[a.name]) or 0 for a in function.signature.arguments
            )
            if best is None or cost < best[0]:
                best = (cost, function, bound)
        return best[1:] if best else None


def functional_name(operator: str) -> str:
    """The full name without the underscore that marks an in-place operator."""
    base, dot, overload = operator.partition(".")
    if base.endswith("_") and not base.endswith("__"):
        base = base[:-1]
    return base + dot + overload


def bind(signature: Signature, args: Sequence[Value]) -> dict[str, Value] | None:
    """The arguments by name, defaults filled in; None where they do not fit.

    C++ has no keyword arguments: keyword-only ones are given in order, too.
    """
    if len(args) > len(signature.arguments):
        return None
    bound: dict[str, Value] = {}
    for position, argument in enumerate(signature.arguments):
        if position < len(args):
            value = args[position]
        elif argument.default is not None:
            value = default_value(argument)
        elif argument.optional:
            value = Static(None)
        else:
            return None
        if _cost(argument, value) is None:
            return None
        bound[argument.name] = value
    return bound


def default_value(argument: Argument) -> Value:
    """The value a left-out argument has."""
    assert argument.default is not None
    value = argument.default.value
    if isinstance(value, bool | int | float):
        return number(value)
    if isinstance(value, tuple):
        return Tuple(tuple(number(v) for v in value))
    return Static(value)


def _cost(argument: Argument, value: Value) -> int | None:
    """How far the value is from the argument's type; None where it does not fit."""
    base = argument.type.base
    if isinstance(value, Static) and value.value is None:
        return 0 if argument.optional or base == "Tensor" else None
    if argument.is_list:
        return 0 if isinstance(value, Tuple | Static) else None
    if base == "Tensor":
        if isinstance(value, Tensor | Undefined):
            return 0
        return 2 if isinstance(value, Number) else None
    if base in ("Scalar", "float", "int", "SymInt", "bool"):
        return _number_cost(base, value)
    return 0 if isinstance(value, Static | Tuple) else None


def _number_cost(base: str, value: Value) -> int | None:
    if not isinstance(value, Number):
        return None
    if base == "Scalar":
        return 0
    if base == "float":
        return {"float": 0, "int": 1, "bool": 1, "complex": None}[value.kind]
    if base == "bool":
        return 0 if value.kind == "bool" else None
    return {"int": 0, "bool": 1, "float": None, "complex": None}[value.kind]
