"""The calls that an operator is checked with.

Comes in: a signature and torch's operator, which has the last word on what can be
called. Goes out: `Case`s, by dtype, by arrangement in memory, and with mixed dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atentriton import samples, trials
from atentriton.samples import CONTIGUOUS, Arrangement
from fuser.signatures import Signature

Function = Callable[[Sequence[Any]], tuple[Tensor, ...]]

# What torch's operators raise for arguments that they do not take.
REFUSALS = (RuntimeError, NotImplementedError, IndexError, TypeError, ValueError)

# Dtypes of the first tensor and of the others, and whether these have no dimensions.
MIXED = (
    (torch.float32, torch.int64, False),
    (torch.int32, torch.float32, False),
    (torch.float16, torch.float32, False),
    (torch.float32, torch.float64, True),
    (torch.int64, torch.float32, True),
    (torch.bool, torch.uint8, False),
    (torch.float32, torch.complex64, False),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One way to call the operator; `leaves` are what derivatives are taken of."""

    values: tuple[Any, ...]
    dtype: torch.dtype
    text: str
    leaves: tuple[int, ...] = ()

    def widened(self) -> list[Any]:
        """The tensors in float64 or complex128; booleans stay what they are."""
        return [_widened(value) for value in self.values]


def _widened(value: Any) -> Any:
    if not isinstance(value, Tensor) or value.dtype == torch.bool:
        return value
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


@dataclass(frozen=True, slots=True)
class Cases:
    """The calls of an operator; `reference` is torch's, on one value an argument."""

    signature: Signature
    reference: Function

    def of(
        self,
        dtypes: Sequence[torch.dtype],
        arrangement: Arrangement = CONTIGUOUS,
        first: bool = False,
    ) -> Iterator[Case]:
        """The ways to call the operator in those dtypes, or the `first` way alone."""
        ways = samples.settings(self.signature)
        place = "" if arrangement is CONTIGUOUS else f"{arrangement.name} "
        for dtype in dtypes:
            for way in ways[:1] if first else ways:
                values = samples.arguments(self.signature, dtype, way, arrangement)
                yield self.case(values, dtype, place + _name(dtype))

    def mixed(self) -> Iterator[Case]:
        """Calls with tensors of more than one dtype, where there are several."""
        if samples.has_parameters(self.signature):
            return
        for first, others, zero_dim in MIXED:
            values = samples.arguments(self.signature, first)
            beside = samples.arguments(self.signature, others)
            places = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
            for i in places[1:]:
                values[i] = beside[i].flatten()[0] if zero_dim else beside[i]
            if len({values[i].dtype for i in places}) > 1:
                label = f"{_name(first)} with {_name(others)}"
                yield self.case(values, first, label + (" 0d" if zero_dim else ""))

    def case(self, values: Sequence[Any], dtype: torch.dtype, label: str) -> Case:
        """The case of these values; the label and the numbers make its text."""
        text = ", ".join(
            f"{a.name}={v!r}"
            for a, v in zip(self.signature.arguments, values, strict=True)
            if not isinstance(v, Tensor) and v is not None
        )
        return Case(tuple(values), dtype, f"{label}({text})", self.leaves(values))

    def leaves(self, values: Sequence[Any]) -> tuple[int, ...]:
        """The arguments that torch has a derivative of, or all that could have one."""
        able = [
            i
            for i, v in enumerate(values)
            if isinstance(v, Tensor) and trials.differentiable(v)
        ]
        found: list[int] = []
        for i in able:
            with suppress(*REFUSALS):
                trials.first(self.reference, values, [i])
                found.append(i)
        return tuple(found or able)

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether torch's operator takes tensors of that dtype."""
        try:
            self.reference(samples.arguments(self.signature, dtype))
        except REFUSALS:
            return False
        return True


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
