"""The compiler as a column of stages.

Comes in: an operator's name and the specs of its arguments. Goes out: Programs, and
from a Program its derivatives and the pieces that are ready to be scheduled. Nothing
here knows of PyTorch; a process usually has one `default_compiler()`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from fuser import dtypes, ir, specs
from fuser.build import convert
from fuser.complexes import split_complex
from fuser.derive import Deriver
from fuser.dtypes import DType
from fuser.dump import dump
from fuser.errors import FormulaError, nearest
from fuser.formulas import Entry, Formula, FunctionEntry
from fuser.functions import Function
from fuser.ir import CallTarget, Node
from fuser.library import Library, library
from fuser.lower import Lowering
from fuser.partition import partition
from fuser.powers import with_products
from fuser.program import Output, Program, used
from fuser.rows import present
from fuser.scopes import arguments_of
from fuser.signatures import Signature
from fuser.simplify import simplify
from fuser.specs import Spec
from fuser.syntax import unparse
from fuser.values import Number, Tensor, Tuple, Value
from fuser.verify import checked

Source = tuple[str, int]
_SOURCES = ("cotangent", "tangent", "input", "output")


@dataclass(frozen=True, slots=True)
class Derived:
    """A derivative of a program.

    `sources` says, for each input of `program`, what it is to the old one: the
    ("cotangent", i) of output i, the ("tangent", i) of input i, ("input", i) itself, or
    ("output", i) itself.
    """

    program: Program
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator that can be asked for: its signature, value and derivative entry."""

    name: str
    signature: Signature
    function: Function | None
    entry: Entry | None


