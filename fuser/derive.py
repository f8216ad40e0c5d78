"""Derivatives of graphs, from the formulas of derivatives.yaml alone.

Comes in: nodes, and cotangents or tangents for some of them. Goes out: nodes. Each
operator's step is its entry's formula, lowered over the operator's own arguments, so
that a derivative is a graph like any other and can be derived again, to any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fuser import ir, loops
from fuser.build import convert, primitive
from fuser.errors import DerivativeNotImplemented, FormulaError
from fuser.formulas import Entry, GradientFormula
from fuser.ir import CallTarget, Node, Static
from fuser.lower import Lowering
from fuser.optable import PRIMITIVES
from fuser.scopes import Scopes, output_of, places_of
from fuser.syntax import (
    AutoElementWise,
    AutoLinear,
    Expr,
    Method,
    NonDifferentiable,
    NotImplementedValue,
    bare,
    free_names,
)
from fuser.values import Tensor, Tuple, Undefined, Value, number

Pull = Callable[[Node], Node | None]  # cotangent of a node -> that of its argument
LEAVES = frozenset({"input", "scalar", "const", "param"})


class Deriver:
    """Derives graphs by the entries, which `lowering` lowers.

    `saved` maps nodes to what a formula gets when it names them as its result: the
    output of an operator, kept from the forward pass.
    """

    def __init__(
        self,
        entries: Mapping[str, Entry],
        lowering: Lowering,
        saved: Mapping[Node, Node] | None = None,
    ) -> None:
        self.entries = entries
        self.lowering = lowering
        self.scopes = Scopes(lowering, saved or {})

    # -- reverse mode --------------------------------------------------------------

    def vjp(
        self,
        outputs: Sequence[Node],
        cotangents: Sequence[Node | None],
        wrt: Sequence[Node],
    ) -> tuple[Node | None, ...]:
        """The cotangents of `wrt`, None where they are zero.

        A cotangent has its output's dtype, and so has what comes out for a node of
        `wrt`. DerivativeNotImplemented where the file says so of one that is needed.
        """
        targets = set(wrt)
        active = _reaching(outputs, targets)
        total: dict[Node, Node] = {}
        for output, cotangent in zip(outputs, cotangents, strict=True):
            if cotangent is not None and output in active:
                _accumulate(total, output, cotangent)
        for node in reversed(ir.topological(outputs)):
            cotangent = total.get(node)
            if cotangent is None or node in targets or node.op in LEAVES:
                continue
            if node.op == "item":
                parts = loops.pull_back(self, node, cotangent, active)
            else:
                wanted = [a in active for a in node.args]
                found = self._pull_back(node, cotangent, wanted)
                parts = zip(node.args, found, strict=True)
            for arg, part in parts:
                if part is not None and not ir.is_const(part, 0):
                    _accumulate(total, arg, part)
        return tuple(total.get(w) for w in wrt)

    def _pull_back(
        self, node: Node, cotangent: Node, wanted: Sequence[bool]
    ) -> list[Node | None]:
        """The cotangents of the node's arguments."""
        if node.op == "cast":
            return [_coerce(cotangent, node.args[0]) if wanted[0] else None]
        entry = self.entry(node)
        places = places_of(entry, node)
        parts: list[Node | None] = [None] * len(node.args)
        names: dict[str, Value] | None = None
        for formula in entry.gradients:
            asked = [n for n in formula.names if n in places and wanted[places[n]]]
            if not asked or isinstance(formula.body, NonDifferentiable):
                continue
            if isinstance(formula.body, NotImplementedValue):
                message = formula.body.message
                raise DerivativeNotImplemented(entry.name, asked[0], message)
            if names is None:
                names = self._gradient_names(entry, node, cotangent)
            for name, value in self._gradients(entry, formula, names, asked).items():
                parts[places[name]] = self._node(value, node.args[places[name]])
        return parts

    def _gradient_names(
        self, entry: Entry, node: Node, cotangent: Node
    ) -> dict[str, Value]:
        """What the names in gradient formulas stand for."""
        names = self.scopes.names(entry, node)
        grads: list[Value] = []
        for output, name in enumerate(entry.signature.result_names):
            given: Value = Tensor.of(cotangent)
            if output != output_of(node):
                result = names[name]
                given = Undefined(result.dtype if isinstance(result, Tensor) else None)
            grads.append(given)
            names[f"grad_{name}"] = given
        names["grads"] = Tuple(tuple(grads))
        names["grad"] = grads[_first_differentiable(entry)]
        names["retain_variables"] = number(True)
        return names

    def _gradients(
        self,
        entry: Entry,
        formula: GradientFormula,
        names: Mapping[str, Value],
        asked: Sequence[str],
    ) -> dict[str, Value]:
        """The formula's values for the names asked for."""
        if isinstance(names["grad"], Undefined) and _only_grad(entry, formula):
            return {}
        mask = Tuple(tuple(number(n in asked) for n in formula.names))
        value = self.lowering.value(
            _summand(formula), {**names, "grad_input_mask": mask}
        )
        if len(formula.names) == 1:
            return {asked[0]: value}
        if not isinstance(value, Tuple) or len(value.items) != len(formula.names):
            raise FormulaError(
                f"this does not give a gradient for each of {', '.join(formula.names)}",
                formula.span,
            )
        chosen = dict(zip(formula.names, value.items, strict=True))
        return {name: chosen[name] for name in asked}

    # -- forward mode --------------------------------------------------------------

    def jvp(
        self, outputs: Sequence[Node], tangents: Mapping[Node, Node]
    ) -> tuple[Node | None, ...]:
        """The tangents of `outputs`, given those of some nodes; None where zero."""
        known: dict[Node, Node | None] = dict(tangents)
        lifted: dict[Node, dict[int, Node]] = {}
        for node in ir.topological(outputs):
            if node not in known:
                known[node] = self._tangent(node, known, lifted)
        return tuple(known[o] for o in outputs)

    def _tangent(
        self,
        node: Node,
        known: Mapping[Node, Node | None],
        lifted: dict[Node, dict[int, Node]],
    ) -> Node | None:
        """The node's tangent, given those of its arguments; of a loop, `lifted` gets
        the tangents of all items."""
        if node.op == "item":
            assert isinstance(node.attrs, int)
            return lifted.get(node.args[0], {}).get(node.attrs)
        given = [known[a] for a in node.args]
        if all(g is None for g in given):
            return None
        if node.op == "iterate":
            lifted[node] = loops.push_forward(self, node, given)
            return None
        if not node.dtype.is_differentiable:
            return None
        tangent = self._push_forward(node, given)
        return None if tangent is None or ir.is_const(tangent, 0) else tangent

    def _push_forward(self, node: Node, given: Sequence[Node | None]) -> Node | None:
        if node.op == "cast":
            (tangent,) = given
            assert tangent is not None
            return _coerce(tangent, node)
        entry = self.entry(node)
        name = entry.signature.result_names[output_of(node)]
        formula = entry.forward(name)
        if formula is None:
            return self._from_gradients(entry, node, given, holomorphic=False)
        match formula.body:
            case NotImplementedValue(message=message):
                raise DerivativeNotImplemented(entry.name, name, message)
            case AutoElementWise():
                return self._from_gradients(entry, node, given, holomorphic=True)
            case AutoLinear():
                return _of_tangents(entry, node, given)
            case _:
                scope = self.scopes.forward_names(entry, node, given)
                value = self.lowering.formula(formula, scope)
                if isinstance(value, Tuple):  # one formula for several results
                    value = value.items[formula.names.index(name)]
                return self._node(value, node)

    def _from_gradients(
        self, entry: Entry, node: Node, given: Sequence[Node | None], holomorphic: bool
    ) -> Node | None:
        """The tangent where the file gives none: an elementwise Jacobian is its own
        transpose, so each gradient formula, conjugated, is also the forward one."""
        total: dict[Node, Node] = {}
        for place, tangent in enumerate(given):
            if tangent is None:
                continue
            wanted = [i == place for i in range(len(node.args))]

            def pull(
                cotangent: Node, wanted: list[bool] = wanted, at: int = place
            ) -> Node | None:
                return self._pull_back(node, cotangent, wanted)[at]

            arg = node.args[place]
            if arg.dtype.is_complex or node.dtype.is_complex:
                part = _complex_tangent(pull, node, arg, tangent, holomorphic)
            else:
                part = pull(convert(tangent, node.dtype))
            if part is not None:
                _accumulate(total, node, _coerce(part, node))
        return total.get(node)

    # -- both ----------------------------------------------------------------------

    def entry(self, node: Node) -> Entry:
        """The entry whose formulas are the node's derivative."""
        target = node.attrs
        called = isinstance(target, CallTarget)
        name = target.name if called else PRIMITIVES[node.op].aten
        found = self.entries.get(name)
        if found is None:
            raise DerivativeNotImplemented(name, "self", name)
        return found

    def _node(self, value: Value, like: Node) -> Node | None:
        """The value as a node of `like`'s dtype (handle_r_to_c always holds)."""
        if isinstance(value, Undefined) or value == Static(None):
            return None
        return _coerce(self.lowering.node(value), like)


