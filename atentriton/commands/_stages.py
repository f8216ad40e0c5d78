"""The stages of one operator as text: formula, graph, derivatives, source, assembly.

Comes in: a compiler, an operator's name, a dtype and values of arguments. Goes out:
`Stages`, whose methods give each stage of the value and of its derivatives.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from atentriton.commands import UsageError
from atentriton.commands._formulas import entry_text, place
from fuser import dtypes, targets
from fuser.classify import specs_of
from fuser.dtypes import DType
from fuser.dump import text
from fuser.errors import DerivativeNotImplemented, FormulaError, nearest
from fuser.formulas import FunctionEntry
from fuser.ir import Static
from fuser.kernel import Access, Kernel, Layout
from fuser.optable import Primitive
from fuser.pipeline import Compiler, Operator
from fuser.program import Program
from fuser.render import render
from fuser.schedule import schedule
from fuser.signatures import Argument, Signature
from fuser.specs import Spec, TensorSpec
from fuser.syntax import called_functions

# What there is of an operator, in the order in which it is derived.
PROGRAMS = ("value", "backward", "second", "jvp")


@dataclass(frozen=True, slots=True)
class Stages:
    """An operator for arguments of one kind.

    `missing` says why a program is not there.
    """

    compiler: Compiler
    operator: Operator
    programs: dict[str, Program]
    missing: dict[str, str] = field(default_factory=dict)

    def formula(self) -> str:
        """The entry as it stands in its file, and then how the value is computed."""
        entry, function = self.operator.entry, self.operator.function
        parts: list[str] = []
        if entry is not None:
            parts.append(f"# {place(entry.span)}\n{entry_text(entry)}")
        if function is not None:
            parts.append(value_text(function.body, function.signature))
        parts += [f"# {place(h.span)}\n{entry_text(h)}" for h in self.helpers()]
        return "\n\n".join(parts)

    def helpers(self) -> list[FunctionEntry]:
        """The helpers that the formulas call, and those that these call."""
        functions = self.compiler.functions
        found: dict[str, FunctionEntry] = {}
        entry, function = self.operator.entry, self.operator.function
        queue = (
            [] if entry is None else [f.expr for f in entry.gradients + entry.forwards]
        )
        if function is not None and isinstance(function.body, FunctionEntry):
            queue += [f.expr for f in function.body.results.values()]
        while queue:
            expression = queue.pop()
            for called in called_functions(expression) if expression else ():
                for known in functions.overloads(called.name):
                    body = known.body
                    if isinstance(body, FunctionEntry) and body.promotes is None:
                        if body.name not in found:
                            queue += [f.expr for f in body.results.values()]
                        found[body.name] = body
        return list(found.values())

    def graph(self, which: str) -> str:
        """The program as the lines of its graph."""
        return text(self.programs[which])

    def pieces(self, which: str) -> str:
        """The program as the scheduler gets it: one graph a kernel."""
        pieces = self.compiler.kernels(self.programs[which])
        return "\n\n".join(text(piece) for piece in pieces)

    def kernels(self, which: str) -> list[Kernel]:
        """The kernels of the program, for dense tensors of one layout."""
        pieces = self.compiler.kernels(self.programs[which])
        return [schedule(piece, dense(piece)) for piece in pieces]

    def body(self, which: str, target: str) -> list[str]:
        """What the kernels do for an element: the lines inside the loop."""
        language = targets.target("native" if target == "native" else "triton")
        lines: list[str] = []
        for kernel in self.kernels(which):
            lines += language.statements((*kernel.prologue, *kernel.body))
            lines += [line for s in kernel.stores for line in language.store(s)]
        return lines

    def source(self, which: str, target: str) -> str:
        """The source of the kernels: C for `native`, else Triton's Python."""
        language = targets.target("native" if target == "native" else "triton")
        return "\n\n".join(render(k, language).strip() for k in self.kernels(which))

    def assembly(self, which: str, target: str) -> str:
        """What Triton compiles the kernels to for a GPU that need not be there."""
        from atentriton.tritonkernels import compile_only

        found = [compile_only(k, target).text.strip() for k in self.kernels(which)]
        return "\n\n".join(found)


def stages(
    made: Compiler, name: str, dtype: DType, given: dict[str, object] | None = None
) -> Stages:
    """The operator for tensors of that dtype; `given` are arguments by name.

    UsageError where it does not take such arguments.
    """
    operator = made.operator(name)
    try:
        specs = specs_for(operator.signature, dtype, given or {})
        value = made.program(name, specs)
    except FormulaError as error:
        return Stages(made, operator, {}, {"value": error.diagnostic.message})
    programs = {"value": value}
    missing: dict[str, str] = {}
    for which, derive in (("backward", _backward), ("second", _second), ("jvp", _jvp)):
        try:
            programs[which] = derive(made, operator, programs)
        except (FormulaError, DerivativeNotImplemented, _Nothing) as error:
            missing[which] = str(error)
    return Stages(made, operator, programs, missing)


