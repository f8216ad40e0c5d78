"""Programs at run time: each has a name for good, and knows its derivatives.

Comes in: operators and the specs of their arguments. Goes out: `Routine`, a program
with all that running it needs more than once, and its `Derivation`s. The compiler
derives; here the results are kept, so that a repeated call only looks them up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from atentriton import lineages
from atentriton.derivations import Derivation, Mask, Saving
from atentriton.specs import TO_TORCH, dtype_of
from fuser import ir
from fuser.dtypes import DType, float32
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


class Routine:
    """A program, and what is known of it once and for all.

    Two routines are the same only if they are one object: `lineage` names it, and
    `of_lineage` finds it. `dtypes` are those of the outputs; `able` says which inputs
    can get a gradient, and `differentiable` which outputs can pass one on.
    """

    __slots__ = (
        "_jvps",
        "_refusals",
        "_savings",
        "_vjps",
        "able",
        "derivable",
        "differentiable",
        "dtypes",
        "input_dtypes",
        "lineage",
        "plans",
        "program",
        "single",
        "sites",
        "steps",
    )

    def __init__(
        self,
        program: Program,
        able: Mask | None = None,
        differentiable: Mask | None = None,
    ) -> None:
        self.program = program
        self.lineage = program.lineage
        self.dtypes = tuple(TO_TORCH[o.dtype] for o in program.outputs)
        self.input_dtypes = tuple(TO_TORCH[n.dtype] for n in program.inputs)
        if differentiable is None:
            differentiable = tuple(o.dtype.is_differentiable for o in program.outputs)
        self.differentiable = differentiable
        if able is None:
            able = tuple(n.dtype.is_differentiable for n in program.inputs)
        self.able = able
        self.derivable = any(differentiable) and any(able)
        self.single = len(program.outputs) == 1
        self.plans: dict[Any, Any] = {}
        self.sites: Any = None
        self.steps: Any = None
        self._vjps: dict[tuple[Mask, Mask], Derivation] = {}
        self._jvps: dict[Mask, Derivation] = {}
        self._savings: dict[Mask, Saving] = {}
        self._refusals: tuple[tuple[int, str], ...] | None = None

    @property
    def refusals(self) -> tuple[tuple[int, str], ...]:
        """The inputs, by number, without a gradient, and the message that says so."""
        if self._refusals is None:
            self._refusals = self.vjp(self.able, self.differentiable).missing
        return self._refusals

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.lineage}>"

    def vjp(self, wanted: Mask, defined: Mask) -> Derivation:
        """The gradients of the inputs marked in `wanted`, from the cotangents of the
        outputs marked in `defined`."""
        found = self._vjps.get((wanted, defined))
        if found is None:
            found = self._vjps[wanted, defined] = self._derive_vjp(wanted, defined)
        return found

    def saving(self, asked: Mask) -> Saving:
        """What a call keeps when gradients of these inputs are asked for."""
        found = self._savings.get(asked)
        if found is None:
            needed = tuple(a and able for a, able in zip(asked, self.able, strict=True))
            reads: tuple[Source, ...] = ()
            if any(needed):
                reads = self.vjp(needed, self.differentiable).reads
            found = self._savings[asked] = Saving(
                needed,
                reads,
                self.differentiable,
                self.input_dtypes,
                lambda defined: self.vjp(needed, defined),
            )
        return found

    def jvp(self, defined: Mask) -> Derivation:
        """The tangents of all outputs, from those of the inputs marked in `defined`.

        NotImplementedError where the file has no forward derivative.
        """
        found = self._jvps.get(defined)
        if found is None:
            derived = compiler().jvp(self.program, defined)
            step = lineages.Step("jvp", self._names(self.program.inputs, defined))
            found = self._jvps[defined] = self._derivation(derived, step)
        return found

    def _derive_vjp(self, wanted: Mask, defined: Mask) -> Derivation:
        missing: list[tuple[int, str]] = []
        try:
            derived = compiler().vjp(self.program, wanted, defined)
        except DerivativeNotImplemented:
            missing = list(self._missing(wanted, defined))
            refused = {i for i, _ in missing}
            wanted = tuple(w and i not in refused for i, w in enumerate(wanted))
            if not any(wanted):
                return Derivation(None, (), (), (), tuple(missing))
            derived = compiler().vjp(self.program, wanted, defined)
        outputs = [o.name for o in self.program.outputs]
        step = lineages.Step(
            "vjp",
            self._names(self.program.inputs, wanted),
            None if all(defined) else tuple(_chosen(outputs, defined)),
        )
        return replace(self._derivation(derived, step), missing=tuple(missing))

    def _missing(self, wanted: Mask, defined: Mask):
        """Which of the wanted inputs have no derivative, each asked for alone."""
        for i in _chosen(range(len(wanted)), wanted):
            try:
                alone = tuple(j == i for j in range(len(wanted)))
                compiler().vjp(self.program, alone, defined)
            except DerivativeNotImplemented as error:
                yield i, str(error)

    @staticmethod
    def _names(nodes: Sequence[Node], mask: Mask) -> tuple[str, ...]:
        return tuple(_chosen([str(n.attrs) for n in nodes], mask))

    def _derivation(self, derived: Derived, step: lineages.Step) -> Derivation:
        """The derivation with outputs left out that need no computing."""
        program = derived.program
        sources = dict(zip(program.inputs, derived.sources, strict=True))
        kept: list[Output] = []
        results: list[int | Source | None] = []
        for output in program.outputs:
            if ir.is_const(output.node) and ir.value_of(output.node) == 0:
                results.append(None)
            elif (same := bare(output)) is not None:
                results.append(sources[same])
            else:
                results.append(len(kept))
                kept.append(output)
        if not kept:
            return Derivation(None, (), (), tuple(results))
        roots = [o.node for o in kept]
        inputs = used(program.inputs, roots)
        scalars = used(program.scalars, roots)
        reduced = replace(
            program,
            inputs=inputs,
            scalars=scalars,
            outputs=tuple(kept),
            lineage=f"{self.lineage}{step}",
        )
        places = {n: i for i, n in enumerate(self.program.scalars)}
        return Derivation(
            _register(reduced),
            tuple(sources[n] for n in inputs),
            tuple(places[n] for n in scalars),
            tuple(results),
        )


def _chosen(items: Sequence[Any], mask: Mask) -> list[Any]:
    return [item for item, chosen in zip(items, mask, strict=True) if chosen]


def bare(output: Output) -> Node | None:
    """The input that the output is equal to, bit by bit, if it is one."""
    node = output.node
    if node.op == "cast" and node.dtype == output.dtype.opmath:
        node = node.args[0]
    return node if node.op == "input" and node.dtype == output.dtype else None


_routines: dict[str, Routine] = {}


def _register(
    program: Program, able: Mask | None = None, differentiable: Mask | None = None
) -> Routine:
    found = _routines.get(program.lineage)
    if found is None:
        made = Routine(program, able, differentiable)
        found = _routines.setdefault(program.lineage, made)
    return found


@cache
def compiler() -> Compiler:
    """The compiler of the formulas that come with the package."""
    return default_compiler()


def default_dtype() -> DType:
    """torch.get_default_dtype(), as the compiler calls it."""
    return dtype_of(torch.get_default_dtype())


def routine(operator: str, specs: Sequence[Spec], default: DType = float32) -> Routine:
    """The operator on arguments of those kinds, one spec an argument, in order.

    Its inputs are all tensor arguments and its numbers all arguments given at run time,
    used or not. KeyError for an unknown operator, FormulaError for one without a value
    or for arguments that it does not take.
    """
    signature = compiler().operator(operator).signature
    lineage = lineages.spell(signature, specs, default)
    found = _routines.get(lineage)
    if found is not None:
        return found
    program = compiler().program(operator, specs, default)
    whole = replace(program, lineage=lineage)
    return _register(whole, *_masks(operator, whole))


def _masks(operator: str, program: Program) -> tuple[Mask, Mask]:
    """Which inputs get a gradient and which outputs pass one on: by dtype, and by the
    operator's entry where it has one."""
    able = tuple(n.dtype.is_differentiable for n in program.inputs)
    passing = tuple(o.dtype.is_differentiable for o in program.outputs)
    entry = compiler().operator(operator).entry
    if entry is None:
        return able, passing
    named = entry.differentiable
    able = tuple(
        a and str(n.attrs) in named for a, n in zip(able, program.inputs, strict=True)
    )
    flags = entry.differentiable_outputs
    return able, tuple(p and f for p, f in zip(passing, flags, strict=True))