class Compiler:
    """Formulas in, programs out."""

    def __init__(self, formulas: Library) -> None:
        self.entries = formulas.entries.by_name
        self.functions = formulas.functions
        self.opaque = formulas.opaque

    def operator(self, name: str) -> Operator:
        """The operator of that full name; KeyError with the nearest name."""
        entry = self.entries.get(name)
        function = self.functions.by_name.get(name)
        if entry is not None:
            return Operator(name, entry.signature, function, entry)
        if function is not None:
            return Operator(name, function.signature, function, None)
        guess = nearest(name, {*self.entries, *self.functions.by_name})
        hint = f'; did you mean "{guess}"?' if guess else ""
        raise KeyError(f'no operator is called "{name}"{hint}')

    # -- formula -> program --------------------------------------------------------

    def program(
        self, name: str, given: Sequence[Spec], default: DType = dtypes.float32
    ) -> Program:
        """The operator on arguments of those kinds, one spec an argument, in order.

        `default` is torch.get_default_dtype(). Raises FormulaError where the operator
        has no pointwise value or does not take such arguments.
        """
        operator = self.operator(name)
        if operator.function is None:
            raise FormulaError(f"{name} has no pointwise value")
        arguments = operator.signature.arguments
        if len(given) != len(arguments):
            raise FormulaError(
                f"{operator.signature} has {len(arguments)} arguments, not {len(given)}"
            )
        bound = {
            a.name: specs.value_of(a, spec)
            for a, spec in zip(arguments, given, strict=True)
        }
        lowering = Lowering(self.functions, self.opaque, default)
        value = lowering.call(operator.function, bound)
        items = value.items if isinstance(value, Tuple) else (value,)
        outputs = tuple(
            output_of(result, item, default)
            for result, item in zip(operator.signature.result_names, items, strict=True)
        )
        suffix = "" if default == dtypes.float32 else f" default {default}"
        program = Program(
            name,
            specs.tensors(arguments, given),
            specs.scalars(arguments, given),
            outputs,
            _value_lines(operator.function),
            f"{name}({', '.join(map(specs.text_of, given))}){suffix}",
        )
        return dump("ir", checked(program))

    # -- program -> derivative -----------------------------------------------------

    def vjp(
        self, program: Program, wanted: Sequence[bool], defined: Sequence[bool]
    ) -> Derived:
        """The reverse derivative: cotangents of the outputs -> gradients of inputs.

        `wanted` marks the inputs whose gradients are asked for (the outputs of the new
        program, in order), `defined` the outputs whose cotangents are there; the others
        are zero. DerivativeNotImplemented where the file says so.
        """
        names = _Names(program)
        sources = self._saved(program, names)
        saved = dict(
            zip(_stored(program), (_element(n) for n in sources), strict=False)
        )
        cotangents: list[Node | None] = []
        for i, (output, given) in enumerate(zip(program.outputs, defined, strict=True)):
            alone = program.order == 0 and len(program.outputs) == 1
            name = names.fresh("grad" if alone else f"grad_{output.name}")
            leaf = ir.input_(name, output.dtype)
            sources[leaf] = ("cotangent", i)
            cotangents.append(_element(leaf) if given else None)
        inputs = [n for n, w in zip(program.inputs, wanted, strict=True) if w]
        deriver = Deriver(self.entries, Lowering(self.functions, self.opaque), saved)
        grads = deriver.vjp(program.roots, cotangents, [_element(n) for n in inputs])
        outputs = [
            Output(f"grad_{n.attrs}", _or_zero(g, n.dtype), n.dtype)
            for n, g in zip(inputs, grads, strict=True)
        ]
        step = f".vjp({_mask(wanted)}, {_mask(defined)})"
        return self._derived(program, "backward", step, outputs, sources)

    def jvp(self, program: Program, defined: Sequence[bool]) -> Derived:
        """The forward derivative: tangents of inputs -> tangents of all outputs.

        `defined` marks the inputs that have a tangent; the others' are zero.
        """
        names = _Names(program)
        sources = self._saved(program, names)
        saved = dict(
            zip(_stored(program), (_element(n) for n in sources), strict=False)
        )
        outputs = self._tangents(program, defined, names, sources, saved)
        return self._derived(
            program, "jvp", f".jvp({_mask(defined)})", outputs, sources
        )

    def joint(self, program: Program, defined: Sequence[bool]) -> Derived:
        """The program's own outputs, then their tangents as `jvp` gives them, at once.

        Its inputs are all those of the program, then the tangents that are needed.
        """
        sources: dict[Node, Source] = {
            n: ("input", i) for i, n in enumerate(program.inputs)
        }
        names = _Names(program)
        names.taken |= {o.name for o in program.outputs}
        moved = self._tangents(program, defined, names, sources, {})
        moved = [replace(o, name=names.fresh(o.name)) for o in moved]
        outputs = (*program.outputs, *moved)
        roots = simplify([o.node for o in outputs])
        leaves = (*program.inputs, *used(tuple(sources)[len(program.inputs) :], roots))
        step = f".joint({_mask(defined)})"
        derived = Program(
            f"{program.name}_joint",
            leaves,
            used(program.scalars, roots),
            outputs,
            self._formula_lines(program, step),
            program.lineage + step,
            program.order + 1,
        ).with_roots(roots)
        return Derived(
            dump("derive", checked(derived)), tuple(sources[n] for n in leaves)
        )

    def _tangents(
        self,
        program: Program,
        defined: Sequence[bool],
        names: _Names,
        sources: dict[Node, Source],
        saved: Mapping[Node, Node],
    ) -> list[Output]:
        """The tangents of all outputs; those of the inputs are put among `sources`."""
        tangents: dict[Node, Node] = {}
        for i, (node, given) in enumerate(zip(program.inputs, defined, strict=True)):
            if given and node.dtype.is_differentiable:
                leaf = ir.input_(names.fresh(f"{node.attrs}_t"), node.dtype)
                sources[leaf] = ("tangent", i)
                tangents[_element(node)] = _element(leaf)
        deriver = Deriver(self.entries, Lowering(self.functions, self.opaque), saved)
        results = deriver.jvp(program.roots, tangents)
        return [
            Output(f"{o.name}_t", _or_zero(t, o.dtype), o.dtype)
            for o, t in zip(program.outputs, results, strict=True)
        ]

    def _saved(self, program: Program, names: _Names) -> dict[Node, Source]:
        """The inputs that stand for the outputs of the forward pass.

        Formulas that name their result get it, as in PyTorch. Only an operator's own
        outputs are saved so; what a derivative has computed is computed anew.
        """
        return {
            ir.input_(names.fresh(output.name), output.dtype): ("output", i)
            for i, output in enumerate(program.outputs)
            if output.node in _stored(program)
        }

    def _derived(
        self,
        program: Program,
        suffix: str,
        step: str,
        outputs: list[Output],
        sources: dict[Node, Source],
    ) -> Derived:
        for i, node in enumerate(program.inputs):
            sources[node] = ("input", i)
        roots = simplify([o.node for o in outputs])
        order = {n: (_SOURCES.index(kind), i) for n, (kind, i) in sources.items()}
        leaves = sorted(set(ir.leaves(roots, "input")), key=order.__getitem__)
        lines = self._formula_lines(program, step)
        derived = Program(
            f"{program.name}_{suffix}",
            tuple(leaves),
            used(program.scalars, roots),
            tuple(outputs),
            lines,
            program.lineage + step,
            program.order + 1,
        ).with_roots(roots)
        return Derived(
            dump("derive", checked(derived)), tuple(sources[n] for n in leaves)
        )

    def _formula_lines(self, program: Program, step: str) -> tuple[str, ...]:
        entry = self.entries.get(program.name)
        if entry is None:
            return program.formulas
        formulas = entry.gradients if step.startswith(".vjp") else entry.forwards
        return (str(entry.signature), *(_line(f) for f in formulas))

    # -- program -> pieces for the scheduler ---------------------------------------

    def kernels(
        self, program: Program, budget: int | None = None
    ) -> tuple[Program, ...]:
        """The pieces of the program that can be scheduled, in the order to run them."""
        program = simplified(self.expand(program))
        program = program.with_roots(with_products(program.roots))
        program = simplified(split_complex(program, self.functions))
        pieces = partition(program) if budget is None else partition(program, budget)
        return tuple(dump("schedule", checked(piece)) for piece in pieces)

    def expand(self, program: Program) -> Program:
        """The program without calls: each operator replaced by what it computes."""
        return program.with_roots(self._expanded(program.roots))

    def _expanded(self, roots: Sequence[Node]) -> tuple[Node, ...]:
        lowering = Lowering(self.functions, frozenset())

        def visit(node: Node, args: tuple[Node, ...]) -> Node:
            node = ir.rebuild_body(ir.rebuild(node, args), self._expanded)
            target = node.attrs
            if not isinstance(target, CallTarget):
                return node
            function = self.functions.by_name[target.name]
            bound = arguments_of(function.signature.arguments, node)
            value = lowering.call(function, bound)
            if isinstance(value, Tuple):
                value = value.items[target.output]
            return ir.cast(lowering.node(value), node.dtype)

        values = ir.fold(roots, visit)
        return tuple(values[r] for r in roots)


