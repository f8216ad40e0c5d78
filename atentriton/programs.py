"""Programs at run time: each has a name for good, and knows its derivatives.

Comes in: operators and the specs of their arguments. Goes out: `Routine`, a program
with all that running it needs more than once, and its `Derivation`s. They are kept
here, so that a repeated call only looks them up, and on disk as records, so that the
next process gets them without compiling: the graph of a routine whose record is there
is made only if somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from atentriton import lineages, outlines
from atentriton.derivations import (
    Derivation,
    Facts,
    Mask,
    Saving,
    facts_from_json,
    facts_of,
)
from atentriton.layouts import Like, Shape, Strides, like_of, output_strides
from atentriton.outlines import Outline, outline_of
from atentriton.records import remembered, showing
from atentriton.specs import TO_TORCH, dtype_of
from fuser.dtypes import DType, float32
from fuser.fingerprint import fingerprint
from fuser.program import Program
from fuser.signatures import Signature, parse_signature
from fuser.specs import Spec

if TYPE_CHECKING:
    from atentriton.compiling import Reduced
    from fuser.pipeline import Compiler, Source


class Routine:
    """A program, and what is known of it once and for all.

    Two routines are the same only if they are one object: `lineage` names it, and
    `of_lineage` finds it. `dtypes` are those of the outputs; `able` says which inputs
    can get a gradient, and `differentiable` which outputs can pass one on. `like` says
    whose layout the outputs take, None where it is that of all inputs in order.
    `recorded` routines are those whose lineage means the same in every process.
    """

    __slots__ = (
        "_joints",
        "_jvps",
        "_program",
        "_refusals",
        "_restore",
        "_savings",
        "_vjps",
        "able",
        "derivable",
        "differentiable",
        "dtypes",
        "input_dtypes",
        "like",
        "lineage",
        "outline",
        "plans",
        "recorded",
        "single",
        "sites",
        "steps",
    )

    def __init__(
        self,
        program: Program | Outline,
        able: Mask | None = None,
        differentiable: Mask | None = None,
        lineage: str = "",
        restore: Callable[[], Program] | None = None,
        like: Like | None = None,
    ) -> None:
        """Of an outline, `lineage` is the name and `restore` makes the program; given
        with a program, they say that any process makes the same of that lineage."""
        whole = isinstance(program, Program)
        outline = outline_of(program) if whole else program
        self._program = program if whole else None
        self._restore = restore
        self.recorded = restore is not None and not showing()
        self.outline = outline
        self.lineage = program.lineage if whole else lineage
        self.dtypes = tuple(TO_TORCH[d] for _, d in outline.outputs)
        self.input_dtypes = tuple(TO_TORCH[d] for _, d in outline.inputs)
        if differentiable is None:
            differentiable = tuple(d.is_differentiable for _, d in outline.outputs)
        self.differentiable = differentiable
        if able is None:
            able = tuple(d.is_differentiable for _, d in outline.inputs)
        self.able = able
        self.derivable = any(differentiable) and any(able)
        self.like = like
        self.single = len(outline.outputs) == 1
        self.plans: dict[Any, Any] = {}
        self.sites: Any = None
        self.steps: Any = None
        self._vjps: dict[tuple[Mask, Mask], Derivation] = {}
        self._jvps: dict[Mask, Derivation] = {}
        self._joints: dict[Mask, Derivation] = {}
        self._savings: dict[Mask, Saving] = {}
        self._refusals: tuple[tuple[int, str], ...] | None = None

    @property
    def program(self) -> Program:
        """The program itself, compiled now if only its outline was needed so far."""
        if self._program is None:
            assert self._restore is not None
            self._program = self._restore()
        return self._program

    def strides(self, shape: Shape, tensors: Sequence[Tensor]) -> Strides:
        """The strides that PyTorch gives the outputs of these inputs, in that shape."""
        if self.like is not None:
            return self.like.strides(shape, tensors)
        return output_strides(shape, tensors)

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
            found = self._vjps[wanted, defined] = self._derive("vjp", wanted, defined)
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
            found = self._jvps[defined] = self._derive("jvp", defined)
        return found

    def joint(self, defined: Mask) -> Derivation:
        """All outputs, then their tangents, from those of the inputs marked in
        `defined`: the first results are the outputs.

        NotImplementedError where the file has no forward derivative.
        """
        found = self._joints.get(defined)
        if found is None:
            found = self._joints[defined] = self._derive("joint", defined)
        return found

    def _derive(self, mode: str, *masks: Mask) -> Derivation:
        """The derivation, from its record if there is one."""

        def make() -> Reduced:
            from atentriton import compiling

            return getattr(compiling, mode)(self.program, *masks)

        def restore() -> Program:
            program = make().program
            assert program is not None
            return program

        if self.recorded:
            marks = " ".join(map(_marks, masks))
            facts = remembered(
                f"{mode} {marks} {self.lineage}",
                Facts.as_json,
                facts_from_json,
                lambda: facts_of(make()),
            )
        else:
            facts = facts_of(make())
        routine = None
        if facts.program is not None:
            again = restore if self.recorded else None
            like = None
            if mode == "joint" and self.like is not None:
                inputs = [("input", i) for i in range(len(self.input_dtypes))]
                places = [facts.sources.index(source) for source in inputs]
                like = self.like.among(places, len(facts.sources))
            routine = _register(
                facts.program, lineage=facts.lineage, restore=again, like=like
            )
        return Derivation(
            routine, facts.sources, facts.numbers, facts.results, facts.missing
        )


def _marks(mask: Mask) -> str:
    return "".join("1" if marked else "0" for marked in mask)


_routines: dict[str, Routine] = {}


def _register(
    program: Program | Outline,
    able: Mask | None = None,
    differentiable: Mask | None = None,
    lineage: str = "",
    restore: Callable[[], Program] | None = None,
    like: Like | None = None,
) -> Routine:
    lineage = lineage or getattr(program, "lineage", "")
    found = _routines.get(lineage)
    if found is None:
        made = Routine(program, able, differentiable, lineage, restore, like)
        found = _routines.setdefault(lineage, made)
    return found


def compiler() -> Compiler:
    """The compiler of the formulas that come with the package."""
    from atentriton import compiling

    return compiling.compiler()


@cache
def signature_of(operator: str) -> Signature:
    """The operator's signature; KeyError where there is no such operator."""
    return remembered(
        f"signature {operator}",
        str,
        parse_signature,
        lambda: compiler().operator(operator).signature,
    )


