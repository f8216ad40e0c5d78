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
            absent = argument.type.suffixes[0] == "?"
            return all(isinstance(v, types) or (absent and v is None) for v in value)
        return argument.type.size is not None and isinstance(value, types)
    if isinstance(value, types):
        return True
    if exact or argument.type.base not in ("Scalar", "float"):
        return False
    return _is_number_like(value)


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
        raise TypeError(f"{signature.base}() {problem}")
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
    positional = sum(not a.kwarg_only for a in arguments)
    if len(args) > positional:
        plural = "" if positional == 1 else "s"
        verb = "was" if len(args) == 1 else "were"
        taken = f"takes {positional} positional argument{plural}"
        return f"{taken} but {len(args)} {verb} given"
    known = [a.name for a in arguments]
    for name in kwargs:
        if name not in known:
            guess = nearest(name, known)
            hint = f"; did you mean '{guess}'?" if guess else ""
            return f"got an unexpected keyword argument '{name}'{hint}"
        if known.index(name) < len(args):
            return f"got multiple values for argument '{name}'"
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
            return (
                f"argument '{argument.name}'{place} must be "
                f"{_shown(argument)}, not {type(value).__name__}"
            )
    if missing:
        names = ", ".join(f'"{m}"' for m in missing)
        plural = "" if len(missing) == 1 else "s"
        return f"missing {len(missing)} required positional argument{plural}: {names}"
    return None


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
    given = [type(a).__name__ for a in args]
    given += [f"{k}={type(v).__name__}" for k, v in kwargs.items()]
    expected = "\n".join(f" * {s}" for s in signatures)
    return TypeError(
        f"{base}() received an invalid combination of arguments - got "
        f"({', '.join(given)}), but expected one of:\n{expected}"
    )