def specs_for(
    signature: Signature, dtype: DType, given: dict[str, object]
) -> list[Spec]:
    """The specs of tensors of that dtype, floats for numbers; for what is given, those
    that a call with it has."""
    names = [a.name for a in signature.arguments]
    for name in given:
        if name not in names:
            guess = nearest(name, names)
            hint = (
                f'did you mean "{guess}"?' if guess else f"it takes {', '.join(names)}"
            )
            raise UsageError(f'{signature.name} has no argument "{name}"; {hint}')
    specs = specs_of(signature.arguments)
    return [
        _spec(a, given[a.name]) if a.name in given else _with(spec, dtype)
        for a, spec in zip(signature.arguments, specs, strict=True)
    ]


def _with(spec: Spec, dtype: DType) -> Spec:
    if isinstance(spec, TensorSpec) and spec.dtype == dtypes.float32:
        return replace(spec, dtype=dtype)
    return spec


def _spec(argument: Argument, value: object) -> Spec:
    """The spec of a call with that value; for a tensor, its dtype's name is given."""
    from atentriton import binding, specs  # which import torch

    if isinstance(value, str) and argument.is_tensor:
        return TensorSpec(_dtype(value))
    if isinstance(value, str) and argument.type.base == "ScalarType":
        return Static(_dtype(value))
    if not binding.fits(argument, value):
        kind = "the name of a dtype" if argument.is_tensor else argument.type
        raise UsageError(f"{argument.name} is {kind}, and cannot be {value!r}")
    return specs.spec_of(argument, binding.settle(argument, value))


def _dtype(name: str) -> DType:
    try:
        return dtypes.dtype(name)
    except KeyError as error:
        raise UsageError(str(error.args[0])) from None


def setting(text_: str) -> tuple[str, object]:
    """`NAME=VALUE` as it is given on the command line; ValueError without an `=`."""
    name, sign, value = text_.partition("=")
    if not sign:
        raise ValueError(f"expected NAME=VALUE, got {text_!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


class _Nothing(Exception):
    """There is nothing to derive."""


def _differentiable(program: Program) -> list[bool]:
    return [n.dtype.is_differentiable for n in program.inputs]


def _backward(
    made: Compiler, operator: Operator, programs: dict[str, Program]
) -> Program:
    value, entry = programs["value"], operator.entry
    named = set() if entry is None else set(entry.differentiable)
    defined = [o.dtype.is_differentiable for o in value.outputs]
    wanted = [
        able and str(n.attrs) in named
        for n, able in zip(value.inputs, _differentiable(value), strict=True)
    ]
    refused: list[str] = []
    for i, asked in enumerate(wanted):
        try:
            made.vjp(value, [asked and i == j for j in range(len(wanted))], defined)
        except DerivativeNotImplemented as error:
            wanted[i] = False
            refused.append(str(error))
    if not any(wanted) or not any(defined):
        raise _Nothing("; ".join(refused) or "nothing in it has a gradient")
    return made.vjp(value, wanted, defined).program


def _second(
    made: Compiler, operator: Operator, programs: dict[str, Program]
) -> Program:
    if "backward" not in programs:
        raise _Nothing("there is no backward")
    backward = programs["backward"]
    if not backward.inputs:
        raise _Nothing("every gradient is zero")
    return made.vjp(backward, _differentiable(backward), _all(backward.outputs)).program


def _jvp(made: Compiler, operator: Operator, programs: dict[str, Program]) -> Program:
    value = programs["value"]
    if not any(o.dtype.is_differentiable for o in value.outputs):
        raise _Nothing("nothing in it has a derivative")
    return made.jvp(value, _differentiable(value)).program


def _all(items: Sequence[object]) -> list[bool]:
    return [True] * len(items)


def value_text(body: object, signature: Signature) -> str:
    """How the value is computed, as it is given to the compiler."""
    if isinstance(body, FunctionEntry):
        return f"# {place(body.span)}\n{entry_text(body)}"
    if isinstance(body, Primitive):
        c, triton = body.spelling("c", False), body.spelling("triton", False)
        lines = ("a primitive: a row of fuser/optable.py", f"C       {c}")
        return "\n".join(f"# {line}" for line in (*lines, f"Triton  {triton}"))
    name = getattr(body, "__name__", "a builder")
    file = body.__module__.replace(".", "/") + ".py"
    return f"# built by {name} of {file} for {signature}"


def dense(program: Program) -> Layout:
    """The layout of dense operands, which a flat loop walks."""
    count = len(program.inputs) + len(program.outputs)
    return Layout(1, (Access.LINEAR,) * count, dtypes.int32)