def default_dtype() -> DType:
    """torch.get_default_dtype(), as the compiler calls it."""
    return dtype_of(torch.get_default_dtype())


def routine(operator: str, specs: Sequence[Spec], default: DType = float32) -> Routine:
    """The operator on arguments of those kinds, one spec an argument, in order.

    Its inputs are all tensor arguments and its numbers all arguments given at run time,
    used or not. KeyError for an unknown operator, FormulaError for one without a value
    or for arguments that it does not take.
    """
    lineage = lineages.spell(signature_of(operator), specs, default)
    found = _routines.get(lineage)
    if found is not None:
        return found

    def make() -> Base:
        from atentriton import compiling

        return compiling.of_operator(operator, specs, default, lineage)

    key = f"operator {lineage}"
    program, able, differentiable = remembered(key, _base_to_json, _base_of, make)
    restore = partial(_program_of, make)
    outline = outline_of(program) if isinstance(program, Program) else program
    like = like_of(operator, [name for name, _ in outline.inputs])
    return _register(program, able, differentiable, lineage, restore, like)


Base = tuple[Program | Outline, Mask | None, Mask | None]


def _program_of(make: Callable[[], Base]) -> Program:
    program, _, _ = make()
    assert isinstance(program, Program)
    return program


def _base_to_json(base: Base) -> Any:
    program, able, differentiable = base
    assert isinstance(program, Program)
    return [outline_of(program).as_json(), able, differentiable]


def _base_of(found: Any) -> Base:
    outline, able, differentiable = found
    return outlines.from_json(outline), _mask_of(able), _mask_of(differentiable)


def _mask_of(found: Any) -> Mask | None:
    return None if found is None else tuple(map(bool, found))


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
    inputs = [name for name, _ in current.outline.inputs]
    outputs = [name for name, _ in current.outline.outputs]
    chosen = _mask(inputs, step.inputs)
    if step.mode != "vjp":
        derivation = getattr(current, step.mode)(chosen)
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

    def make() -> Base:
        from atentriton import compiling

        return compiling.of_formula(text, specs, default, lineage), None, None

    program, _, _ = remembered(f"formula {lineage}", _base_to_json, _base_of, make)
    restore = partial(_program_of, make)
    return _register(program, lineage=lineage, restore=restore)


def adopt(program: Program, like: Like | None = None) -> Routine:
    """The routine of a program that was put together elsewhere.

    One without a lineage is named by what it is, in every process alike; but only
    where it has been put together does `of_lineage` know that name.
    """
    if program.lineage:
        return _register(program, like=like)
    found = _adopted.get((program, like))
    if found is None:
        mark = sha256(f"{fingerprint(program)} {like}".encode()).hexdigest()[:16]
        named = replace(program, lineage=f"{program.name}#{mark}")
        found = _register(named, restore=lambda: named, like=like)
        _adopted[program, like] = found
    return found


_adopted: dict[tuple[Program, Like | None], Routine] = {}