def simplified(program: Program) -> Program:
    """The program with its graph simplified."""
    return program.with_roots(simplify(program.roots))


def compiler(
    derivatives: Path | str | None = None,
    *more: Path | str,
    known: Collection[str] | None = None,
) -> Compiler:
    """A compiler of the packaged formulas, or of others (see `library`)."""
    return Compiler(library(derivatives, *more, known=known))


@cache
def default_compiler() -> Compiler:
    """The compiler of the formulas that come with the package."""
    return compiler()


class _Names:
    """Names for new inputs that no input or scalar of the program has."""

    def __init__(self, program: Program) -> None:
        self.taken = {str(n.attrs) for n in (*program.inputs, *program.scalars)}

    def fresh(self, name: str) -> str:
        candidate, count = name, 2
        while candidate in self.taken:
            candidate, count = f"{name}_{count}", count + 1
        self.taken.add(candidate)
        return candidate


def _stored(program: Program) -> list[Node]:
    """The outputs that an operator's formulas may name as results."""
    if program.order > 0:
        return []
    return [o.node for o in program.outputs if o.node.args and o.node.op != "cast"]


def _element(leaf: Node) -> Node:
    """The value of an input in the type that is computed in."""
    return ir.cast(leaf, leaf.dtype.opmath)


def output_of(name: str, value: Value, default: DType) -> Output:
    """A result of an operator, which may be a number; or, where it is absent, 0."""
    value = present(value, (), default)
    if isinstance(value, Number):
        dtype = dtypes.default_of(value.kind, default)
        return Output(name, convert(value.node, dtype.opmath), dtype)
    if not isinstance(value, Tensor):
        raise FormulaError(f"{name} is neither a tensor nor a number")
    return Output(name, value.node, value.dtype)


def _or_zero(node: Node | None, dtype: DType) -> Node:
    return ir.const(0, dtype.opmath) if node is None else node


def _mask(flags: Sequence[bool]) -> str:
    return "".join("1" if flag else "0" for flag in flags)


def _value_lines(function: Function) -> tuple[str, ...]:
    lines = [str(function.signature)]
    if isinstance(function.body, FunctionEntry):
        lines += [_line(f, name) for name, f in function.body.results.items()]
    return tuple(lines)


def _line(formula: Formula, name: str | None = None) -> str:
    text = unparse(formula.expr) if formula.expr is not None else formula.text
    return f"{name or ', '.join(formula.names)}: {text}"
