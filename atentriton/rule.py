"""The formulas of one entry, over whole tensors.

Comes in: an entry, the arguments and results of a call by name, cotangents or tangents.
Goes out: the gradients of arguments, or the tangents of results, by the entry's
formulas. A result without a forward formula has the tangent that the gradients' own
formulas give: they are linear in the cotangents, and the transpose of that map takes
tangents to tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from atentriton.evaluate import LINEAR, ZERO, Evaluator
from atentriton.helpers.views import Duals
from atentriton.questions import reads
from fuser.errors import DerivativeNotImplemented, FormulaError
from fuser.formulas import Entry, GradientFormula
from fuser.syntax import (
    AutoElementWise,
    AutoLinear,
    NonDifferentiable,
    NotImplementedValue,
    called_functions,
    free_names,
)

Names = Mapping[str, Any]
Cotangents = Sequence[Tensor | None]
Outputs = Sequence[Tensor]
Operator = Callable[[Sequence[Any]], Any]


class Rule:
    """An entry's formulas, and what each reads."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.arguments = [a.name for a in entry.signature.arguments]
        self.results = entry.signature.result_names
        self.differentiable = frozenset(entry.differentiable)
        self.outputs = entry.differentiable_outputs
        self.first = self.outputs.index(True)
        self.gradients = {n: f for f in entry.gradients for n in f.names}
        self.forwards = {n: f for f in entry.forwards for n in f.names}
        expressions = [f.expr for f in entry.forwards if f.expr is not None]
        called = {c.name for expr in expressions for c in called_functions(expr)}
        # A tangent that is not there is only left out of what is linear in it.
        self.sparing = called <= LINEAR

    @cache  # noqa: B019 - rules live as long as the process
    def reads(self, wanted: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
        """Names whose elements, and names whose shapes, these gradients need."""
        elements: set[str] = set()
        shapes: set[str] = set()
        for name in wanted:
            formula = self.gradients[name]
            if formula.expr is not None:
                found = reads(formula.expr)
                elements |= found[0]
                shapes |= found[1]
        return frozenset(elements), frozenset(shapes - elements)

    # -- reverse mode --------------------------------------------------------------

    def pullback(
        self, names: Names, cotangents: Cotangents, wanted: Sequence[str]
    ) -> dict[str, Any]:
        """The gradients of the arguments `wanted`, None or no item where they are zero.

        `names` has what these gradients read of arguments and results. A list of
        tensors has a list of gradients. DerivativeNotImplemented where the file says
        so.
        """
        if all(c is None for c in cotangents):
            return {}
        found: dict[str, Any] = {}
        named = {**names, **self._cotangents(cotangents)}
        for formula in self.entry.gradients:
            asked = [n for n in formula.names if n in wanted]
            if asked and not isinstance(formula.body, NonDifferentiable):
                found |= self._gradients(formula, named, asked)
        return found

    def _cotangents(self, cotangents: Cotangents) -> dict[str, Any]:
        by_result = zip(self.results, cotangents, strict=True)
        return {
            **{f"grad_{name}": given for name, given in by_result},
            "grads": list(cotangents),
            "grad": cotangents[self.first],
            "retain_variables": True,
        }

    def _gradients(
        self, formula: GradientFormula, names: Names, asked: Sequence[str]
    ) -> dict[str, Any]:
        if isinstance(formula.body, NotImplementedValue):
            message = formula.body.message
            raise DerivativeNotImplemented(self.entry.name, asked[0], message)
        assert formula.expr is not None
        if names["grad"] is None and "grad" in free_names(formula.expr):
            return {}
        mask = [name in asked for name in formula.names]
        value = Evaluator({**names, "grad_input_mask": mask}).value(formula.expr)
        if len(formula.names) == 1:
            return {asked[0]: value}
        if not isinstance(value, tuple | list) or len(value) != len(mask):
            raise FormulaError(
                f"this does not give a gradient for each of {', '.join(formula.names)}",
                formula.span,
            )
        chosen = dict(zip(formula.names, value, strict=True))
        return {name: chosen[name] for name in asked}

    # -- forward mode --------------------------------------------------------------

    def tangents(self, primals: Names, given: Sequence[Any]) -> dict[str, Any]:
        """The tangents among what belongs to each argument, by name."""
        return {
            name: tangent
            for name, tangent in zip(self.arguments, given, strict=True)
            if name in self.differentiable
            and isinstance(primals[name], Tensor | list | tuple)
        }

    def pushforward(
        self, primals: Names, tangents: Names, outputs: Outputs, operator: Operator
    ) -> list[Tensor | None]:
        """The tangents of the results, None for those that have none.

        `primals` has each argument, `tangents` those of the tensors that have one: None
        where it is zero, a list for a list of tensors. `operator` is the entry's own,
        on arguments in order.
        """
        names = {**primals, **dict(zip(self.results, outputs, strict=True))}
        for name, tangent in tangents.items():
            primal = primals[name]
            if isinstance(primal, Tensor):
                names[f"{name}_p"] = primal
                names[f"{name}_t"] = self._tangent(primal, tangent)
            else:
                names[name] = Duals(primal, tangent)
        found: list[Tensor | None] = []
        for i, output in enumerate(outputs):
            value = None
            if self.outputs[i] and output is not None and _varies(output):
                value = self._push(i, primals, names, tangents, outputs, operator)
                value = _like(output, value)
            found.append(value)
        return found

    def _push(
        self,
        index: int,
        primals: Names,
        names: Names,
        tangents: Names,
        outputs: Outputs,
        operator: Operator,
    ) -> Any:
        formula = self.forwards.get(self.results[index])
        if formula is None:
            return self._transposed(index, names, tangents, outputs)
        if formula.expr is not None:
            value = Evaluator(names).value(formula.expr)
            if len(formula.names) == 1:
                return value
            return value[formula.names.index(self.results[index])]
        if isinstance(formula.body, AutoElementWise):
            return self._elementwise(index, names, tangents, outputs)
        assert isinstance(formula.body, AutoLinear)
        return self._applied(index, primals, names, operator)

    def _tangent(self, primal: Tensor, tangent: Tensor | None) -> Any:
        if tangent is None and self.sparing:
            return ZERO
        return filled(primal, tangent)

    def _applied(
        self, index: int, primals: Names, names: Names, operator: Operator
    ) -> Any:
        """A linear operator, on tangents where there are gradients."""
        values: list[Any] = []
        for name in self.arguments:
            value = primals[name]
            if name in self.differentiable and isinstance(value, Tensor):
                tangent = names[f"{name}_t"]
                value = torch.zeros_like(value) if tangent is ZERO else tangent
            values.append(value)
        found = operator(values)
        return found if isinstance(found, Tensor) else found[index]

    def _elementwise(
        self, index: int, names: Names, tangents: Names, outputs: Outputs
    ) -> Tensor | None:
        """The tangent where each element depends on one: J t is conj(conj(J) conj(t)),
        and the gradient of g is conj(J) g."""
        found = None
        for name, tangent in tangents.items():
            if tangent is not None:
                given = _alone(tangent.conj(), index, len(outputs))
                part = self.pullback(names, given, [name])[name].conj()
                found = part if found is None else found + part
        return found

    def _transposed(
        self, index: int, names: Names, tangents: Names, outputs: Outputs
    ) -> Tensor:
        """The tangent of a result, from the formulas of the gradients."""
        wanted = [n for n, t in tangents.items() if t is not None]
        with torch.enable_grad():
            cotangent = torch.zeros_like(outputs[index], requires_grad=True)
            given = _alone(cotangent, index, len(outputs))
            found = self.pullback(names, given, wanted)
            pairs = [
                (fitted(found[n], tangents[n].shape), tangents[n])
                for n in wanted
                if found.get(n) is not None and found[n].requires_grad
            ]
            gradients, weights = [g for g, _ in pairs], [t for _, t in pairs]
            (tangent,) = torch.autograd.grad(
                gradients, cotangent, weights, create_graph=True, allow_unused=True
            )
        return filled(outputs[index], tangent)


def _varies(output: Tensor) -> bool:
    """Whether the result can have a derivative at all, by its dtype."""
    return output.is_floating_point() or output.is_complex()


def _alone(cotangent: Tensor, index: int, count: int) -> list[Tensor | None]:
    """The cotangents of `count` results where only one has any."""
    return [cotangent if i == index else None for i in range(count)]


def filled(primal: Tensor, tangent: Tensor | None) -> Tensor:
    """The tangent or gradient of that tensor, zeros where it is None."""
    return torch.zeros_like(primal) if tangent is None else tangent


def fitted(gradient: Tensor, shape: torch.Size) -> Tensor:
    """The gradient in the shape of its argument, which was broadcast."""
    return gradient if gradient.shape == shape else gradient.sum_to_size(shape)


def _like(output: Tensor, value: Any) -> Tensor:
    if value is ZERO or value is None:
        return torch.zeros_like(output)
    return value if value.shape == output.shape else value.expand(output.shape)
