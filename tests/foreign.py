"""Entries of PyTorch's own file, run and held against PyTorch.

Comes in: the name of an entry. Goes out: a `Report` on torch's operator under
derivatives by the entry's own formulas, beside torch under its own: gradients, and
tangents by the forward formulas where these can run, on calls that PyTorch's OpInfo
database makes, in float64 and complex128.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from atentriton import catalogue, opinfos
from atentriton.cases import REFUSALS, Case
from atentriton.checking import Whole
from atentriton.commands._formulas import compiler_of, items, torch_file
from atentriton.composite import Arguments, apply
from atentriton.reports import Kind, Report
from atentriton.rule import Rule
from fuser.classify import unavailable
from fuser.formulas import Entry
from fuser.signatures import Signature, parse_signature


@cache
def entries() -> dict[str, Entry]:
    """The entries that run over whole tensors, by name, in the order of the file."""
    return {
        item.entry.name: item.entry
        for item in items(torch_file())
        if item.verdict.kind in ("composite", "matrix")
    }


def trial(name: str) -> Report:
    """What comes of the entry of that name; KeyError where there is none."""
    entry = compiler_of(torch_file()).entries[name]
    check = Trial(
        Report(name, "formulas"), operator(entry), catalogue.aten(name), entry
    )
    check.run(quick=True)
    return check.report


def operator(entry: Entry) -> Callable[..., Any]:
    """torch's operator, one in place on a copy, with derivatives by the formulas."""
    theirs = catalogue.aten(entry.name)
    made = compiler_of(torch_file())
    runnable = tuple(
        f for f in entry.forwards if not unavailable(made, (f,), catalogue.RUNTIME)
    )
    arguments = entry.signature.arguments
    plain = [i for i, a in enumerate(arguments) if not a.kwarg_only]
    named = [(i, a.name) for i, a in enumerate(arguments) if a.kwarg_only]

    def compute(values: Sequence[Any]) -> Any:
        args = [values[i] for i in plain]
        if entry.inplace:
            args[0] = args[0].clone()
        return theirs(*args, **{name: values[i] for i, name in named})

    owner = SimpleNamespace(
        rule=Rule(replace(entry, forwards=runnable)),
        binder=SimpleNamespace(redispatch=compute),
    )

    def call(*args: Any, **kwargs: Any) -> Any:
        by_place = dict(zip(plain, args, strict=True))
        values = [by_place.get(i, kwargs.get(a.name)) for i, a in enumerate(arguments)]
        each = Arguments(values)
        return apply(owner, compute, each, *each.flat(values))

    return call


class Trial(Whole):
    """The check of an entry: its value is torch's own, and so are its layouts."""

    kinds: tuple[Kind, ...] = ("first", "jvp")

    def samples(
        self, dtypes: Sequence[torch.dtype]
    ) -> Iterator[tuple[torch.dtype, list[Any]]]:
        found = False
        for dtype, values in super().samples(dtypes):
            found = True
            yield dtype, values
        if not found:
            yield from noted(self.operator, dtypes)

    def caller(self, operator: Any) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        call = super().caller(operator)

        def seeded(values: Sequence[Any]) -> tuple[Any, ...]:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)  # for what draws numbers
                return call(values)

        return seeded

    def value(self, case: Case) -> Any:
        try:
            return self.theirs(case.values)
        except REFUSALS:
            return None

    def fail(self, kind: Kind, case: Case, message: str) -> None:
        if "Could not run 'aten::" in message:
            self.skip(kind, "calls an operator that has no kernel on this machine")
        else:
            super().fail(kind, case, message)


def noted(
    operator: Any, dtypes: Sequence[torch.dtype]
) -> Iterator[tuple[torch.dtype, list[Any]]]:
    """Calls of the operator that any function of the database makes, or its backward.

    All of the database is run once a dtype: for operators that no function is named
    after.
    """
    for dtype in dtypes:
        for values in _every_call(dtype).get(operator, ()):
            yield dtype, values


@cache
def _every_call(dtype: torch.dtype) -> dict[Any, list[list[Any]]]:
    """The calls of each operator, of all that the database runs in that dtype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

        mode = _Every()
        for info in op_db:
            if dtype in info.supported_dtypes("cpu"):
                _run(info, dtype, mode)
    return mode.calls


def _run(info: Any, dtype: torch.dtype, mode: TorchDispatchMode) -> None:
    with suppress(Exception):  # samples may want what is not installed
        for sample in opinfos.drawn(
            info, dtype, info.supports_autograd, opinfos.FEWEST
        ):
            with suppress(*REFUSALS), mode:
                found = info.op(sample.input, *sample.args, **sample.kwargs)
                first = found[0] if isinstance(found, tuple | list) else found
                if isinstance(first, Tensor) and first.requires_grad:
                    first.backward(torch.ones_like(first))


class _Every(TorchDispatchMode):
    """Notes the arguments of each operator's first calls while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, list[list[Any]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = self.calls.setdefault(func, [])
        if len(found) < opinfos.CALLS[torch.complex128]:
            values = opinfos.bound(_signature(func), args, kwargs or {})
            if values is not None:
                found.append([_copied(v) for v in values])
        return func(*args, **(kwargs or {}))


@cache
def _signature(operator: Any) -> Signature:
    return parse_signature(str(operator._schema).removeprefix("aten::"))


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(v) for v in value]
    return value.clone() if isinstance(value, Tensor) else value
