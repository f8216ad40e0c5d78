"""What must hold for an entry beyond its syntax.

In: a signature and the formulas read for it. Out: a Diagnostic for everything that the
names, the gradients and the special values get wrong. The rules are PyTorch's own, so
that its file passes without one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from fuser.errors import Diagnostic, Span, nearest
from fuser.formulas import FormulaSet, ForwardFormula, GradientFormula
from fuser.signatures import Signature
from fuser.syntax import (
    AutoElementWise,
    AutoLinear,
    Expr,
    Index,
    Literal,
    Name,
    NonDifferentiable,
    NotImplementedValue,
    bare,
    called_functions,
    names,
    walk,
)

Report: TypeAlias = Callable[[Diagnostic], None]

_LOGARITHMS = "M_E", "M_LOG2E", "M_LOG10E", "M_LN2", "M_LN10"
_CIRCLE = "M_PI", "M_PI_2", "M_PI_4", "M_1_PI", "M_2_PI", "M_2_SQRTPI"
_ROOTS = "M_SQRT2", "M_SQRT1_2"
CONSTANTS = frozenset([*_LOGARITHMS, *_CIRCLE, *_ROOTS, "INFINITY", "NAN"])
"""The constants of C's math.h that every formula may use."""

LANGUAGE = frozenset({"get", "tuple", "make_tuple", "vector", "optional", "is_enabled"})
"""Called names that belong to C++ or to autograd itself and need no function."""

SPECIAL = ("auto_element_wise", "auto_linear", "non_differentiable")
_SPELLED = {"True": "true", "False": "false", "None": "nullopt", "pi": "M_PI"}


def check_expression(
    expr: Expr,
    allowed: Collection[str],
    functions: Collection[str] | None,
    report: Report,
    explain: Callable[[Name], Diagnostic | None] = lambda name: None,
) -> None:
    """Report every name outside `allowed` and every call outside `functions`.

    `explain` may know better what is wrong with a name.
    """
    meant = {*allowed, *SPECIAL} if isinstance(expr, Name) else allowed
    for name in names(expr):
        if name.id in allowed or name.id in CONSTANTS:
            continue
        hint = _SPELLED.get(name.id) or nearest(name.id, meant)
        message = f'unknown name "{name.id}"'
        expected = f"one of {_listed(allowed)}" if allowed else None
        report(explain(name) or Diagnostic(name.span, message, expected, hint))
    if functions is None:
        return
    for called in called_functions(expr):
        if called.name in functions or called.name in LANGUAGE:
            continue
        kind = "method" if called.method else "function"
        hint = nearest(called.name, {*functions, "not_implemented"})
        message = f'unknown {kind} "{called.name}"'
        report(Diagnostic(called.span, message, None, hint))


def check_set(
    signature: Signature,
    formulas: FormulaSet,
    differentiable: Collection[str],
    flags: tuple[bool, ...],
    functions: Collection[str] | None,
    report: Report,
    complete: bool = True,
) -> None:
    """Check the formulas under one dispatch key of an entry.

    `differentiable` are the arguments that a gradient key names, `flags` says which
    returns are differentiable. Where the entry is not `complete`, because some of it
    did not parse, nothing is said about what is missing.
    """
    _check_gradients(signature, formulas.gradients, flags, functions, report)
    _check_style(signature, formulas.gradients, flags, report)
    _check_forwards(signature, formulas.forwards, differentiable, functions, report)
    _check_automatic(signature, formulas, differentiable, report, complete)


def _check_gradients(
    signature: Signature,
    gradients: Iterable[GradientFormula],
    flags: tuple[bool, ...],
    functions: Collection[str] | None,
    report: Report,
) -> None:
    allowed = {
        *signature.by_name,
        *signature.result_names,
        *_named_gradients(signature, flags),
        *("grad", "grads", "grad_input_mask", "retain_variables"),
    }
    if signature.base.startswith("_foreach_"):
        allowed.add("i")

    def explain(name: Name) -> Diagnostic | None:
        argument = name.id[:-2]
        if name.id[:5] == "grad_" and name.id[5:] in signature.result_names:
            message = f'"{name.id}": the return "{name.id[5:]}" is not differentiable'
            return Diagnostic(name.span, message)
        if name.id[-2:] not in ("_p", "_t") or argument not in signature.by_name:
            return None
        message = f'"{name.id}" has a meaning in forward formulas only'
        return Diagnostic(name.span, message, None, argument)

    for formula in gradients:
        if isinstance(formula.body, (AutoElementWise, AutoLinear)):
            message = f"`{formula.text.strip()}` is for forward formulas"
            expected = "a gradient formula, or non_differentiable"
            report(Diagnostic(formula.span, message, expected))
        if formula.expr is not None:
            check_expression(formula.expr, allowed, functions, report, explain)