def _first_differentiable(entry: Entry) -> int:
    flags = entry.output_differentiability
    if isinstance(flags, tuple) and True in flags:
        return flags.index(True)
    return 0


def _only_grad(entry: Entry, formula: GradientFormula) -> bool:
    """Whether the formula speaks of no output's gradient but of `grad`."""
    names = free_names(formula.expr) if formula.expr else frozenset[str]()
    others = {"grads", *(f"grad_{name}" for name in entry.signature.result_names)}
    return not names & others


def _summand(formula: GradientFormula) -> Expr:
    """The formula's tree. A sum over everything is the gradient of an argument without
    dimensions; who runs the program sums over what was broadcast, here as elsewhere."""
    expr = formula.expr
    if expr is None:
        raise FormulaError("this says nothing of a gradient", formula.span)
    top = bare(expr)
    if isinstance(top, Method) and top.name == "sum" and not top.args:
        return top.receiver
    return expr


def _of_tangents(entry: Entry, node: Node, given: Sequence[Node | None]) -> Node:
    """The operator itself on tangents, where it has them, or zeros."""
    args = list(node.args)
    for place in places_of(entry, node).values():
        args[place] = given[place] or ir.const(0, args[place].dtype)
    return ir.rebuild(node, tuple(args))


def _coerce(node: Node, like: Node) -> Node:
    if node.dtype == like.dtype:
        return node
    if node.dtype.is_complex and not like.dtype.is_complex:
        node = primitive("real", node)
    return convert(node, like.dtype)


