"""What one entry of PyTorch's file has wrong.

Comes in: an entry's name. Goes out: findings, a derivative that is wrong and the
plainest point where it is, with PyTorch's formula and a better one.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import mpmath
import torch
from mpmath import mpc
from torch import Tensor

from atentriton.cases import REFUSALS
from atentriton.commands._formulas import compiler_of, torch_file
from atentriton.specs import FROM_TORCH
from fuser.entries import Entry
from fuser.formulas import Formula, FunctionEntry
from fuser.interpret import interpret
from fuser.ir import Static
from fuser.pipeline import Compiler, default_compiler
from fuser.signatures import Argument
from fuser.specs import ScalarSpec, Spec, TensorSpec
from fuser.syntax import called_functions
from tools.audit_derivatives import ADDED, ours, theirs
from tools.audit_judging import Truth, computes, truth
from tools.audit_points import Call, calls

# Formulas of arguments without a derivative.
NONE = ("not_implemented", "non_differentiable")

# What stands for a tangent without a formula.
DERIVED = "the gradients, multiplied by the tangents"


@dataclass(frozen=True, slots=True)
class Finding:
    """A derivative that PyTorch has wrong, at one point.

    `inputs` has all arguments and `dtypes` those of tensors; complex numbers are lists.
    `argument` is whose gradient it is, or, in forward mode, whose tangent is 1.
    """

    entry: str
    argument: str
    mode: str
    kind: str
    inputs: dict[str, Any]
    dtypes: dict[str, str]
    torch: Any
    right: Any
    error: float
    wrong: int
    points: int
    text: bool
    formula: str
    better: str
    ours: bool


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an entry: points asked, by formula and dtype, findings, and where
    our own derivative is wrong although PyTorch's is not."""

    entry: str
    points: int
    findings: list[Finding]
    mistakes: list[str]


@dataclass(frozen=True, slots=True)
class Case:
    """A derivative that PyTorch has wrong, and whether ours is right there."""

    call: Call
    index: int
    place: int
    got: complex
    true: Truth
    ours: bool


