"""Operators held against PyTorch's own: values and derivatives.

Comes in: the name of an operator. Goes out: a `Report` with the largest errors of each
kind of check, and the failures with what led to them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from atentriton import (
    calls,
    catalogue,
    operators,
    opinfos,
)
from atentriton.calls import flattened, grouped
from atentriton.cases import Case
from atentriton.checks import DERIVED, DOUBLE, Check, in_short, name_of
from atentriton.programs import compiler
from atentriton.reports import KINDS, Report


def check(name: str, *, quick: bool = False) -> Report:
    """Check the operator of that full name; KeyError for an unknown one.

    One that torch does not have is held against differences in place of torch's.

    Quick: values and derivatives in float64 and complex128. Otherwise also every other
    dtype that torch's operator takes, the samples of its OpInfo database, edge values,
    gradcheck, vmap, and all arrangements in memory.
    """
    ours = operators.make(name)
    if isinstance(ours, operators.NotYet):
        return Report(name, "nothing", ours.reason)
    if isinstance(ours, operators.Torch):  # there is nothing to compare
        return Report(name, "torch", ours.reason)
    composite = isinstance(ours, operators.Composite)
    report = Report(name, "formulas" if composite else "kernels")
    theirs = catalogue.aten(name)
    whole = composite and ours.kind == "composite"
    try:
        with warnings.catch_warnings():  # of torch's, that it will retire an operator
            warnings.simplefilter("ignore")
            entry = compiler().operator(name).entry
            check = (Whole if whole else Check)(report, ours, theirs, entry)
            if theirs is None:
                check.differences()
            else:
                check.run(quick)
    except NotImplementedError as error:  # arguments that samples.py cannot draw
        report.skipped = dict.fromkeys(KINDS, in_short(error))
    return report


class Whole(Check):
    """An operator over whole tensors: what it can be called with is not for drawing,
    and its memory is torch's affair."""

    def caller(self, operator: Any) -> Callable[[Sequence[Any]], tuple[Tensor, ...]]:
        call = super().caller(operator)
        entry = self.entry
        assert entry is not None

        def whole(values: Sequence[Any]) -> tuple[Tensor, ...]:
            given = [
                value.clone() if argument.mutated else value  # as statistics kept
                for argument, value in zip(
                    self.signature.arguments, grouped(values), strict=True
                )
            ]
            pairs = zip(call(given), entry.differentiable_outputs, strict=True)
            found = (
                result if able else result.detach()
                for result, able in pairs
                if result is not None  # one that a mask leaves out
            )
            return tuple(r.to_dense() if r.is_sparse else r for r in found)

        return whole

    def run(self, quick: bool) -> None:
        dtypes = DOUBLE if quick else DERIVED
        known = dict.fromkeys(
            (*dtypes, torch.float32)
        )  # some have a kernel for it alone
        own = ((d, v) for d in known for v in calls.of(self.report.name, d))
        for source, found in (("OpInfo", self.samples(dtypes)), ("call", own)):
            for dtype, values in found:
                case = self.case(values, dtype, f"{source} {name_of(dtype)}")
                if self.value(case) is None:
                    continue
                self.report.opinfo += source == "OpInfo"
                if dtype in DERIVED:
                    self.derivatives(case)
                if not quick and dtype in DOUBLE:
                    self.gradcheck(case)
        for kind in KINDS:
            if kind not in self.report.measures and kind not in self.report.skipped:
                self.report.skipped[kind] = "nothing to compare"

    def samples(
        self, dtypes: Sequence[torch.dtype]
    ) -> Iterator[tuple[torch.dtype, list[Any]]]:
        """The samples of torch's OpInfo database."""
        return opinfos.calls(self.signature, self.operator, dtypes)

    def case(self, values: Sequence[Any], dtype: torch.dtype, label: str) -> Case:
        """The case of these values, with the items of lists beside each other."""
        named = self.cases.case(values, dtype, label)
        flat = tuple(flattened(values))
        return replace(named, values=flat, leaves=self.cases.leaves(flat))