def _check_forwards(
    signature: Signature,
    forwards: Iterable[ForwardFormula],
    differentiable: Collection[str],
    functions: Collection[str] | None,
    report: Report,
) -> None:
    foreach = signature.base.startswith("_foreach_")
    primal = {f"{name}_p" for name in differentiable}
    tangent = {f"{name}_t" for name in differentiable}
    ambiguous = {
        name
        for name in differentiable
        if foreach or not signature.by_name[name].is_list
    }
    allowed = {*signature.by_name, *signature.result_names, *primal, *tangent}
    allowed -= ambiguous
    if foreach:
        allowed.add("i")
    if signature.inplace:
        first = signature.arguments[0].name
        allowed |= {f"original_{first}_p", f"original_{first}_t"}

    def explain(name: Name) -> Diagnostic | None:
        id = name.id
        if id in ambiguous:
            message = f'bare "{id}" in a forward formula'
            expected = f"`{id}_p` for its value or `{id}_t` for its tangent"
            return Diagnostic(name.span, message, expected)
        if id in ("grad", "grads"):
            message = f"`{id}` has no meaning in a forward formula"
            expected = f"a tangent: {_listed(tangent)}" if tangent else None
            return Diagnostic(name.span, message, expected)
        if id[-2:] in ("_p", "_t") and id[:-2] in signature.by_name:
            message = f'"{id}", but "{id[:-2]}" has no gradient formula'
            if id[-2:] == "_p":
                return Diagnostic(name.span, message, None, id[:-2])
            return Diagnostic(name.span, message, f"a gradient formula for {id[:-2]}")
        return None

    for formula in forwards:
        if isinstance(formula.body, NonDifferentiable):
            message = "`non_differentiable` is for arguments"
            expected = "`output_differentiability` for a result"
            report(Diagnostic(formula.span, message, expected))
        if formula.expr is not None:
            check_expression(formula.expr, allowed, functions, report, explain)


def _named_gradients(signature: Signature, flags: tuple[bool, ...]) -> list[str]:
    """The `grad_NAME` that the entry's formulas may use."""
    return [
        f"grad_{returned.name}"
        for returned, flag in zip(signature.returns, flags, strict=False)
        if flag and returned.name is not None and returned.is_tensor
    ]


def _check_style(
    signature: Signature,
    gradients: Iterable[GradientFormula],
    flags: tuple[bool, ...],
    report: Report,
) -> None:
    """One way to speak of output gradients in an entry; `grads[i]` within bounds."""
    named = set(_named_gradients(signature, flags)) - set(signature.by_name)
    first: dict[str, Span] = {}
    indexed: list[int] = []
    plain = 0
    for formula in gradients:
        if formula.expr is None:
            continue
        for name in names(formula.expr):
            style = "grad_NAME" if name.id in named else name.id
            if style in ("grad", "grads", "grad_NAME"):
                first.setdefault(style, name.span)
            plain += name.id == "grads"
        for node in walk(formula.expr):
            if isinstance(node, Index) and bare(node.base) == Name("grads"):
                plain -= 1
                index = bare(node.index)
                if isinstance(index, Literal) and isinstance(index.value, int):
                    indexed.append(index.value)
                    _check_bounds(signature, index.value, node.span, report)
                else:
                    plain += 1
    if len(first) > 1:
        (kept, _), (style, span) = list(first.items())[:2]
        expected = "one of the two throughout"
        if "grad" in first and "grads" in first:
            expected = "`grads[0]` in place of `grad`"
        report(Diagnostic(span, f"mixes `{kept}` and `{style}`", expected))
    elif plain == 0 and set(indexed) == {0}:
        message = "only `grads[0]` is used: the first output alone has a gradient"
        report(Diagnostic(first["grads"], message, None, "grad"))


def _check_bounds(signature: Signature, index: int, span: Span, report: Report) -> None:
    count = len(signature.returns)
    if index >= count:
        returns = "1 return" if count == 1 else f"{count} returns"
        message = f"grads[{index}] is out of bounds: the operator has {returns}"
        report(Diagnostic(span, message, f"an index below {count}"))


def _check_automatic(
    signature: Signature,
    formulas: FormulaSet,
    differentiable: Collection[str],
    report: Report,
    complete: bool,
) -> None:
    """Where `auto_element_wise` and `auto_linear` can stand."""
    for formula in formulas.forwards:
        if not isinstance(formula.body, (AutoElementWise, AutoLinear)):
            continue
        text = formula.text.strip()
        if len(formulas.forwards) > 1 or len(formula.names) > 1:
            message = f"`{text}` with several differentiable outputs"
            report(Diagnostic(formula.span, message, "exactly one"))
        if complete and not differentiable:
            message = f"`{text}` without a gradient formula"
            report(Diagnostic(formula.span, message, "a gradient formula to go by"))
        if isinstance(formula.body, AutoLinear):
            continue
        if signature.inplace:
            message = f"`{text}` in an in-place entry"
            report(Diagnostic(formula.span, message, "a formula for the tangent"))
        if len(differentiable) > 1:
            inputs = ", ".join(differentiable)
            message = f"`{text}` with {len(differentiable)} differentiable inputs"
            report(Diagnostic(formula.span, message, f"exactly one, not {inputs}"))
        for gradient in formulas.gradients:
            if isinstance(gradient.body, NotImplementedValue):
                message = f"`{text}`, but the gradient is not_implemented"
                report(Diagnostic(formula.span, message, "a gradient formula"))


def is_result(signature: Signature, name: str) -> bool:
    """Whether a key `name` speaks of a return: its name, or `resultN` by position."""
    if name in signature.result_names:
        return True
    numbered = re.fullmatch(r"result(\d+)", name)
    return numbered is not None and int(numbered[1]) < len(signature.returns)


def _listed(allowed: Iterable[str]) -> str:
    shown = sorted(allowed)
    return ", ".join(shown[:12]) + (", ..." if len(shown) > 12 else "")
