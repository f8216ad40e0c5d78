"""The calls that PyTorch tests an operator with: those of its OpInfo database.

Comes in: an operator's name and signature. Goes out: values for its arguments. A sample
of the database is for a Python function, which may call any of an operator's overloads:
the function is run, and what it calls is noted, its gradients' operators included.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from atentriton.cases import REFUSALS
from fuser.signatures import Argument, Signature

# Samples taken of a dtype, calls kept of them, and the elements that one may have.
# A call with a new dtype or layout means new kernels: in float64 there are the most.
SAMPLES = 12
CALLS = {torch.float64: 6, torch.float32: 4, torch.complex128: 3, torch.bfloat16: 3}
FEWEST = 2
ELEMENTS = 1000


def calls(
    signature: Signature, operator: Any, dtypes: Sequence[torch.dtype]
) -> Iterator[tuple[torch.dtype, list[Any]]]:
    """Values for the arguments of the operator, with the dtype that was asked for.

    Nothing where the database does not know the operator.
    """
    infos = _infos(signature.base.removesuffix("_"))
    for dtype in dtypes:
        found = chain.from_iterable(
            _of(signature, operator, info, dtype, backward)
            for info, backward in infos
            if dtype in info.supported_dtypes("cpu")
            and (_inexact(dtype) or not backward)
        )
        for values in islice(found, CALLS.get(dtype, FEWEST)):
            yield dtype, values


@cache
def _infos(base: str) -> tuple[tuple[Any, bool], ...]:
    """The entries for that base name, and whether it is the one of their gradient."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    forward = [(info, False) for info in op_db if base in _names(info)]
    if forward:
        return tuple(forward)
    return tuple((i, True) for i in op_db if i.aten_backward_name == base)


def _names(info: Any) -> set[str]:
    aliases = {alias.name.replace(".", "_") for alias in info.aliases}
    last = info.name.rpartition(".")[2]
    return {info.aten_name, info.name.replace(".", "_"), last, *aliases}


def _of(
    signature: Signature, operator: Any, info: Any, dtype: torch.dtype, backward: bool
) -> Iterator[list[Any]]:
    inplace = signature.base.endswith("_") and not signature.base.endswith("__")
    function = info.inplace_variant if inplace else info.op
    seen: set[str] = set()
    for sample in drawn(info, dtype, backward):
        args = (sample.input, *sample.args)
        noted = _Noted(signature, operator, inplace)
        if function is not None:
            with suppress(*REFUSALS), noted:
                given = (args[0].clone(), *args[1:]) if inplace else args
                found = function(*given, **sample.kwargs)
                if backward and isinstance(found, Tensor):
                    found.backward(torch.ones_like(found))
        found = noted.calls or [bound(signature, args, sample.kwargs)]
        for values in found:
            if values is not None and (look := _look(values)) not in seen:
                seen.add(look)
                yield values


def drawn(
    info: Any, dtype: torch.dtype, backward: bool, count: int = SAMPLES
) -> list[Any]:
    """The first samples of an entry, the same ones every time."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        found = info.sample_inputs("cpu", dtype, requires_grad=backward)
        return list(islice(found, count))


class _Noted(TorchDispatchMode):
    """Notes the arguments of every call of an operator while it is active."""

    def __init__(self, signature: Signature, operator: Any, inplace: bool) -> None:
        super().__init__()
        self.signature, self.operator, self.inplace = signature, operator, inplace
        self.calls: list[list[Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is self.operator:
            values = bound(self.signature, args, kwargs or {})
            if values is not None:
                if self.inplace:
                    values[0] = values[0].clone()
                self.calls.append(values)
        return func(*args, **(kwargs or {}))


def bound(
    signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any] | None:
    """A value for each argument; None where these are not the signature's, or are
    large."""
    names = [a.name for a in signature.arguments if not a.kwarg_only]
    given = dict(zip(names, args, strict=False))
    left = signature.by_name.keys() - given.keys()
    if len(args) > len(names) or not kwargs.keys() <= left:
        return None
    given.update(kwargs)
    values: list[Any] = []
    for argument in signature.arguments:
        if argument.name in given:
            value = given[argument.name]
        elif argument.default is not None:
            value = argument.default.value
        elif argument.optional:
            value = None
        else:
            return None
        if argument.is_list and isinstance(value, list | tuple):
            value = [v.detach() if isinstance(v, Tensor) else v for v in value]
            if not all(_fits(argument, v) or v is None for v in value):
                return None
        elif isinstance(value, Tensor):
            if argument.is_list or not _fits(argument, value):
                return None
            value = value.detach()
        elif value is not None and not _fits(argument, value):
            return None
        values.append(value)
    return values


def _fits(argument: Argument, value: Any) -> bool:
    """Whether the value, or the item of a list, may be one of the argument's."""
    if isinstance(value, Tensor):
        laid_out = value.layout in (torch.strided, torch.sparse_coo)
        small = laid_out and value.numel() <= ELEMENTS
        return argument.type.base == "Tensor" and small
    plain = isinstance(value, int | float | complex | str | torch.dtype)
    return plain and argument.type.base != "Tensor"


def _look(values: Sequence[Any]) -> str:
    """What tells one call from another: all but the elements."""
    flat = [i for v in values for i in (v if isinstance(v, list) else (v,))]
    return repr(
        [(v.shape, v.stride(), v.dtype) if isinstance(v, Tensor) else v for v in flat]
    )


def _inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
