"""Lowering: a formula and what its names stand for -> nodes.

Comes in: a syntax tree, and a `Value` for each name. Goes out: the value of the
formula, with PyTorch's promotion. A function without a pointwise meaning raises
NotPointwise, which names it and shows where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

from fuser import dtypes, ir, queries, syntax
from fuser.build import convert
from fuser.dtypes import DType, Kind
from fuser.errors import NOWHERE, FormulaError, Span, nearest
from fuser.fold import fold_number
from fuser.formulas import Formula, FunctionEntry
from fuser.functions import Function, Functions
from fuser.ir import CallTarget, Node, Static
from fuser.optable import Primitive
from fuser.rows import (
    apply_row,
    as_operand,
    as_operands,
    linear_in_absent,
    present,
    takes,
    zero_dim,
)
from fuser.signatures import Argument
from fuser.values import (
    NUMBER_DTYPES,
    Number,
    Tensor,
    Tuple,
    Undefined,
    Value,
    common_half,
    number,
    promoted,
    result_type,
)

Names = Mapping[str, Value]

BINARY: dict[str, str] = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
}
UNARY: dict[str, str] = {"-": "neg", "~": "bitwise_not", "!": "logical_not"}

CONSTANTS: dict[str, float] = {
    "INFINITY": math.inf,
    "NAN": math.nan,
    "M_PI": 3.141592653589793,
    "M_LN2": 0.6931471805599453,
    "M_LN10": 2.302585092994046,
    "M_SQRT2": 1.4142135623730951,
    "M_SQRT1_2": 0.7071067811865476,
    "M_2_SQRTPI": 1.1283791670955126,
}

# PyTorch's numbers for what becomes of the elements of a loss.
REDUCTIONS = {"None": 0, "Mean": 1, "Sum": 2}

# What a number beside the promotion may not be, in PyTorch's words.
_TOO_HIGH: dict[Kind, tuple[str, str]] = {
    "float": ("integral", "a floating point"),
    "complex": ("non-complex", "a complex"),
}


class NotPointwise(FormulaError, NotImplementedError):
    """The formula calls a function that does not work element by element."""

    def __init__(self, function: str, span: Span) -> None:
        super().__init__(f"{function} has no pointwise formula", span)
        self.function = function


class Lowering:
    """Lowers formulas over the functions of a registry.

    `opaque` holds the operators that stay one call node because derivatives.yaml has an
    entry for them; `default` is torch.get_default_dtype().
    """

    def __init__(
        self,
        functions: Functions,
        opaque: frozenset[str],
        default: DType = dtypes.float32,
    ) -> None:
        self.functions = functions
        self.opaque = opaque
        self.default = default
        self._calling: list[str] = []  # the functions whose formulas are being lowered

    # -- expressions ---------------------------------------------------------------

    def value(self, expr: syntax.Expr, names: Names) -> Value:
        """The value of the formula under `names`."""
        match expr:
            case syntax.Name():
                return self._name(expr, names)
            case syntax.Method(receiver=receiver, name=name, args=args):
                values = [self.value(a, names) for a in (receiver, *args)]
                return self.apply(name, values, expr.name_span)
            case syntax.Call(namespace="GradMode::"):
                return number(True)  # what is derived can be derived again
            case syntax.Call(function=function, args=args):
                values = [self.value(a, names) for a in args]
                if expr.template and function in ("get", "tuple"):
                    return self._template(expr, values)
                return self.apply(function, values, expr.name_span)
            case syntax.Binary(op="&&" | "||"):
                return self._logic(expr, names)
            case syntax.Binary(op=op, left=left, right=right):
                if op not in BINARY:
                    raise NotPointwise(f"the operator {op}", expr.span)
                args = [self.value(left, names), self.value(right, names)]
                return self.apply(BINARY[op], args, expr.span)
            case syntax.Paren(inner=inner) | syntax.Commented(inner=inner):
                return self.value(inner, names)
            case syntax.Literal(value=value):
                if value is None or isinstance(value, str):
                    return Static(value)
                return number(value)
            case syntax.Unary(op="+" | "*", operand=operand):
                return self.value(operand, names)
            case syntax.Unary(op=op, operand=operand):
                return self.apply(UNARY[op], [self.value(operand, names)], expr.span)
            case syntax.Conditional():
                return self._conditional(expr, names)
            case syntax.Index(base=base, index=index):
                return self._index(base, index, names, expr.span)
            case syntax.Braces(items=items):
                return Tuple(tuple(self.value(i, names) for i in items))
            case syntax.Lambda():
                raise NotPointwise("a lambda", expr.span)

    def _name(self, expr: syntax.Name, names: Names) -> Value:
        if expr.id in names:
            return names[expr.id]
        if expr.id in CONSTANTS:
            return number(CONSTANTS[expr.id])
        if expr.id in dtypes.SCALAR_TYPES:
            return Static(dtypes.SCALAR_TYPES[expr.id])
        if expr.namespace.endswith("Reduction::") and expr.id in REDUCTIONS:
            return number(REDUCTIONS[expr.id])
        if expr.id in ("nullopt", "None"):
            return Static(None)
        raise FormulaError(
            f'"{expr.id}" does not stand for anything here',
            expr.span,
            hint=nearest(expr.id, names),
        )

    def _logic(self, expr: syntax.Binary, names: Names) -> Value:
        left = self.value(expr.left, names)
        known = queries.static_truth(left)
        if known is not None and known == (expr.op == "||"):
            return number(known)
        right = self.value(expr.right, names)
        if known is not None:
            return right
        op = "logical_and" if expr.op == "&&" else "logical_or"
        return self.apply(op, [left, right], expr.span)

    def _conditional(self, expr: syntax.Conditional, names: Names) -> Value:
        test = self.value(expr.test, names)
        known = queries.static_truth(test)
        if known is not None:
            return self.value(expr.then if known else expr.otherwise, names)
        branches = [self.value(e, names) for e in (expr.then, expr.otherwise)]
        return self.apply("where", [test, *branches], expr.span)

    def _index(
        self, base: syntax.Expr, index: syntax.Expr, names: Names, span: Span
    ) -> Value:
        items = self.value(base, names)
        position = self.value(index, names)
        if isinstance(items, Tuple) and isinstance(position, Number):
            place = position.constant
            if isinstance(place, int) and 0 <= place < len(items.items):
                return items.items[place]
        raise FormulaError(
            "only a list of known length can be indexed, by a known number", span
        )

    def _template(self, expr: syntax.Call, values: list[Value]) -> Value:
        if expr.function == "tuple" and not values:
            return Tuple(tuple(Undefined() for _ in expr.template))
        if expr.function == "get" and values and isinstance(values[0], Tuple):
            index, items = int(expr.template[0]), values[0].items
            if index < len(items):
                return items[index]
            raise FormulaError(
                f"a tuple of {len(items)} has no item {index}", expr.span
            )
        raise NotPointwise(f"{expr.namespace}{expr.function}", expr.span)

    # -- application ---------------------------------------------------------------

    def apply(self, name: str, args: Sequence[Value], span: Span = NOWHERE) -> Value:
        """The function (or method, its receiver first) `name` of the values."""
        query = queries.QUERIES.get(name)
        if query is not None:
            answer = query(self, args)
            if answer is not None:
                return answer
        row = self.functions.primitive(name)
        if row is not None:
            zero = linear_in_absent(name, args)
            if zero is not None:
                return zero
            known = len(args) == row.arity
            if known and takes(row, args, self.default):
                return apply_row(row, args, self.default, span)
            found = self.functions.resolve(name, args)
            if known and (found is None or found[0].name in self._calling):
                return apply_row(row, args, self.default, span)  # which says why not
        else:
            found = self.functions.resolve(name, args)
        if found is not None:
            return self.call(found[0], found[1], span)
        if name.endswith("_") and not name.endswith("__"):
            return self.apply(name[:-1], args, span)  # in place on a temporary
        overloads = self.functions.overloads(name)
        if overloads:
            expected = " or ".join(str(f.signature) for f in overloads)
            raise FormulaError(f"{name} does not take these arguments", span, expected)
        raise NotPointwise(name, span)

    def call(self, function: Function, bound: Names, span: Span = NOWHERE) -> Value:
        """A function of the registry on its arguments by name."""
        if isinstance(function.body, Primitive):
            row, base = function.body, function.signature.base
            args = as_operands(row, base, [*bound.values()], self.default)
            value = apply_row(row, args, self.default, span)
            whole = function.name in self.opaque
            return self.whole(function, bound, value) if whole else value
        arguments = function.signature.arguments
        result: DType | None = None
        if function.promotes is not None:
            given = tuple(bound.values())
            bound = {n: present(v, given, self.default) for n, v in bound.items()}
        if function.promotes not in (None, "keep"):
            taking = [bound[a.name] for a in arguments if function.takes_part(a)]
            common, result = promoted(taking, function.promotes, self.default)
            if function.into is not None:
                result = result_type([bound[function.into]], self.default)
            self._check_scalars(function, bound, common, span)
            bound = {
                a.name: self._prepared(function, a, bound[a.name], common)
                for a in arguments
            }
        self._calling.append(function.name)
        try:
            value = self.body(function, bound)
        finally:
            self._calling.pop()
        if result is not None:
            value = self._typed(value, result, zero_dim(bound.values()))
        if function.name in self.opaque:
            return self.whole(function, bound, value)
        return value

    def _check_scalars(
        self, function: Function, bound: Names, common: DType, span: Span
    ) -> None:
        """A number beside the promotion (`alpha`) must not be of a higher kind."""
        for argument in function.signature.arguments:
            value = bound[argument.name]
            if not isinstance(value, Number) or function.takes_part(argument):
                continue
            if argument.type.base != "Scalar" or value.kind not in _TOO_HIGH:
                continue
            rank = dtypes.KINDS.index
            if rank(value.kind) > max(rank(common.kind), rank("int")):
                tensors, numbers = _TOO_HIGH[value.kind]
                raise FormulaError(
                    f"For {tensors} input tensors, argument {argument.name} must not "
                    f"be {numbers} number.",
                    span,
                )

    def _prepared(
        self, function: Function, argument: Argument, value: Value, common: DType
    ) -> Value:
        """An argument that takes part in the promotion, in the common dtype."""
        if not function.takes_part(argument) or not isinstance(value, Tensor | Number):
            return value
        value = as_operand(function.signature.base, value, common)
        if argument.is_tensor:
            flat = not isinstance(value, Tensor) or value.zero_dim
            return Tensor(convert(value.node, common.opmath), common, flat)
        if isinstance(value, Number):  # in the kind of the common dtype
            node = convert(value.node, NUMBER_DTYPES[common.kind])
            return Number(fold_number(node))
        return value

    def body(self, function: Function, bound: Names) -> Value:
        """What the function computes: its formulas' values, or what it builds."""
        body = function.body
        assert not isinstance(body, Primitive)
        if not isinstance(body, FunctionEntry):
            nodes = body(**{name: _argument(value) for name, value in bound.items()})
            if isinstance(nodes, Node):
                return Tensor.of(nodes)
            return Tuple(tuple(Tensor.of(n) for n in nodes))
        results = [self.formula(f, bound) for f in body.results.values()]
        return results[0] if len(results) == 1 else Tuple(tuple(results))

    def formula(self, formula: Formula, names: Names) -> Value:
        """The value of a formula that is an expression."""
        if formula.expr is None:
            raise FormulaError("a special value has no expression", formula.span)
        return self.value(formula.expr, names)

    def _typed(self, value: Value, result: DType, flat: bool) -> Value:
        """The value in the dtype of the result; of several, the first is."""
        if isinstance(value, Tuple):
            first, *others = value.items
            return Tuple((self._typed(first, result, flat), *others))
        if isinstance(value, Tensor | Number):
            return Tensor(convert(value.node, result.opmath), result, flat)
        return value

    def whole(self, function: Function, bound: Names, value: Value) -> Value:
        """The call as one node (one for each output), kept for its own derivative."""
        static: list[Static | None] = []
        args: list[Node] = []
        for argument in function.signature.arguments:
            given = bound[argument.name]
            held = argument.is_tensor or argument.type.base in ("Scalar", "float")
            if held and isinstance(given, Tensor | Number):
                static.append(None)
                args.append(given.node)
            else:
                static.append(Static(_static(given)))
        items = value.items if isinstance(value, Tuple) else (value,)
        narrow = function.promotes in ("keep", "no_opmath")
        seen = common_half(bound.values()) if narrow else None
        nodes: list[Value] = []
        for output, item in enumerate(items):
            if not isinstance(item, Tensor):
                raise FormulaError(f"{function.name} has an output without a value")
            target = CallTarget(function.name, tuple(static), output, seen)
            node = ir.call(target, item.node.dtype, args)
            nodes.append(Tensor(node, item.dtype, item.zero_dim))
        return nodes[0] if len(nodes) == 1 else Tuple(tuple(nodes))

    # -- conversion ----------------------------------------------------------------

    def node(self, value: Value) -> Node:
        """The node of a tensor or a number."""
        if isinstance(value, Tensor | Number):
            return value.node
        raise FormulaError("a tensor or a number was expected here")

    def converted(self, value: Value, dtype: DType) -> Value:
        """The value as a tensor of another dtype, rounded to it where it is a half."""
        if not isinstance(value, Tensor | Number):
            return value
        node = ir.cast(convert(value.node, dtype), dtype.opmath)
        return Tensor(node, dtype, not isinstance(value, Tensor) or value.zero_dim)


def _argument(value: Value) -> object:
    """The value as a builder gets it: a node, or what is known of it."""
    if isinstance(value, Tensor):
        return value.node
    if isinstance(value, Number):
        known = value.constant
        return value.node if known is None else known
    return value.value if isinstance(value, Static) else value


def _static(value: Value) -> Hashable:
    """The value of an argument that is not a node, for the call's target."""
    if isinstance(value, Number):
        if value.constant is None:
            raise FormulaError("a number that shapes the code must be known")
        return value.constant
    if isinstance(value, Static):
        return value.value
    if isinstance(value, Tuple):
        return tuple(_static(item) for item in value.items)
    return None
