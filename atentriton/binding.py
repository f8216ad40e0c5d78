"""Arguments of a call, bound to a signature as PyTorch binds them.

Comes in: a signature and what a caller gave. Goes out: one value an argument, in order,
with defaults filled in; or a TypeError in PyTorch's words. Of several overloads the one
that fits is found by the types of the arguments alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fuser.errors import nearest
from fuser.signatures import Argument, Signature

NUMBERS = (bool, int, float, complex, torch.SymBool, torch.SymInt, torch.SymFloat)
TYPES: dict[str, tuple[type, ...]] = {
    "Tensor": (Tensor,),
    "Scalar": NUMBERS,
    "float": (float, int, torch.SymFloat, torch.SymInt),
    "int": (int, torch.SymInt),
    "SymInt": (int, torch.SymInt),
    "bool": (bool, torch.SymBool),
    "str": (str,),
    "ScalarType": (torch.dtype,),
    "Layout": (torch.layout,),
    "Device": (torch.device, str),
    "MemoryFormat": (torch.memory_format,),
    "Generator": (torch.Generator,),
}
SHOWN = {"Scalar": "Number", "ScalarType": "torch.dtype", "SymInt": "int"}


def fits(argument: Argument, value: Any, exact: bool = False) -> bool:
    """Whether the value may be given for the argument; `exact` rules out numbers that
    would have to be taken out of a tensor or an array."""
    if value is None:
        return argument.optional
    types = TYPES.get(argument.type.base, ())
    if argument.is_list:
        if isinstance(value, list | tuple):
            return all(_fits_in(argument, item) for item in value)
        return argument.type.size is not None and isinstance(value, types)
    if isinstance(value, types):
        return True
    if exact or argument.type.base not in ("Scalar", "float"):
        return False
    return _is_number_like(value)


def _fits_in(argument: Argument, item: Any) -> bool:
    """Whether the item may stand in a list that is given for the argument."""
    if item is None:
        return argument.type.suffixes[0] == "?"
    return isinstance(item, TYPES.get(argument.type.base, ()))


def _is_number_like(value: Any) -> bool:
    """Whether PyTorch would take a number out of it: a 0-d tensor, a NumPy scalar."""
    if isinstance(value, Tensor):
        return value.dim() == 0 and not value.requires_grad
    return getattr(value, "shape", None) == () and hasattr(value, "item")  # NumPy's


def settle(argument: Argument, value: Any) -> Any:
    """The value as an operator gets it: plain numbers, lists where lists are meant."""
    base = argument.type.base
    if value is None or base == "Tensor":
        return value
    if argument.is_list and not isinstance(value, list | tuple):
        return [value] * (argument.type.size or 1)
    if base in ("Scalar", "float"):
        if not isinstance(value, NUMBERS):
            value = value.item()  # type: ignore[union-attr]
        if base == "float" and isinstance(value, int):
            return float(value)
    return value


def bind(
    signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    """One value for each argument, in order; TypeError where they do not fit."""
    arguments = signature.arguments
    problem = _problem(signature, args, kwargs)
    if problem:
        raise TypeError(problem)
    values: list[Any] = []
    for position, argument in enumerate(arguments):
        if position < len(args):
            value = args[position]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        else:
            values.append(argument.default.value if argument.default else None)
            continue
        values.append(settle(argument, value))
    return values


def accepts(
    signature: Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    exact: bool = False,
) -> bool:
    """Whether a call with these arguments can mean this signature."""
    return _problem(signature, args, kwargs, exact) is None


def _problem(
    signature: Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    exact: bool = False,
) -> str | None:
    """What is wrong with the arguments, as PyTorch says it; None if nothing is."""
    arguments = signature.arguments
    called = f"{signature.base}()"
    positional = sum(not a.kwarg_only for a in arguments)
    if len(args) > positional:
        plural = "" if positional == 1 else "s"
        verb = "was" if len(args) == 1 else "were"
        taken = f"takes {positional} positional argument{plural}"
        return f"{called} {taken} but {len(args)} {verb} given"
    known = [a.name for a in arguments]
    for name in kwargs:
        if name not in known:
            guess = nearest(name, known)
            hint = f"; did you mean '{guess}'?" if guess else ""
            return f"{called} got an unexpected keyword argument '{name}'{hint}"
        if known.index(name) < len(args):
            return f"{called} got multiple values for argument '{name}'"
    missing: list[str] = []
    for position, argument in enumerate(arguments):
        if position < len(args):
            value = args[position]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        else:
            if argument.required and not argument.optional:
                missing.append(argument.name)
            continue
        if not fits(argument, value, exact):
            place = f" (position {position + 1})" if position < len(args) else ""
            named = f"{called}: argument '{argument.name}'"
            return _item(argument, value, position, named) or (
                f"{named}{place} must be {_shown(argument)}, not {_kind(value)}"
            )
    if missing:
        names = ", ".join(f'"{m}"' for m in missing)
        plural = "" if len(missing) == 1 else "s"
        wanted = f"required positional argument{plural}: {names}"
        return f"{called} missing {len(missing)} {wanted}"
    return None


def _item(argument: Argument, value: Any, position: int, named: str) -> str | None:
    """Which item of a list does not fit; None where it is the list that does not."""
    if not argument.is_list or not isinstance(value, list | tuple):
        return None
    at, item = next(
        (at, item) for at, item in enumerate(value) if not _fits_in(argument, item)
    )
    if argument.type.base == "Tensor":
        place = f"element {at} in argument {position}"
        return f"expected Tensor as {place}, but got {_kind(item)}"
    error = f"type must be {_shown(argument)},but got {_kind(item)}"
    return f'{named} failed to unpack the object at pos {at + 1} with error "{error}"'


def _kind(value: Any) -> str:
    return type(value).__name__


def _shown(argument: Argument) -> str:
    base = argument.type.base
    shown = SHOWN.get(base, base)
    return f"tuple of {shown}s" if argument.is_list else shown


def invalid_combination(
    base: str,
    signatures: Sequence[Signature],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> TypeError:
    """The error for a call that no overload takes."""
    given = [_kind(a) for a in args]
    given += [f"{k}={_kind(v)}" for k, v in kwargs.items()]
    expected = "\n".join(f" * {s}" for s in signatures)
    return TypeError(
        f"{base}() received an invalid combination of arguments - got "
        f"({', '.join(given)}), but expected one of:\n{expected}"
    )
