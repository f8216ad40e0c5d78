"""Which operators there are, and what runs for each.

Comes in: the compiler's entries and functions, and the operators of the installed
torch. Goes out: the full names under each base name, the verdict on each, and a `Card`
for each overload, which says all that calling it takes; cards have records.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch

from atentriton.programs import compiler, signature_of
from atentriton.records import remembered

if TYPE_CHECKING:
    from fuser.classify import Verdict


@dataclass(frozen=True, slots=True)
class Card:
    """An operator, and what runs for it.

    `kind` is "fused", "in_place", "matrix", "composite", "torch" or "not_yet";
    `reason` says why it is one of the last two. `functional` is the operator that an
    in-place one computes, and `lines` are the formulas.
    """

    name: str
    kind: str
    functional: str
    reason: str
    lines: tuple[str, ...]


def aten(name: str) -> Any:
    """torch's own operator of that full name, or None.

    One that torch has retired is a function made of what has replaced it.
    """
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    found = getattr(packet, overload or "default", None)
    if found is None:
        from atentriton.helpers import retired  # few programs need it

        found = retired.VALUES.get(name)
    return found


def in_torch(name: str) -> bool:
    """Whether the installed PyTorch has the operator."""
    return aten(name) is not None


class _Torch:
    """What PyTorch and the helpers over tensors have, for the verdicts."""

    def has(self, operator: str) -> bool:
        return in_torch(operator)

    def runs(self, function: str) -> bool:
        from atentriton.helpers import FUNCTIONS
        from atentriton.questions import QUESTIONS, plain

        function = plain(function)
        ours = function in FUNCTIONS or function in QUESTIONS
        words = function in ("tuple", "get")
        return ours or words or hasattr(torch.ops.aten, function.removesuffix("_"))


RUNTIME = _Torch()


def is_valued(name: str) -> bool:
    """Whether the operator has a value of its own: a formula or a builder.

    What formulas call under a name that neither torch nor derivatives.yaml knows is a
    helper, and no operator.
    """
    known = compiler()
    if name not in known.entries and not in_torch(name):
        return False
    function = known.functions.by_name.get(name)
    return function is not None and function.promotes is not None


@cache
def valued() -> frozenset[str]:
    """The operators that have a value of their own."""
    return frozenset(filter(is_valued, compiler().functions.by_name))


@cache
def names() -> dict[str, tuple[str, ...]]:
    """Full names by base name: derivatives.yaml's first, then those of definitions."""
    return remembered("names", dict, _names_of, _names)


def _names_of(found: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {base: tuple(map(str, overloads)) for base, overloads in found.items()}


def _names() -> dict[str, tuple[str, ...]]:
    found = {b: tuple(filter(_is_operator, all_)) for b, all_ in _by_base().items()}
    return {base: overloads for base, overloads in found.items() if overloads}


@cache
def _by_base() -> dict[str, list[str]]:
    """All names of entries and functions, helpers included, by base name."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys((*compiler().entries, *compiler().functions.by_name)):
        found.setdefault(name.partition(".")[0], []).append(name)
    return found


def _is_operator(name: str) -> bool:
    return name in compiler().entries or is_valued(name)


@cache
def verdict_on(name: str) -> Verdict | None:
    """What can be done with the entry of that name; None where there is no entry."""
    entry = compiler().entries.get(name)
    if entry is None:
        return None
    from fuser.classify import verdict

    return verdict(compiler(), entry, RUNTIME)


def formulas(name: str) -> list[str]:
    """The operator's value and derivatives, a line each, as the files have them."""
    known = compiler()
    operator = known.operator(name)
    lines: list[str] = []
    body = getattr(operator.function, "body", None)
    for result, formula in getattr(body, "results", {}).items():
        lines.append(f"{result} = {formula.text}")
    entry = operator.entry
    if entry is not None:
        for formula in (*entry.gradients, *entry.forwards):
            lines.append(f"{', '.join(formula.names)}: {formula.text}")
    return lines


# In-place operators whose overload is called otherwise than the functional one.
_RENAMED = {
    "floor_divide_.Tensor": "floor_divide",
    "ldexp_": "ldexp.Tensor",
    "pow_.Scalar": "pow.Tensor_Scalar",
    "pow_.Tensor": "pow.Tensor_Tensor",
}


def functional_name(name: str) -> str | None:
    """The functional operator that an in-place one computes; None for another."""
    if name in _RENAMED:
        return _RENAMED[name]
    base, dot, overload = name.partition(".")
    if base.endswith("_") and not base.endswith("__"):
        return base[:-1] + dot + overload
    return None


# What runs by the class of an entry without a value of its own: torch's operator,
# unless it is listed. Where the file gives no derivative, torch may have one: the
# formulas are what makes asking for it an error.
_RUN_AS = {
    "matrix": "matrix",
    "composite": "composite",
    "not_implemented": "composite",
    "not_yet": "not_yet",
}


@cache
def cards_of(base: str) -> tuple[Card, ...]:
    """A card for each overload, in order; none where there is no such operator."""
    return remembered(
        f"cards {base}",
        lambda cards: [asdict(card) for card in cards],
        lambda found: tuple(map(_card_of, found)),
        lambda: tuple(map(_made, _overloads(base))),
    )


@cache
def card_of(name: str) -> Card:
    """The card of the operator of that full name; KeyError where there is none."""
    for card in cards_of(name.partition(".")[0]):
        if card.name == name:
            return card
    return _made(name)


def _card_of(found: dict[str, Any]) -> Card:
    fields: dict[str, Any] = {**found, "lines": tuple(map(str, found["lines"]))}
    return Card(**fields)


def _overloads(base: str) -> list[str]:
    """The full names of the overloads.

    An in-place operator has those of its own in derivatives.yaml, and those of the
    functional operator that torch has in place.
    """
    found = list(filter(_is_operator, _by_base().get(base, ())))
    if base.endswith("_") and not base.endswith("__"):
        packet = getattr(torch.ops.aten, base, None)
        for overload in packet.overloads() if packet is not None else ():
            full = base if overload == "default" else f"{base}.{overload}"
            functional = functional_name(full)
            if full not in found and functional and is_valued(functional):
                found.append(full)
    return found


def _made(name: str) -> Card:
    functional = functional_name(name)
    if functional is not None and is_valued(functional):
        computed = name if name in compiler().entries else functional
        lines = tuple(formulas(computed))
        return Card(name, "in_place", computed, "", lines)
    card = partial(Card, name, functional=name, lines=tuple(formulas(name)))
    if is_valued(name) and not signature_of(name).view:
        return card(kind="fused", reason="")
    verdict = verdict_on(name)
    if verdict is None:  # a view that has no derivative of its own
        return card(kind="torch", reason="torch's own view shares the memory")
    return card(kind=_RUN_AS.get(verdict.kind, "torch"), reason=verdict.reason)


def overloads_of(base: str) -> dict[str, str]:
    """Full names by overload; one without a name is called `default`."""
    names = [card.name for card in cards_of(base)]
    return {name.partition(".")[2] or "default": name for name in names}
