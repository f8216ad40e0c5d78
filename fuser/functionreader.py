"""One item of definitions.yaml or helpers.yaml in, a FunctionEntry out.

As in reader.py, every mistake goes to the list that the reader is given.
"""

from __future__ import annotations

import re
from typing import cast

from fuser.errors import Span, nearest
from fuser.formulas import (
    PROMOTION_KINDS,
    Formula,
    FunctionEntry,
    Promotion,
    PromotionKind,
)
from fuser.reader import ItemReader
from fuser.signatures import Signature
from fuser.validate import check_expression
from fuser.yamlsource import Node, Scalar


class FunctionReader(ItemReader):
    """Reads a function: each key is a return, its formula the value."""

    def function(self, signature: Signature | None) -> FunctionEntry | None:
        """The item as a function; `signature` is what `self.signature()` gave."""
        promotes = self._promotes(signature, self.keys.pop("promotes", None))
        results: dict[str, Formula] = {}
        taken: dict[str, Span] = {}
        for key, value in self.keys.values():
            text = self._text(key, value)
            body = None if text is None else self._parse(text)
            names, spans = self._names(key, taken)
            self._check_returns(signature, names, spans)
            if body is None or text is None:
                continue
            if signature is not None:
                report = self.errors.append
                check_expression(body, signature.by_name, self.functions, report)
            formula = Formula(names, text.value, body, text.whole, spans)
            results.update(dict.fromkeys(names, formula))
        if signature is None:
            return None
        for name in signature.result_names:
            if self.complete and name not in results:
                message = f'no formula for the return "{name}"'
                self.error(signature.name_span, message, f"the key `{name}`")
        return FunctionEntry(
            signature, promotes, results, signature.span, self.item.comment
        )

    def _check_returns(
        self,
        signature: Signature | None,
        names: tuple[str, ...],
        spans: tuple[Span, ...],
    ) -> None:
        if signature is None:
            return
        known = signature.result_names
        for name, span in zip(names, spans, strict=True):
            if name not in known:
                hint = nearest(name, [*known, "name", "promotes"])
                expected = f"one of {', '.join(known)}"
                self.error(span, f'"{name}" is not a return', expected, hint)

    def _promotes(
        self, signature: Signature | None, given: tuple[Scalar, Node] | None
    ) -> Promotion | None:
        text = self._text(*given) if given else None
        if text is None:
            return None
        found = _PROMOTION.fullmatch(text.value)
        if found is None:
            message = f"`{text.value}` is not a promotion"
            expected = "`default`, `default(self, other)` or `default -> self`"
            self.error(text.whole, message, expected)
            return None
        if found[1] not in PROMOTION_KINDS:
            message = f'unknown kind of promotion "{found[1]}"'
            expected = f"one of {', '.join(PROMOTION_KINDS)}"
            hint = nearest(found[1], PROMOTION_KINDS)
            self.error(text.span(*found.span(1)), message, expected, hint)
            return None
        kind = PROMOTION_KINDS[PROMOTION_KINDS.index(cast("PromotionKind", found[1]))]
        over, into = (_words(found, group) for group in (2, 3))
        for name, begin, end in (*over, *into):
            if signature is not None and name not in signature.by_name:
                message = f'"{name}" is not an argument'
                expected = f"one of {', '.join(signature.by_name)}"
                hint = nearest(name, signature.by_name)
                self.error(text.span(begin, end), message, expected, hint)
        return Promotion(
            kind,
            None if found[2] is None else tuple(name for name, _, _ in over),
            found[3],
        )


_PROMOTION = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*(?:->\s*(\w+)\s*)?")


def _words(found: re.Match[str], group: int) -> list[tuple[str, int, int]]:
    """The words of a group, if it is there, each with where it begins and ends."""
    begin, end = found.span(group)
    if begin < 0:
        return []
    words = re.compile(r"\w+").finditer(found.string, begin, end)
    return [(word[0], *word.span()) for word in words]
