"""What can be done with an entry: its class, and the reason in a sentence.

Comes in: a compiler and its entries. Goes out: a `Verdict` for each, found by lowering
and deriving the entry with float32 tensors, not by looking names up in a list.

  fused               the value and every formula are pointwise: kernels of our own
  matrix              products of matrices, through torch, with fused pointwise parts
  composite           torch's own value; the formulas over whole tensors, through torch
  view                torch's own view; the formulas are checked against it
  zero                torch's own operator; every gradient is zero
  not_implemented     torch's own value; the file gives no derivative
  non_differentiable  no gradient by the file's word
  not_yet             calls something that atentriton cannot run so far
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from fuser import dtypes
from fuser.errors import DerivativeNotImplemented, FormulaError
from fuser.formulas import Entry, Formula
from fuser.ir import Static
from fuser.lower import NotPointwise
from fuser.pipeline import Compiler
from fuser.program import Program
from fuser.queries import QUERIES
from fuser.signatures import Argument
from fuser.specs import ScalarSpec, Spec, TensorSpec
from fuser.syntax import (
    AutoElementWise,
    AutoLinear,
    Call,
    NonDifferentiable,
    NotImplementedValue,
    bare,
    called_functions,
)

Class = Literal[
    "fused",
    "matrix",
    "view",
    "composite",
    "zero",
    "not_implemented",
    "non_differentiable",
    "not_yet",
]

# Functions whose formulas run through torch's matrix products, with the reshaping that
# goes with them.
MATRIX = frozenset(
    {
        *("mm", "bmm", "mv", "ger", "outer", "dot", "vdot", "sum"),
        *("t", "transpose", "unsqueeze", "expand"),
        *("mm_mat1_backward", "mm_mat2_backward"),
    }
)

# Questions about their shape, which matrices have an answer to.
SHAPES = frozenset({"size", "sym_size"})


# Functions whose result is zero whatever they are given.
ZEROS = frozenset({"zeros_like", "zeros", "zeros_symint"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What runs; `forward`, `backward`, `second` and `jvp` say how, or `-`."""

    name: str
    kind: Class
    reason: str
    forward: str
    backward: str
    second: str
    jvp: str

    def as_json(self) -> dict[str, str]:
        return {
            "name": self.name,
            "class": self.kind,
            "reason": self.reason,
            "forward": self.forward,
            "backward": self.backward,
            "second": self.second,
            "jvp": self.jvp,
        }


class Runtime(Protocol):
    """What there is to run besides kernels."""

    def has(self, operator: str) -> bool:
        """Whether there is a value for the operator of that full name."""
        ...

    def runs(self, function: str) -> bool:
        """Whether formulas over whole tensors may call the function."""
        ...


def classify(
    compiler: Compiler, entries: Iterable[Entry], runtime: Runtime
) -> Iterator[Verdict]:
    """The verdict on each entry."""
    for entry in entries:
        yield verdict(compiler, entry, runtime)


def verdict(compiler: Compiler, entry: Entry, runtime: Runtime) -> Verdict:
    """The verdict on one entry."""
    present = runtime.has(entry.name)
    bodies = [f.body for f in entry.gradients]
    if not entry.differentiable or not any(entry.differentiable_outputs):
        reason = "by the file's word nothing in it has a gradient"
        return _inert(compiler, "non_differentiable", reason, entry, present)
    if bodies and all(isinstance(b, NotImplementedValue) for b in bodies):
        reason = "the file has no derivative for it"
        return _inert(compiler, "not_implemented", reason, entry, present)
    if entry.view:
        return _torch("view", "torch's own view shares the memory", entry, present)
    if entry.name in compiler.functions.by_name:
        found = _fused(compiler, entry)
        if found.kind == "fused" or unavailable(compiler, entry.gradients, runtime):
            return found
    if all(_is_zero(f) for f in entry.gradients):
        return _torch("zero", "every gradient is zero", entry, present)
    missing = list(_missing(compiler, (*entry.gradients, *entry.forwards)))
    if MATRIX.union(SHAPES).issuperset(missing) and _is_matrix(entry):
        reason = "matrix products through torch, the pointwise parts fused"
        return _torch("matrix", reason, entry, present, "formula")
    lacking = unavailable(compiler, entry.gradients, runtime)
    if lacking:
        return _not_yet(entry, f"{_calls(lacking)}, which PyTorch has in C++ alone")
    reason = "torch's value, the formulas over whole tensors"
    found = _torch("composite", reason, entry, present, "formula")
    lacking = unavailable(compiler, entry.forwards, runtime)
    if lacking and found.kind == "composite":
        reason += f"; the forward formula {_calls(lacking)}, which is in C++ alone"
        return replace(found, reason=reason, jvp="derived")
    return found


def unavailable(
    compiler: Compiler, formulas: Iterable[Formula], runtime: Runtime
) -> list[str]:
    """The functions that these formulas call and that nothing here can run."""
    return [n for n in _missing(compiler, formulas) if not runtime.runs(n)]


def _calls(functions: Sequence[str]) -> str:
    *most, last = functions
    return f"calls {', '.join(most)} and {last}" if most else f"calls {last}"


