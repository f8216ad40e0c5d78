"""Which operators there are, and what runs for each.

Comes in: the compiler's entries and functions, and the operators of the installed
torch. Goes out: the full names under each base name, and the verdict on each.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from atentriton.programs import compiler
from fuser.classify import Verdict, verdict


def aten(name: str) -> Any:
    """torch's own operator of that full name, or None."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        return None
    return getattr(packet, overload or "default", None)


@cache
def valued() -> frozenset[str]:
    """The operators that have a value of their own: a formula or a builder.

    What formulas call under a name that neither torch nor derivatives.yaml knows is a
    helper, and none of them.
    """
    known = compiler()
    return frozenset(
        name
        for name, function in known.functions.by_name.items()
        if function.promotes is not None
        and (name in known.entries or aten(name) is not None)
    )


@cache
def names() -> dict[str, tuple[str, ...]]:
    """Full names by base name: derivatives.yaml's first, then those of definitions."""
    found: dict[str, list[str]] = {}
    for name in (*compiler().entries, *compiler().functions.by_name):
        if name in compiler().entries or name in valued():
            overloads = found.setdefault(name.partition(".")[0], [])
            if name not in overloads:
                overloads.append(name)
    return {base: tuple(overloads) for base, overloads in found.items()}


@cache
def verdict_on(name: str) -> Verdict | None:
    """What can be done with the entry of that name; None where there is no entry."""
    entry = compiler().entries.get(name)
    if entry is None:
        return None
    return verdict(compiler(), entry, lambda n: aten(n) is not None)


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


def functional_name(name: str) -> str | None:
    """The name without the underscore that marks an in-place operator."""
    base, dot, overload = name.partition(".")
    if base.endswith("_") and not base.endswith("__"):
        return base[:-1] + dot + overload
    return None


def overloads_of(base: str) -> dict[str, str]:
    """Full names by overload; one without a name is called `default`.

    An in-place operator has those of its own in derivatives.yaml, and those of the
    functional operator that torch has in place.
    """
    found = list(names().get(base, ()))
    functional = functional_name(base)
    if functional is not None:
        for name in names().get(functional, ()):
            full = base + name[len(functional) :]
            if full not in found and name in valued() and aten(full) is not None:
                found.append(full)
    return {name.partition(".")[2] or "default": name for name in found}
