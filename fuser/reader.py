"""One item of a file of formulas in, an Entry or a FunctionEntry out.

Every mistake goes to the list that the reader is given, and reading goes on behind it,
so that a file is reported as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from fuser.errors import Diagnostic, FormulaSyntaxError, Span, nearest
from fuser.formulas import (
    Condition,
    Entry,
    Formula,
    FormulaSet,
    ForwardFormula,
    GradientFormula,
)
from fuser.grammar import parse_formula
from fuser.signatures import Signature, parse_signature
from fuser.syntax import (
    AutoElementWise,
    AutoLinear,
    Call,
    Expr,
    Literal,
    Name,
    NonDifferentiable,
    NotImplementedValue,
    Special,
)
from fuser.validate import check_expression, check_set, is_result
from fuser.yamlsource import Item, Mapping, Node, Scalar, Sequence


class ItemReader:
    """Reads one item of a file; what is wrong goes to `errors`."""

    def __init__(
        self,
        item: Item,
        functions: Collection[str] | None,
        errors: list[Diagnostic],
    ) -> None:
        self.item = item
        self.functions = functions
        self.errors = errors
        self.complete = item.complete
        self.span = item.source.span(item.start, item.start + 1)
        self.keys = self._keys(item.node)

    def error(
        self,
        span: Span,
        message: str,
        expected: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.complete = False
        self.errors.append(Diagnostic(span, message, expected, hint))

    def _keys(self, node: Node) -> dict[str, tuple[Scalar, Node]]:
        """The keys of a mapping; a repeated one is an error and is left out."""
        if not isinstance(node, Mapping):
            self.error(node.whole, "not an entry", "`name: signature` and formulas")
            return {}
        keys: dict[str, tuple[Scalar, Node]] = {}
        for key, value in node.pairs:
            if key.value in keys:
                line = keys[key.value][0].whole.line
                message = f'the key "{key.value}" is repeated; first at line {line}'
                self.error(key.whole, message)
            else:
                keys[key.value] = key, value
        return keys

    def signature(self) -> Signature | None:
        pair = self.keys.pop("name", None)
        if pair is None:
            if self.item.complete and isinstance(self.item.node, Mapping):
                message = "the entry has no name"
                self.error(self.span, message, "`name: operator(...) -> ...`")
            return None
        text = self._text(*pair)
        if text is None:
            return None
        try:
            return parse_signature(text.value, text)
        except FormulaSyntaxError as error:
            self.errors.append(error.diagnostic)
            return None

    def _names(
        self, key: Scalar, taken: dict[str, Span]
    ) -> tuple[tuple[str, ...], tuple[Span, ...]]:
        """The names of a key `a, b`, and where each stands."""
        names: list[str] = []
        spans: list[Span] = []
        at = 0
        for piece in key.value.split(","):
            name = piece.strip()
            start = at + piece.index(name)
            at += len(piece) + 1
            if not name:
                self.error(key.whole, "the key lacks a name", "`name` or `name, name`")
                continue
            span = key.span(start, start + len(name))
            if name in taken:
                message = f'"{name}" has a formula already, at line {taken[name].line}'
                self.error(span, message)
                continue
            taken[name] = span
            names.append(name)
            spans.append(span)
        return tuple(names), tuple(spans)

    def _text(self, key: Scalar, value: Node) -> Scalar | None:
        """The value as text, or None after an error."""
        quoted = 'quotes around the formula: "..."'
        if not isinstance(value, Scalar):
            what = "list" if isinstance(value, Sequence) else "mapping"
            self.error(value.whole, f"a YAML {what} in place of a formula", quoted)
            return None
        if value.tag:
            message = f"`{value.tag}` is a mark of YAML, not part of the formula"
            self.error(value.whole, message, quoted)
            return None
        if not value.value.strip():
            self.error(key.whole, f'"{key.value}" has no value', "a formula")
            return None
        return value

    def _parse(self, text: Scalar) -> Expr | None:
        try:
            return parse_formula(text.value, text)
        except FormulaSyntaxError as error:
            self.complete = False
            self.errors.append(error.diagnostic)
            return None


class EntryReader(ItemReader):
    """Reads an entry of derivatives.yaml."""

    def entry(self) -> Entry | None:
        signature = self.signature()
        given = self.keys.pop("output_differentiability", None)
        dispatch = self.keys.pop("dispatch", None)
        flags = self._output_differentiability(signature, given)
        sets: dict[str, FormulaSet] = {}
        if dispatch is None:
            formulas = self._formulas(signature, self.keys, flags)
        else:
            for key, _ in self.keys.values():
                message = f'the key "{key.value}" stands beside `dispatch`'
                self.error(key.whole, message, "it below a dispatch key")
            sets = self._dispatch(signature, dispatch[1], flags)
            formulas = sets.get("Default", FormulaSet())
        if signature is None:
            return None
        return Entry(
            signature,
            formulas.gradients,
            formulas.forwards,
            flags,
            sets,
            signature.span,
            self.item.comment,
        )

    def _dispatch(
        self,
        signature: Signature | None,
        node: Node,
        flags: tuple[bool, ...] | Condition | None,
    ) -> dict[str, FormulaSet]:
        sets: dict[str, FormulaSet] = {}
        for name, (key, value) in self._keys(node).items():
            if not re.fullmatch(r"Default|Autograd\w*", name):
                message = f'unknown dispatch key "{name}"'
                self.error(key.whole, message, "Default, AutogradCUDA, ...")
            sets[name] = self._formulas(signature, self._keys(value), flags)
        return sets

    def _output_differentiability(
        self, signature: Signature | None, given: tuple[Scalar, Node] | None
    ) -> tuple[bool, ...] | Condition | None:
        if given is None:
            return None
        key, node = given
        expected = "a list such as [True, False], one for each return"
        if not isinstance(node, Sequence):
            self.error(node.whole, f"`{key.value}` is not a list", expected)
            return None
        count = len(signature.returns) if signature else len(node.items)
        if not 0 < len(node.items) <= count:
            returns = "1 return" if count == 1 else f"{count} returns"
            message = f"{len(node.items)} flags for {returns}"
            self.error(node.whole, message, expected)
        flags: list[bool] = []
        for item in node.items:
            if isinstance(item, Scalar) and item.value.lower() in ("true", "false"):
                flags.append(item.value.lower() == "true")
            elif isinstance(item, Scalar) and len(node.items) == 1 and item.style:
                return self._condition(signature, item)
            else:
                self.error(item.whole, "not a flag", "True or False")
        return tuple(flags) if len(flags) == len(node.items) else None

    def _condition(self, signature: Signature | None, text: Scalar) -> Condition | None:
        body = self._parse(text)
        if body is None:
            return None
        if signature is not None:
            check_expression(
                body, signature.by_name, self.functions, self.errors.append
            )
        return Condition(text.value, body, text.whole)

    def _formulas(
        self,
        signature: Signature | None,
        keys: dict[str, tuple[Scalar, Node]],
        flags: tuple[bool, ...] | Condition | None,
    ) -> FormulaSet:
        gradients: list[GradientFormula] = []
        forwards: list[ForwardFormula] = []
        differentiable: list[str] = []
        taken: dict[str, Span] = {}
        for key, value in keys.values():
            names, spans = self._names(key, taken)
            if not self._known(signature, names, spans) and isinstance(value, Sequence):
                continue  # Most likely a misspelled `output_differentiability`.
            text = self._text(key, value)
            body = None if text is None else self._body(text)
            flat = isinstance(body, NonDifferentiable)
            kind = self._kind(signature, names, spans, flat)
            if kind is GradientFormula and not flat:
                differentiable += names
            if body is None or text is None:
                continue
            formula = names, text.value, body, text.whole, spans
            if kind is GradientFormula:
                gradients.append(GradientFormula(*formula))
            elif kind is ForwardFormula:
                forwards.append(ForwardFormula(*formula))
        formulas = FormulaSet(tuple(gradients), tuple(forwards))
        if signature is not None:
            returns = (True,) * len(signature.returns)
            check_set(
                signature,
                formulas,
                differentiable,
                flags if isinstance(flags, tuple) else returns,
                self.functions,
                self.errors.append,
                self.complete,
            )
        return formulas

    def _known(
        self,
        signature: Signature | None,
        names: tuple[str, ...],
        spans: tuple[Span, ...],
    ) -> bool:
        """Whether the names of a key are all arguments or returns."""
        if signature is None:
            return True
        known = [*signature.by_name, *signature.result_names]
        extra = ["name", "output_differentiability", "dispatch"]
        before = len(self.errors)
        for name, span in zip(names, spans, strict=True):
            if name not in signature.by_name and not is_result(signature, name):
                message = f'"{name}" is neither an argument nor a return'
                expected = f"one of {', '.join(known)}"
                self.error(span, message, expected, nearest(name, known + extra))
        return len(self.errors) == before

    def _kind(
        self,
        signature: Signature | None,
        names: tuple[str, ...],
        spans: tuple[Span, ...],
        flat: bool,
    ) -> type[Formula] | None:
        """Whether the names are all arguments or all returns; None after an error.

        `flat`: the value is non_differentiable, which any argument may be.
        """
        if signature is None or not names:
            return None
        first = GradientFormula if names[0] in signature.by_name else ForwardFormula
        for name, span in zip(names, spans, strict=True):
            argument = signature.by_name.get(name)
            if argument is None and not is_result(signature, name):
                return None
            if (first is GradientFormula) != (argument is not None):
                message = "a key names arguments or returns, not both"
                self.error(span, message)
                return None
            if argument is not None and not argument.is_tensor and not flat:
                message = f'"{name}" is no Tensor ({argument.type}): it has no gradient'
                self.error(span, message)
                return None
        return first

    def _body(self, text: Scalar) -> Expr | Special | None:
        body = self._parse(text)
        if isinstance(body, Name) and not body.namespace:
            match body.id:
                case "auto_element_wise":
                    return AutoElementWise(body.span)
                case "auto_linear":
                    return AutoLinear(body.span)
                case "non_differentiable":
                    return NonDifferentiable(body.span)
                case _:
                    return body
        if isinstance(body, Call) and body.function.startswith("not_implemented"):
            message = body.args[0] if body.args else None
            if isinstance(message, Literal) and isinstance(message.value, str):
                return NotImplementedValue(message.value, text.value.strip(), body.span)
            expected = '`not_implemented("why")`'
            self.error(body.span, "`not_implemented` without its message", expected)
            return None
        return body
