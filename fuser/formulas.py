"""What a file of formulas holds once it is read: the entries, frozen and checked.

In: nothing. Out: the records that entries.py builds, validate.py checks and every later
stage reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, cast, get_args

from fuser.errors import NOWHERE, Span
from fuser.signatures import Argument, Signature
from fuser.syntax import (
    Expr,
    NonDifferentiable,
    Special,
    free_names,
)

PromotionKind: TypeAlias = Literal[
    "default",
    "no_opmath",
    "int_to_float",
    "always_bool",
    "complex_to_float",
    "bool_to_long",
    "keep",
]
PROMOTION_KINDS: tuple[PromotionKind, ...] = cast(
    "tuple[PromotionKind, ...]", get_args(PromotionKind)
)


@dataclass(frozen=True, slots=True)
class Formula:
    """One `names: text` of an entry.

    `body` is the tree of the text or one of the four special values; `span` is where
    the text stands, `name_spans` the names of the key, in order.
    """

    names: tuple[str, ...]
    text: str
    body: Expr | Special
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    name_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)

    @property
    def expr(self) -> Expr | None:
        """The tree, or None for a special value."""
        return None if isinstance(self.body, Special) else self.body


@dataclass(frozen=True, slots=True)
class GradientFormula(Formula):
    """The gradients of the arguments `names`; for several names a tuple of them."""


@dataclass(frozen=True, slots=True)
class ForwardFormula(Formula):
    """The tangents of the results `names`; for several names a tuple of them."""


@dataclass(frozen=True, slots=True)
class FormulaSet:
    """The formulas under one dispatch key."""

    gradients: tuple[GradientFormula, ...] = ()
    forwards: tuple[ForwardFormula, ...] = ()

    @property
    def differentiable(self) -> tuple[str, ...]:
        """The arguments with a gradient formula, in the order of the keys."""
        return tuple(
            name
            for formula in self.gradients
            if not isinstance(formula.body, NonDifferentiable)
            for name in formula.names
        )


@dataclass(frozen=True, slots=True)
class Condition:
    """An `output_differentiability` decided at run time: `["!dtype || ..."]`."""

    text: str
    body: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Entry:
    """One entry of derivatives.yaml.

    `gradients` and `forwards` are those that hold without a dispatch key of their own;
    `dispatch` has all sets by key where the entry has that key, and is empty where not.
    `comment` is the block of comment lines directly above.
    """

    signature: Signature
    gradients: tuple[GradientFormula, ...] = ()
    forwards: tuple[ForwardFormula, ...] = ()
    output_differentiability: tuple[bool, ...] | Condition | None = None
    dispatch: dict[str, FormulaSet] = field(default_factory=dict[str, FormulaSet])
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    comment: str = field(default="", compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.signature.name

    @property
    def base(self) -> str:
        return self.signature.base

    @property
    def overload(self) -> str:
        return self.signature.overload

    @property
    def inplace(self) -> bool:
        return self.signature.inplace

    @property
    def view(self) -> bool:
        return self.signature.view

    @cached_property
    def differentiable(self) -> tuple[str, ...]:
        """The arguments with a gradient formula, in the order of the signature."""
        named = set(FormulaSet(self.gradients).differentiable)
        return tuple(a.name for a in self.signature.arguments if a.name in named)

    @cached_property
    def differentiable_outputs(self) -> tuple[bool, ...]:
        """Which returns carry a gradient, one flag each.

        What `output_differentiability` says (a short list goes on with False, and a
        condition counts as True); without it every Tensor return, but only the first
        where the formulas speak of `grad`.
        """
        returns = self.signature.returns
        given = self.output_differentiability
        flags = [r.is_tensor for r in returns]
        if isinstance(given, tuple):
            padded = (*given, *([False] * len(returns)))
            flags = [a and b for a, b in zip(flags, padded, strict=False)]
        if any(f.expr and "grad" in free_names(f.expr) for f in self.gradients):
            first = flags.index(True) if True in flags else -1
            flags = [position == first for position in range(len(flags))]
        return tuple(flags)

    def gradient(self, argument: str) -> GradientFormula | None:
        """The gradient formula whose key names `argument`."""
        return next((f for f in self.gradients if argument in f.names), None)

    def forward(self, result: str) -> ForwardFormula | None:
        """The forward formula whose key names `result`."""
        return next((f for f in self.forwards if result in f.names), None)


@dataclass(frozen=True, slots=True)
class EntryFile:
    """A file of derivatives; `by_name` goes from `add.Tensor` to its entry, in the
    order of the file."""

    path: str
    by_name: Mapping[str, Entry]

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self.by_name.values())


@dataclass(frozen=True, slots=True)
class Promotion:
    """How arguments come to one dtype; `over` None means all Tensor arguments.

    The result gets the dtype of the argument `into`, or that of the rule.
    """

    kind: PromotionKind
    over: tuple[str, ...] | None = None
    into: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionEntry:
    """A function that formulas may call, given as formulas of its own.

    `results` has the formula of each return by its name in `signature.result_names`.
    """

    signature: Signature
    promotes: Promotion | None
    results: dict[str, Formula]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    comment: str = field(default="", compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.signature.name

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.signature.arguments