def audit(name: str, thorough: bool = True) -> Result:
    """Ask one entry of PyTorch's file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    entry = _theirs().entries[name]
    seen: Counter[tuple[str, str]] = Counter()
    bad: dict[tuple[str, str, str], list[Case]] = {}
    mistakes: list[str] = []
    for call in calls(entry.signature, thorough):
        for mode, place in _formulas(entry, call):
            argument = entry.signature.arguments[place].name
            for i, got, own, true in _judged(entry, call, place, mode):
                seen[argument, mode] += 1
                kind = true.verdict(got)
                if kind is not None:
                    alone = theirs(entry.signature).derivative(call.at(i), place, mode)
                    got = alone.item()
                    kind = true.verdict(got)
                right = true.verdict(own) is None
                if kind is not None:
                    case = Case(call, i, place, got, true, right)
                    bad.setdefault((argument, mode, kind), []).append(case)
                elif not right:
                    mistakes.append(
                        f"{name} {argument} {mode} at {call.numbers(i)} in "
                        f"{call.values[place].dtype}: {own}, not "
                        f"{mpmath.nstr(true.right, 17)}"
                    )
    findings = [
        _finding(entry, argument, mode, kind, cases, seen[argument, mode])
        for (argument, mode, kind), cases in bad.items()
    ]
    return Result(name, sum(seen.values()), findings, mistakes)


@cache
def _theirs() -> Compiler:
    return compiler_of(torch_file())


def _formulas(entry: Entry, call: Call) -> Iterator[tuple[str, int]]:
    """The gradient by each variable, and the tangent where it has its own formula."""
    own = any(not f.text.startswith("auto_") for f in entry.forwards)
    names = [a.name for a in entry.signature.arguments]
    for place in call.places:
        formula = entry.gradient(names[place])
        if formula is None or formula.text.startswith(NONE):
            continue
        yield "backward", place
        if own:
            yield "forward", place


def _judged(
    entry: Entry, call: Call, place: int, mode: str
) -> Iterator[tuple[int, complex, complex, Truth]]:
    """Of the points that something can be said of: PyTorch's derivative and ours, and
    what is right."""
    operator = theirs(entry.signature)
    try:
        values = operator(call.values)[0].tolist()
        got = operator.derivative(call, place, mode).tolist()
    except REFUSALS:
        return
    mine = _mine(entry, call, place, mode, len(got))
    for i, both in enumerate(zip(got, mine, strict=True)):
        numbers = call.numbers(i)
        if computes(entry.name, numbers, call, values[i]):
            true = truth(entry.name, numbers, call, place, mode, both)
            if true is not None:
                yield i, *both, true


def _mine(entry: Entry, call: Call, place: int, mode: str, count: int) -> list[complex]:
    """Our derivatives; NaN where we have none."""
    try:
        return ours(entry.signature).derivative(call, place, mode).tolist()
    except Exception as error:
        print(f"{entry.name} {mode}: {type(error).__name__}: {error}", file=sys.stderr)
        return [math.nan] * count


def _finding(
    entry: Entry, argument: str, mode: str, kind: str, cases: list[Case], points: int
) -> Finding:
    """The plainest of the cases, explained."""
    case = min(cases, key=_plainness)
    names = [a.name for a in entry.signature.arguments]
    right = case.true.right
    draft = Finding(
        entry=entry.name,
        argument=argument,
        mode=mode,
        kind=kind,
        inputs=dict(zip(names, map(plain, case.call.numbers(case.index)), strict=True)),
        dtypes={
            n: str(v.dtype).removeprefix("torch.")
            for n, v in zip(names, case.call.values, strict=True)
            if isinstance(v, Tensor)
        },
        torch=plain(case.got),
        right=plain(complex(right) if isinstance(right, mpc) else float(right)),
        error=case.true.error(case.got),
        wrong=len(cases),
        points=points,
        text=False,
        formula=_text(entry, argument, mode),
        better="",
        ours=case.ours,
    )
    return _explained(draft, case.true)


def _plainness(case: Case) -> tuple[Any, ...]:
    """First where ours is right, then of ordinary size, in float64, and short."""
    call, true = case.call, case.true
    numbers = [call.values[i][case.index].item() for i in call.places]
    mild = true.verdict(case.got) == "wrong" and true.error(case.got) < 0.01
    return (
        not case.ours,
        mild,
        round(extent(numbers) / 3),
        sum(len(repr(x)) for x in numbers),
        call.values[case.place].dtype != torch.float64,
        [abs(x) for x in numbers],
    )


def extent(numbers: Iterable[Any]) -> float:
    """How far from 1 the magnitudes are, in decades, together."""
    parts = [p for x in numbers for p in (x.real, x.imag)]
    return sum(abs(math.log10(abs(p))) for p in parts if p)


def _explained(draft: Finding, true: Truth) -> Finding:
    """With what the text of the formula gives, and with a better one."""
    read = complex(by_text(_theirs(), draft))
    faulty = true.verdict(read) is not None
    better = ""
    if draft.ours:
        entry = default_compiler().entries[draft.entry]
        text = _text(entry, draft.argument, draft.mode)
        better = text if text != draft.formula else _of_helpers(entry, draft)
    return replace(draft, text=faulty, better=better)


def _text(entry: Entry, argument: str, mode: str) -> str:
    """The formula as it stands in its file, on one line."""
    formulas = _formulas_of(entry, argument, mode)
    return _line(formulas[0]) if formulas else DERIVED


def _formulas_of(entry: Entry, argument: str, mode: str) -> list[Formula]:
    if mode == "forward":
        return list(entry.forwards)
    return [f for f in entry.gradients if argument in f.names]


def _line(formula: Formula) -> str:
    return " ".join(formula.text.split())


def _of_helpers(entry: Entry, draft: Finding) -> str:
    """Our formulas for the functions that the formula calls; else their names."""
    called = [
        name
        for formula in _formulas_of(entry, draft.argument, draft.mode)
        if formula.expr is not None
        for name in dict.fromkeys(c.name for c in called_functions(formula.expr))
    ]
    functions = default_compiler().functions.by_name
    texts: list[str] = []
    for name in dict.fromkeys(called):
        body = functions[name].body if name in functions else None
        if isinstance(body, FunctionEntry):
            parts = [_line(f) for f in body.results.values()]
            texts.append(f"`{name}` as `{'`, `'.join(parts)}`")
    if not texts:
        known = [name for name in dict.fromkeys(called) if name in functions]
        texts = [f"`{name}` as it is computed here" for name in known]
    return f"the same, with {' and '.join(texts)}"


# -- formulas, computed ----------------------------------------------------------------


def by_text(compiler: Compiler, finding: Finding) -> Any:
    """The derivative as the compiler reads the formula, by the interpreter."""
    arguments = compiler.operator(finding.entry).signature.arguments
    values: dict[str, Any] = {}
    given = [_spec(a, finding, values) for a in arguments]
    program = compiler.program(finding.entry, given)
    value = interpret(compiler.expand(program).roots, values)
    wanted = [str(n.attrs) == finding.argument for n in program.inputs]
    if finding.mode == "forward":
        derived = compiler.jvp(program, wanted)
    else:
        count = len(program.outputs)
        every = finding.entry == ADDED
        derived = compiler.vjp(program, wanted, [every or i == 0 for i in range(count)])
    for leaf, (kind, place) in zip(
        derived.program.inputs, derived.sources, strict=True
    ):
        if kind == "output":
            values[str(leaf.attrs)] = value[place]
        elif kind != "input":
            values[str(leaf.attrs)] = 1.0
    found = interpret(compiler.expand(derived.program).roots, values)
    return sum(found) if finding.mode == "forward" else found[0]


def _spec(argument: Argument, finding: Finding, values: dict[str, Any]) -> Spec:
    name = argument.name
    value = number(finding.inputs[name])
    if argument.is_tensor and value is not None:
        values[name] = value
        return TensorSpec(FROM_TORCH[getattr(torch, finding.dtypes[name])])
    if argument.type.base == "Scalar" and value is not None:
        values[name] = value
        return ScalarSpec("float" if isinstance(value, float) else "int")
    return Static(value)


def number(value: Any) -> Any:
    """The number of the data file."""
    return complex(*value) if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """The number for the data file."""
    return [value.real, value.imag] if isinstance(value, complex) else value
