"""From PyTorch's tensors and numbers to the compiler's specs, and between the dtypes.

Comes in: tensors, Python numbers, the arguments of an operator. Goes out: the `Spec` of
each, which with the operator's name decides the program, and what the program is run
on: its tensors and its numbers, in the order of the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fuser import dtypes
from fuser.dtypes import DType, Kind
from fuser.ir import Static
from fuser.powers import is_small
from fuser.signatures import Argument, Signature
from fuser.specs import ScalarSpec, Spec, TensorSpec

TO_TORCH: dict[DType, torch.dtype] = {
    d: getattr(torch, d.name) for d in dtypes.DTYPES.values()
}
FROM_TORCH: dict[torch.dtype, DType] = {t: d for d, t in TO_TORCH.items()}


def dtype_of(dtype: torch.dtype) -> DType:
    """The compiler's name for `dtype`; NotImplementedError where it has none."""
    try:
        return FROM_TORCH[dtype]
    except KeyError:
        raise NotImplementedError(f'"{dtype}" tensors are not supported') from None


def kind_of(value: Any) -> Kind:
    """Whether a number given for a Scalar is a bool, an int, a float or a complex."""
    if isinstance(value, bool | torch.SymBool):
        return "bool"
    if isinstance(value, int | torch.SymInt):
        return "int"
    if isinstance(value, float | torch.SymFloat):
        return "float"
    return "complex"


def is_number(argument: Argument, value: Any) -> bool:
    """Whether the value is a number that a kernel is given at run time.

    A number that is its argument's default (alpha=1) is a constant of the program: it
    mostly is one by which nothing has to be multiplied. So is an exponent that makes a
    power a product or a root.
    """
    if value is None or argument.type.base not in ("Scalar", "float"):
        return False
    if is_exponent(argument):
        return not shapes_code(value)
    default = argument.default
    if default is None or type(value) is not type(default.value):
        return True
    return value != default.value


def is_exponent(argument: Argument) -> bool:
    """Whether programs know those numbers given for the argument that shape code."""
    return argument.name == "exponent"


def shapes_code(exponent: Any) -> bool:
    """Whether a power with this exponent is a product or a root."""
    if type(exponent) not in (int, float):
        return False
    return is_small(exponent) or abs(exponent) == 0.5


def key_of(argument: Argument, value: Any, batched: bool = False) -> object:
    """What of the value decides the program; hashable, and quick to take."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim() == batched
    if is_number(argument, value):
        return kind_of(value) if argument.type.base == "Scalar" else "float"
    if is_exponent(argument):  # 2.0 equals 2, and promotes in another way
        return type(value), value
    return _constant(value)


def spec_of(argument: Argument, value: Any, batched: bool = False) -> Spec:
    """The compiler's description of one argument.

    Tensors are described by dtype and by whether they have no dimensions (besides one
    that a vmap added, where `batched` is set); numbers by their kind; everything else
    by its value.
    """
    if isinstance(value, torch.Tensor):
        return TensorSpec(dtype_of(value.dtype), value.dim() == batched)
    if is_number(argument, value):
        return ScalarSpec(key_of(argument, value))  # type: ignore[arg-type]
    constant = _constant(value)
    return Static(dtype_of(value) if isinstance(value, torch.dtype) else constant)


def _constant(value: Any) -> Any:
    """A value that is part of the program, such that it can be a key."""
    if isinstance(value, list | torch.SymInt):
        return tuple(value) if isinstance(value, list) else int(value)
    return value


def specs_of(
    signature: Signature,
    values: Sequence[Any],
    batched: Sequence[bool] | None = None,
) -> tuple[Spec, ...]:
    """One spec an argument.

    Whether a tensor has no dimensions only matters in promotion beside one of another
    dtype that has some: elsewhere the mark is dropped, so that fewer programs exist.
    """
    batched = batched or (False,) * len(values)
    specs = tuple(map(spec_of, signature.arguments, values, batched))
    tensors = [s for s in specs if isinstance(s, TensorSpec)]
    mixed = (
        len({s.dtype for s in tensors}) > 1 and len({s.zero_dim for s in tensors}) > 1
    )
    return specs if mixed else tuple(map(_with_dimensions, specs))


def _with_dimensions(spec: Spec) -> Spec:
    return TensorSpec(spec.dtype) if isinstance(spec, TensorSpec) else spec


def split(signature: Signature, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The values that a program is run on: its tensors, and its numbers."""
    tensors: list[Any] = []
    numbers: list[Any] = []
    for argument, value in zip(signature.arguments, values, strict=True):
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif is_number(argument, value):
            numbers.append(value)
    return tensors, numbers
