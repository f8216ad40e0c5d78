"""Complex arithmetic as arithmetic on pairs of reals.

Comes in: a program whose nodes may be complex. Goes out: the same program on reals.
Complex values remain at its edges only: `real(input)` and `imag(input)` read the parts
of an argument, and `complex(re, im)` stands at an output. What each primitive does to
the parts is a formula of complex.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial

from fuser import ir
from fuser.build import primitive
from fuser.entries import function_shelf
from fuser.formulas import FunctionEntry
from fuser.functions import Function, Functions
from fuser.ir import Node
from fuser.lower import Lowering
from fuser.program import Program
from fuser.resources import resource
from fuser.shelf import Shelf
from fuser.values import Tensor, Tuple, Value

Parts = tuple[Node, ...]  # (x,) of a real value, (re, im) of a complex one


def split_complex(program: Program, functions: Functions) -> Program:
    """The program on pairs of reals; itself where nothing in it is complex."""
    if not any(node.dtype.is_complex for node in program.nodes):
        return program
    lowering = Lowering(_with_parts(functions), frozenset())
    parts = ir.fold(program.roots, lambda node, args: _split(lowering, node, args))
    return program.with_roots(_joined(parts[root]) for root in program.roots)


def _joined(parts: Parts) -> Node:
    return parts[0] if len(parts) == 1 else primitive("complex", *parts)


def _split(lowering: Lowering, node: Node, args: Sequence[Parts]) -> Parts:
    """The parts of the node, given those of its arguments."""
    if not node.dtype.is_complex and all(len(a) == 1 for a in args):
        return (ir.rebuild(node, tuple(a[0] for a in args)),)
    match node.op:
        case "input" | "scalar":
            return primitive("real", node), primitive("imag", node)
        case "const":
            value = complex(ir.value_of(node))
            real = node.dtype.real
            return ir.const(value.real, real), ir.const(value.imag, real)
        case "cast":
            return _cast(node, args[0])
        case "complex":
            return args[0][0], args[1][0]
        case "real":
            return (args[0][0],)
        case "imag":
            return (args[0][1],)
        case "iterate" | "item" | "param":
            raise NotImplementedError("a loop over complex numbers")
        case _:
            return _apply(lowering, node, args)


def _cast(node: Node, source: Parts) -> Parts:
    if not node.dtype.is_complex:
        return (ir.cast(source[0], node.dtype),)
    real = node.dtype.real
    if len(source) == 1:
        return ir.cast(source[0], real), ir.const(0, real)
    return ir.cast(source[0], real), ir.cast(source[1], real)


def _apply(lowering: Lowering, node: Node, args: Sequence[Parts]) -> Parts:
    formulas = _formulas().get(node.op)
    if formulas is None:
        raise NotImplementedError(f"{node.op} of complex numbers")
    given = [Tensor.of(part) for arg in args for part in arg]
    names: Mapping[str, Value] = dict(
        zip((a.name for a in formulas.arguments), given, strict=True)
    )
    found: list[Node] = []
    for formula in formulas.results.values():
        value = lowering.formula(formula, names)
        items = value.items if isinstance(value, Tuple) else (value,)
        found += [lowering.node(item) for item in items]
    return tuple(ir.cast(part, node.dtype.real) for part in found)


@cache
def _formulas() -> Shelf[FunctionEntry]:
    """What each primitive does to the parts of its arguments, by its name."""
    return function_shelf(resource("complex.yaml"))


def _with_parts(functions: Functions) -> Functions:
    """The functions, and those of complex.yaml that take apart as `complex_NAME`."""
    known = functions.by_name
    helpers = {
        name: partial(Function, entry.signature, None, None, entry)
        for name, entry in _formulas().items()
        if name.startswith("complex_")
    }
    return Functions(Shelf({n: partial(known.__getitem__, n) for n in known} | helpers))
