"""Formulas over whole tensors: torch runs what is not pointwise, the rest is fused.

Comes in: the tree of a formula, and what its names stand for: tensors, numbers, lists
of sizes, `Geometry` where only a tensor's shape is kept, ZERO for a tangent that is not
there. Goes out: the formula's value. Each largest pointwise part becomes one program
over the tensors that the other parts have given, and so is differentiable like any
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from atentriton import programs
from atentriton.helpers import FUNCTIONS
from atentriton.pointwise import CONJUGATE, computed
from atentriton.questions import QUESTIONS, geometry_of, plain, question_in
from fuser import syntax
from fuser.errors import FormulaError
from fuser.lower import CONSTANTS, REDUCTIONS
from fuser.syntax import Expr


class Zero:
    """A tensor of zeros that takes no memory and no time."""

    def __repr__(self) -> str:
        return "ZERO"


ZERO = Zero()

# Functions, beside sums, that give zeros for zeros in any of their arguments.
LINEAR = frozenset(
    (
        *("mm", "bmm", "mv", "ger", "outer", "dot", "vdot", "matmul"),
        *("t", "transpose", "unsqueeze", "squeeze", "expand", "view", "reshape", "sum"),
        *("conj", "neg", "mul", "maybe_multiply"),
        *("mm_mat1_backward", "mm_mat2_backward"),
    )
)

# Names that are qualified where they stand: `at::Reduction::None`.
QUALIFIED: dict[str, Any] = {
    **REDUCTIONS,
    "Contiguous": torch.contiguous_format,
    "kJagged": torch.jagged,
}


class Evaluator:
    """Evaluates formulas under the meaning of their names."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names

    def value(self, expr: Expr) -> Any:
        """The formula's value: a tensor, a number, a list, None or ZERO."""
        question = question_in(expr)
        if question is not None:
            return self._answer(*question)
        match expr:
            case syntax.Paren(inner=inner) | syntax.Commented(inner=inner):
                return self.value(inner)
            case syntax.Literal(value=value):
                return value
            case syntax.Name(id=name):
                return self._name(expr, name)
            case syntax.Lambda(parameters=parameters, body=body):
                return self._lambda([name for _, name in parameters], body)
            case syntax.Braces(items=items):
                return [self.value(i) for i in items]
            case syntax.Index(base=base, index=index):
                return self.value(base)[self.value(index)]
            case syntax.Conditional(test=test, then=then, otherwise=otherwise):
                test = self.value(test)
                if not isinstance(test, Tensor):
                    return self.value(then if test else otherwise)
            case syntax.Method(receiver=receiver, name=name, args=args):
                if not self._is_pointwise(name, len(args) + 1):
                    return self._method(expr)
                if name in CONJUGATE:
                    return self._conjugate(self.value(receiver))
            case syntax.Call(function=function, args=args):
                if not self._is_pointwise(function, len(args)):
                    return self._function(expr)
            case _:
                pass
        return _Pointwise(self).value(expr)

    def _lambda(self, parameters: Sequence[str], body: Expr) -> Callable[..., Any]:
        def function(*args: Any) -> Any:
            bound = dict(zip(parameters, args, strict=True))
            return Evaluator({**self.names, **bound}).value(body)

        return function

    def _name(self, expr: syntax.Name, name: str) -> Any:
        if expr.namespace and name in QUALIFIED:
            return QUALIFIED[name]
        if name in self.names:
            return self.names[name]
        if name in CONSTANTS:
            return CONSTANTS[name]
        raise FormulaError(f'"{name}" does not stand for anything here', expr.span)

    def _is_pointwise(self, name: str, count: int) -> bool:
        name = plain(name)
        if name in QUESTIONS or name in FUNCTIONS:
            return False
        functions = programs.compiler().functions
        if functions.primitive(name) is not None:
            return True
        return any(
            len(f.signature.arguments) >= count for f in functions.overloads(name)
        )

    def _conjugate(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.conj()
        return value.conjugate() if isinstance(value, complex) else value

    def _answer(self, name: str, asked: Expr, args: Sequence[Expr]) -> Any:
        geometry = geometry_of(self.value(asked))
        return QUESTIONS[name](geometry, *(self.value(a) for a in args))

    def _method(self, expr: syntax.Method) -> Any:
        return self._apply(
            expr.name, [self.value(a) for a in (expr.receiver, *expr.args)], expr
        )

    def _function(self, expr: syntax.Call) -> Any:
        args = [self.value(a) for a in expr.args]
        if expr.function == "get" and expr.template:
            return args[0][int(expr.template[0])]
        if expr.function == "tuple":
            return tuple(args) if args else (None,) * len(expr.template)
        return self._apply(expr.function, args, expr)

    def _apply(self, name: str, args: list[Any], expr: syntax.Call | syntax.Method):
        """A function that is not pointwise: a helper, or torch's."""
        name = plain(name)
        if any(a is ZERO for a in args):
            if name in LINEAR:
                return ZERO
            raise FormulaError(f"{name} of a tangent that is not there", expr.span)
        if name in FUNCTIONS:
            return FUNCTIONS[name](*args)
        from atentriton import composite  # which needs this module

        # Nobody sees what a formula writes over but through its result.
        functional = name.removesuffix("_")
        product = composite.by_base(name)
        if product is not None:
            return product(*args)
        packet = getattr(torch.ops.aten, functional, None)
        if packet is None:
            raise FormulaError(f'there is no function "{name}"', expr.span)
        return _call(packet, args)


def _call(packet: Any, args: Sequence[Any]) -> Any:
    """An ATen operator called as in C++, where no argument needs to be named."""
    schemas = [getattr(packet, name)._schema for name in packet.overloads()]
    counts = [sum(not a.kwarg_only for a in s.arguments) for s in schemas]
    if max(counts) >= len(args):
        return packet(*args)
    for schema, count in zip(schemas, counts, strict=True):
        named = [a.name for a in schema.arguments[count : len(args)]]
        outputs = any(a.is_out for a in schema.arguments)
        if not outputs and count + len(named) == len(args):
            rest = dict(zip(named, args[count:], strict=True))
            return packet(*args[:count], **rest)
    raise TypeError(f"{packet} does not take {len(args)} arguments")


class _Pointwise:
    """One largest pointwise part: its tree over leaves, and what the leaves are."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.leaves: dict[str, Any] = {}

    def value(self, expr: Expr) -> Any:
        tree = self.rewritten(expr)
        if tree is ZERO:
            return ZERO
        if isinstance(tree, syntax.Name) and tree.id in self.leaves:
            return self.leaves[tree.id]
        return computed(tree, self.leaves)

    def rewritten(self, expr: Expr) -> Any:
        """The part over leaves; ZERO where a missing tangent makes all of it zero."""
        match expr:
            case syntax.Paren(inner=inner) | syntax.Commented(inner=inner):
                inner = self.rewritten(inner)
                return ZERO if inner is ZERO else syntax.Paren(inner)
            case syntax.Unary(op=op, operand=operand):
                operand = self.rewritten(operand)
                return ZERO if operand is ZERO else syntax.Unary(op, operand)
            case syntax.Binary(op=op, left=left, right=right):
                return self._binary(
                    op, self.rewritten(left), self.rewritten(right), expr
                )
            case syntax.Call(function=function, args=args):
                if self.evaluator._is_pointwise(function, len(args)):
                    return self._applied(function, args, expr)
            case syntax.Method(receiver=receiver, name=name, args=args):
                if self.evaluator._is_pointwise(name, len(args) + 1):
                    return self._applied(name, (receiver, *args), expr)
            case syntax.Literal():
                return expr
            case _:
                pass
        return self._leaf(self.evaluator.value(expr))

    def _leaf(self, value: Any) -> Any:
        if value is ZERO:
            return ZERO
        for name, known in self.leaves.items():
            if known is value:
                return syntax.Name(name)
        letter = "t" if isinstance(value, Tensor) else "s"
        name = f"{letter}{sum(n[0] == letter for n in self.leaves)}"
        self.leaves[name] = value
        return syntax.Name(name)

    def _binary(self, op: str, left: Any, right: Any, expr: syntax.Binary) -> Any:
        if op == "*" and (left is ZERO or right is ZERO):
            return ZERO
        if op == "/" and left is ZERO and right is not ZERO:
            return ZERO
        if op in ("+", "-") and (left is ZERO or right is ZERO):
            if right is ZERO:
                return left
            return right if op == "+" else syntax.Unary("-", syntax.Paren(right))
        if left is ZERO or right is ZERO:
            raise FormulaError(f"{op} of a tangent that is not there", expr.span)
        return syntax.Binary(op, left, right)

    def _applied(self, name: str, args: Sequence[Expr], expr: Expr) -> Any:
        name = plain(name)
        given = [self.rewritten(a) for a in args]
        if any(g is ZERO for g in given):
            if name in LINEAR:
                return ZERO
            raise FormulaError(f"{name} of a tangent that is not there", expr.span)
        return syntax.Call(name, tuple(given))
