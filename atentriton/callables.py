"""Which of PyTorch's callables are operators that we compute.

Comes in: the operators that formulas give a value or a derivative. Goes out: for each
callable that a program may use (`torch.acosh`, `Tensor.acosh`, `torch._C._nn.gelu`,
`torch.special.erfcx`, `torch.ops.aten.mul.Tensor`) the name of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import torch

from atentriton import catalogue
from fuser.errors import nearest

# Other names that PyTorch has for an operator.
ALIASES: Mapping[str, str] = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "clip": "clamp",
    "divide": "div",
    "true_divide": "div",
    "fix": "trunc",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "subtract": "sub",
    "special_digamma": "digamma",
    "special_erf": "erf",
    "special_erfc": "erfc",
    "special_erfinv": "erfinv",
    "special_exp2": "exp2",
    "special_expit": "sigmoid",
    "special_expm1": "expm1",
    "special_gammainc": "igamma",
    "special_gammaincc": "igammac",
    "special_gammaln": "lgamma",
    "special_i0": "i0",
    "special_log1p": "log1p",
    "special_logit": "logit",
    "special_multigammaln": "mvlgamma",
    "special_polygamma": "polygamma",
    "special_psi": "digamma",
    "special_round": "round",
    "special_sinc": "sinc",
    "special_xlogy": "xlogy",
}

# How Python's operators are called where PyTorch has a function of its own for them.
DUNDERS: Mapping[str, str] = {
    "__eq__": "eq",
    "__ne__": "ne",
    "__lt__": "lt",
    "__le__": "le",
    "__gt__": "gt",
    "__ge__": "ge",
    "__invert__": "bitwise_not",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__iand__": "bitwise_and_",
    "__ior__": "bitwise_or_",
    "__ixor__": "bitwise_xor_",
}

# Kinds of operators that run by formulas; the last only where they are asked for by
# name: its values and most of its derivatives are PyTorch's work either way.
_OURS = ("fused", "in_place", "matrix")
_BY_NAME = (*_OURS, "composite")


class UnknownOperatorError(ValueError):
    """A name that no operator has."""


@cache
def bases() -> frozenset[str]:
    """The base names of all operators that are known, without underscores."""
    return frozenset(map(_plain, catalogue.names()))


@cache
def replaced(base: str, by_name: bool = False) -> bool:
    """Whether an operator of that base name, of `bases`, runs by formulas; `by_name`:
    where it has been asked for by its name."""
    names = catalogue.names()
    overloads = (*names.get(base, ()), *names.get(f"{base}_", ()))
    kinds = _BY_NAME if by_name else _OURS
    return any(catalogue.card_of(name).kind in kinds for name in overloads)


def _plain(base: str) -> str:
    return base if base.endswith("__") else base.removesuffix("_")


@cache
def table() -> Mapping[Any, str]:
    """The operator (in place: with its underscore) that each callable is."""
    found: dict[Any, str] = {}
    for base in bases():
        for name in (base, f"{base}_"):
            for callable_ in _called(name):
                found.setdefault(callable_, name)
    for alias, base in ALIASES.items():
        for suffix in ("", "_"):
            for callable_ in _called(alias + suffix):
                found.setdefault(callable_, base + suffix)
    for dunder, name in DUNDERS.items():
        found.setdefault(getattr(torch.Tensor, dunder), name)
    return found


def _called(name: str) -> Iterator[Callable[..., Any]]:
    """What a program may call by that name."""
    native: Any = torch._C
    for place in (native._VariableFunctions, torch.Tensor, native._nn):
        function = getattr(place, name, None)
        if callable(function):
            yield function
    function = getattr(native._special, name, None)
    if function is not None:
        yield function


def chosen(
    include: Iterable[str] | None, exclude: Iterable[str] | None
) -> frozenset[str]:
    """The base names that are to be replaced.

    UnknownOperatorError for a name that is none of them, with the nearest one that is.
    """
    names = bases() if include is None else frozenset(map(_known, _list(include)))
    return names - frozenset(map(_known, _list(exclude or ())))


def _list(given: Iterable[str]) -> Iterable[str]:
    try:
        names: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given)
    except TypeError:
        names = (given,)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"operators are given by their names, not as {name!r}")
    return names


def _known(name: str) -> str:
    base = _plain(name)
    base = base if base in bases() else ALIASES.get(base, base)
    if base in bases():
        if replaced(base, by_name=True):
            return base
        raise UnknownOperatorError(f"{name} is PyTorch's own: it has no formula to run")
    if "." in name:
        hint = "; operators are named without an overload"
    else:
        guess = nearest(base, bases())
        hint = f"; did you mean '{guess}'?" if guess else ""
    raise UnknownOperatorError(f"there is no operator called {name!r}{hint}")