def _fused(compiler: Compiler, entry: Entry) -> Verdict:
    try:
        program = compiler.program(entry.name, specs_of(entry.signature.arguments))
        compiler.kernels(program)
        wanted = [n.dtype.is_differentiable for n in program.inputs]
        wanted = [
            w and str(n.attrs) in entry.differentiable
            for w, n in zip(wanted, program.inputs, strict=True)
        ]
        backward, refused = _backward(compiler, entry, program, wanted)
        second = _second(compiler, backward)
        jvp = _jvp(compiler, entry, program, wanted)
    except (FormulaError, NotImplementedError, TypeError) as error:
        return _not_yet(entry, _short(error))
    reason = "its value and its formulas are pointwise"
    if refused:
        reason += f"; not implemented: {', '.join(refused)}"
    return Verdict(entry.name, "fused", reason, "fused", "fused", second, jvp)


def _backward(
    compiler: Compiler, entry: Entry, program: Program, wanted: list[bool]
) -> tuple[Program, list[str]]:
    """The backward program of what has a gradient, and the names of what has none."""
    refused = [
        name
        for formula in entry.gradients
        if isinstance(formula.body, NotImplementedValue)
        for name in formula.names
    ]
    asked = [
        w and str(n.attrs) not in refused
        for w, n in zip(wanted, program.inputs, strict=True)
    ]
    defined = [o.dtype.is_differentiable for o in program.outputs]
    backward = compiler.vjp(program, asked, defined).program
    compiler.kernels(backward)
    return backward, refused


def _second(compiler: Compiler, backward: Program) -> str:
    wanted = [n.dtype.is_differentiable for n in backward.inputs]
    defined = [True] * len(backward.outputs)
    try:
        compiler.kernels(compiler.vjp(backward, wanted, defined).program)
    except DerivativeNotImplemented as error:
        return f"not_implemented: {error.message}"
    return "fused"


def _jvp(compiler: Compiler, entry: Entry, program: Program, wanted: list[bool]) -> str:
    try:
        compiler.kernels(compiler.jvp(program, wanted).program)
    except DerivativeNotImplemented as error:
        return f"not_implemented: {error.message}"
    bodies = [f.body for f in entry.forwards]
    if not bodies:
        return "derived"
    if isinstance(bodies[0], AutoElementWise):
        return "auto_element_wise"
    return "auto_linear" if isinstance(bodies[0], AutoLinear) else "formula"


def specs_of(arguments: Sequence[Argument]) -> list[Spec]:
    """Specs to try an operator with: float32 tensors and floating-point numbers."""
    return [_spec(a) for a in arguments]


def _spec(argument: Argument) -> Spec:
    base = argument.type.base
    if argument.is_list:
        raise FormulaError(f"{argument.name} is a list, of a length not known")
    if base == "Tensor":
        boolean = argument.name in ("mask", "condition")
        return TensorSpec(dtypes.bool_ if boolean else dtypes.float32)
    if base in ("Scalar", "float"):
        return ScalarSpec("float")
    if argument.name == "reduction":
        return Static(0)  # none: only then is a loss pointwise
    if base in ("int", "SymInt") and not argument.optional:
        return Static(1)
    if base == "bool" and not argument.optional:
        return Static(False)
    return Static(argument.default.value if argument.default else None)


def _inert(
    compiler: Compiler, kind: Class, reason: str, entry: Entry, present: bool
) -> Verdict:
    """An entry without derivatives; its value may be a kernel of our own."""
    if entry.name not in compiler.functions.by_name:
        return _torch(kind, reason, entry, present)
    return Verdict(entry.name, kind, reason, "fused", "-", "-", "-")


def _torch(
    kind: Class, reason: str, entry: Entry, present: bool, derivative: str = "torch"
) -> Verdict:
    if not present:
        return _not_yet(entry, "the installed torch no longer has this operator")
    if kind in ("not_implemented", "non_differentiable"):
        derivative = "-"
    jvp = derivative if derivative != "formula" or entry.forwards else "derived"
    return Verdict(entry.name, kind, reason, "torch", derivative, derivative, jvp)


def _not_yet(entry: Entry, reason: str) -> Verdict:
    return Verdict(entry.name, "not_yet", reason, "-", "-", "-", "-")


def _is_zero(formula: Formula) -> bool:
    if isinstance(formula.body, NonDifferentiable):
        return True
    expr = bare(formula.expr) if formula.expr else None
    return isinstance(expr, Call) and expr.function in ZEROS


def _is_matrix(entry: Entry) -> bool:
    formulas = [f.expr for f in entry.gradients if f.expr is not None]
    called = {c.name for expr in formulas for c in called_functions(expr)}
    return bool(called & MATRIX) or entry.base in MATRIX


def _missing(compiler: Compiler, formulas: Iterable[Formula]) -> Iterator[str]:
    """The functions that the formulas call and that have no pointwise meaning."""
    known = compiler.functions.names | frozenset(QUERIES)
    seen: set[str] = set()
    for formula in formulas:
        if formula.expr is None:
            continue
        for called in called_functions(formula.expr):
            name = called.name.removesuffix("_symint")
            if name in known or name.rstrip("_") in known or name in seen:
                continue
            seen.add(name)
            yield name


def _short(error: Exception) -> str:
    if isinstance(error, NotPointwise):
        return f"calls {error.function}"
    if isinstance(error, FormulaError):
        return error.diagnostic.message
    return str(error)
