"""What the compiler is asked for while a program runs; imported only when it is asked.

Comes in: operators, formulas and programs. Goes out: programs under their lineages, and
`Reduced` derivatives, from which is left out what needs no computing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from atentriton import lineages
from fuser import ir
from fuser.dtypes import DType
from fuser.errors import DerivativeNotImplemented, FormulaError
from fuser.grammar import parse_formula
from fuser.ir import Node
from fuser.lower import Lowering
from fuser.pipeline import Compiler, Derived, Source, default_compiler
from fuser.program import Output, Program, used
from fuser.signatures import Argument, Type
from fuser.simplify import simplify
from fuser.specs import Spec, scalars, tensors, value_of
from fuser.values import Tensor, Tuple

Mask = tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Reduced:
    """A derivative: `program` has what has to be computed, or is None; the rest is as
    in a `Derivation`."""

    program: Program | None
    sources: tuple[Source, ...]
    numbers: tuple[int, ...]
    results: tuple[int | Source | None, ...]
    missing: tuple[tuple[int, str], ...] = ()


@cache
def compiler() -> Compiler:
    """The compiler of the formulas that come with the package."""
    return default_compiler()


def of_operator(
    operator: str, specs: Sequence[Spec], default: DType, lineage: str
) -> tuple[Program, Mask, Mask]:
    """The operator's program; which inputs get a gradient and which outputs pass one
    on: by dtype, and by the operator's entry where it has one."""
    program = compiler().program(operator, specs, default)
    program = replace(program, lineage=lineage)
    able = tuple(n.dtype.is_differentiable for n in program.inputs)
    passing = tuple(o.dtype.is_differentiable for o in program.outputs)
    entry = compiler().operator(operator).entry
    if entry is None:
        return program, able, passing
    named = entry.differentiable
    able = tuple(
        a and str(n.attrs) in named for a, n in zip(able, program.inputs, strict=True)
    )
    flags = entry.differentiable_outputs
    passing = tuple(p and f for p, f in zip(passing, flags, strict=True))
    return program, able, passing


def of_formula(
    text: str, specs: Mapping[str, Spec], default: DType, lineage: str
) -> Program:
    """The program of a formula; FormulaError where it is none, or not pointwise."""
    arguments = [Argument(name, _TENSOR) for name in specs]
    kinds = list(specs.values())
    names = dict(zip(specs, map(value_of, arguments, kinds), strict=True))
    lowering = Lowering(compiler().functions, compiler().opaque, default)
    value = lowering.value(parse_formula(text), names)
    items = value.items if isinstance(value, Tuple) else (value,)
    found = [item for item in items if isinstance(item, Tensor)]
    if len(found) != len(items):
        raise FormulaError(f"the formula {text} does not give a tensor")
    roots = simplify([item.node for item in found])
    single = len(found) == 1
    outputs = [
        Output("result" if single else f"result{i}", root, item.dtype)
        for i, (root, item) in enumerate(zip(roots, found, strict=True))
    ]
    return Program(
        "formula",
        tensors(arguments, kinds),
        scalars(arguments, kinds),
        tuple(outputs),
        (text,),
        lineage,
    )


_TENSOR = Type("Tensor")


def vjp(program: Program, wanted: Mask, defined: Mask) -> Reduced:
    """The gradients of the inputs marked in `wanted`, as far as there are any."""
    missing: list[tuple[int, str]] = []
    try:
        derived = compiler().vjp(program, wanted, defined)
    except DerivativeNotImplemented:
        missing = list(_missing(program, wanted, defined))
        refused = {i for i, _ in missing}
        wanted = tuple(w and i not in refused for i, w in enumerate(wanted))
        if not any(wanted):
            return Reduced(None, (), (), (), tuple(missing))
        derived = compiler().vjp(program, wanted, defined)
    outputs = [o.name for o in program.outputs]
    step = lineages.Step(
        "vjp",
        _names(program.inputs, wanted),
        None if all(defined) else tuple(_chosen(outputs, defined)),
    )
    return replace(_reduced(program, derived, step), missing=tuple(missing))


def jvp(program: Program, defined: Mask) -> Reduced:
    """The tangents of all outputs; NotImplementedError where the file has none."""
    derived = compiler().jvp(program, defined)
    step = lineages.Step("jvp", _names(program.inputs, defined))
    return _reduced(program, derived, step)


def joint(program: Program, defined: Mask) -> Reduced:
    """The program's outputs, all of them computed, then their tangents.

    It takes all inputs of the program, in order: its results have the same memory.
    """
    derived = compiler().joint(program, defined)
    step = lineages.Step("joint", _names(program.inputs, defined))
    return _reduced(program, derived, step, len(program.outputs))


def _missing(
    program: Program, wanted: Mask, defined: Mask
) -> Iterator[tuple[int, str]]:
    """Which of the wanted inputs have no derivative, each asked for alone."""
    for i in _chosen(range(len(wanted)), wanted):
        try:
            alone = tuple(j == i for j in range(len(wanted)))
            compiler().vjp(program, alone, defined)
        except DerivativeNotImplemented as error:
            yield i, str(error)


def _reduced(
    program: Program, derived: Derived, step: lineages.Step, own: int = 0
) -> Reduced:
    """The derivative with outputs left out that need no computing.

    The first `own` outputs are the program's: they are kept, and so are all its inputs.
    """
    sources = dict(zip(derived.program.inputs, derived.sources, strict=True))
    kept: list[Output] = list(derived.program.outputs[:own])
    results: list[int | Source | None] = list(range(own))
    for output in derived.program.outputs[own:]:
        if ir.is_const(output.node) and ir.value_of(output.node) == 0:
            results.append(None)
        elif (same := bare(output)) is not None:
            results.append(sources[same])
        else:
            results.append(len(kept))
            kept.append(output)
    if not kept:
        return Reduced(None, (), (), tuple(results))
    roots = [o.node for o in kept]
    inputs = used(derived.program.inputs, roots)
    if own:
        moved = [n for n in inputs if n not in program.inputs]
        inputs = (*program.inputs, *moved)
    numbers = used(derived.program.scalars, roots)
    reduced = replace(
        derived.program,
        inputs=inputs,
        scalars=numbers,
        outputs=tuple(kept),
        lineage=f"{program.lineage}{step}",
    )
    places = {n: i for i, n in enumerate(program.scalars)}
    return Reduced(
        reduced,
        tuple(sources[n] for n in inputs),
        tuple(places[n] for n in numbers),
        tuple(results),
    )


def bare(output: Output) -> Node | None:
    """The input that the output is equal to, bit by bit, if it is one."""
    node = output.node
    if node.op == "cast" and node.dtype == output.dtype.opmath:
        node = node.args[0]
    return node if node.op == "input" and node.dtype == output.dtype else None


def _names(nodes: Sequence[Node], mask: Mask) -> tuple[str, ...]:
    return tuple(_chosen([str(n.attrs) for n in nodes], mask))


def _chosen(items: Sequence[Any], mask: Mask) -> list[Any]:
    return [item for item, chosen in zip(items, mask, strict=True) if chosen]