def _accumulate(total: dict[Node, Node], node: Node, part: Node) -> None:
    seen = total.get(node)
    total[node] = part if seen is None else primitive("add", seen, part)


def _reaching(outputs: Sequence[Node], targets: set[Node]) -> set[Node]:
    """The nodes on a way from a target to an output, by differentiable values."""
    active: set[Node] = set()
    for node in ir.topological(outputs):
        carries = node.dtype.is_differentiable or node.op == "iterate"
        if carries and (node in targets or any(a in active for a in node.args)):
            active.add(node)
    return active


def _complex_tangent(
    pull: Pull, node: Node, arg: Node, tangent: Node, holomorphic: bool
) -> Node | None:
    """The tangent of a complex step, from what pulling back gives.

    Holomorphic: conj(vjp(conj(t))). Else, with a = vjp(1) and b = vjp(i), the real part
    of the tangent is Re(conj(a) t), and the imaginary one Re(conj(b) t).
    """
    if holomorphic and node.dtype.is_complex:
        part = pull(primitive("conj", convert(tangent, node.dtype)))
        return None if part is None else primitive("conj", part)
    real = _real_product(pull(ir.const(1, node.dtype)), tangent)
    imag = None
    if node.dtype.is_complex:
        imag = _real_product(pull(ir.const(1j, node.dtype)), tangent)
    if real is None and imag is None:
        return None
    zero = ir.const(0, node.dtype.real)
    if not node.dtype.is_complex:
        return real
    return primitive("complex", real or zero, imag or zero)


def _real_product(slope: Node | None, tangent: Node) -> Node | None:
    """Re(conj(slope) tangent)."""
    if slope is None:
        return None
    if not slope.dtype.is_complex:
        return primitive("mul", slope, tangent)
    return primitive("real", primitive("mul", primitive("conj", slope), tangent))