def of_lineage(lineage: str) -> Routine:
    """The routine of that name, derived anew where this process has not met it.

    ValueError where the text is no lineage, KeyError for an unknown operator.
    """
    found = _routines.get(lineage)
    if found is not None:
        return found
    base, steps = lineages.parse(lineage)
    if base.formula:
        named = {str(name): spec for name, spec in base.items}
        current = of_formula(base.operator, named, base.default)
    else:
        current = routine(base.operator, base.specs, base.default)
    for step in steps:
        current = _after(current, step)
    if current.lineage != lineage:
        _routines[lineage] = current
    return current


def _after(current: Routine, step: lineages.Step) -> Routine:
    """The routine that one step of a lineage leads to."""
    inputs = [str(n.attrs) for n in current.program.inputs]
    outputs = [o.name for o in current.program.outputs]
    chosen = _mask(inputs, step.inputs)
    if step.mode == "jvp":
        derivation = current.jvp(chosen)
    else:
        defined = outputs if step.outputs is None else step.outputs
        derivation = current.vjp(chosen, _mask(outputs, defined))
    if derivation.routine is None:
        raise ValueError(f"nothing is computed by {current.lineage}{step}")
    return derivation.routine


def _mask(names: Sequence[str], chosen: Sequence[str]) -> Mask:
    unknown = set(chosen) - set(names)
    if unknown:
        raise ValueError(f"no tensor is called {min(unknown)!r}, only {names}")
    return tuple(n in chosen for n in names)


def of_formula(
    text: str, specs: Mapping[str, Spec], default: DType = float32
) -> Routine:
    """The routine of a formula over names of those kinds.

    FormulaError where the text is no formula, or calls what is not pointwise.
    """
    lineage = lineages.spell_formula(text, specs, default)
    known = _routines.get(lineage)
    if known is not None:
        return known
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
    return _register(
        Program(
            "formula",
            tensors(arguments, kinds),
            scalars(arguments, kinds),
            tuple(outputs),
            (text,),
            lineage,
        )
    )


_TENSOR = Type("Tensor")


def adopt(program: Program) -> Routine:
    """The routine of a program that was put together elsewhere.

    Its lineage names it for this process only, unless it is one that `of_lineage`
    reads. Programs without a lineage are told apart by what they are.
    """
    if program.lineage:
        return _register(program)
    found = _adopted.get(program)
    if found is None:
        name = f"{program.name}#{len(_adopted)}"
        found = _register(replace(program, lineage=name))
        _adopted[program] = found
    return found


_adopted: dict[Program, Routine] = {}
