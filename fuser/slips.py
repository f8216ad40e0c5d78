"""What a person most likely meant where a formula does not parse.

In: the text, where the parser stopped, and the terminals it could have taken there.
Out: a `Slip` in a person's words: what is wrong, what was expected, and a hint. Most
are C++ statements, or Python, where one C++ expression must stand.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import NamedTuple


class Slip(NamedTuple):
    """Where the slip is (offsets into the formula) and what to say about it."""

    start: int
    end: int
    message: str
    expected: str | None = None
    hint: str | None = None


_LAMBDA = "`[](type name){return ...;}`"

# What stands where the parser stopped: (pattern, message, expected, hint). The first
# row that matches wins.
_FOUND: tuple[tuple[str, str, str | None, str | None], ...] = (
    (r"\*\*", "`**` is Python's power", "`pow(x, n)` or `x.pow(n)`", None),
    (r"//", "`//` does not stand in an expression", "`/`, or `/* */`", None),
    (r"(?:<<|>>|[-+*/%&|^])=", "`{}` assigns, a formula only computes", None, None),
    (r"=(?!=)", "`=` assigns, a formula only computes", None, "=="),
    (r"===+", "`{}` is not an operator", None, "=="),
    (r";", "`;` ends a statement, a formula is one expression", None, None),
    (r"and\b", "`and` is Python's", None, "&&"),
    (r"or\b", "`or` is Python's", None, "||"),
    (r"is\b|in\b", "`{}` is Python's", None, "=="),
    (r"if\b", "`if` is Python's conditional", "`test ? then : otherwise`", None),
    (r"@", "`@` is Python's matrix product", "`a.matmul(b)` or `a.mm(b)`", None),
    (r"'[^']*'?", "{} is not a string", 'a string in double quotes, "..."', None),
    (r'"[^"]*$', "the string does not end", 'a closing `"`', None),
    (r"/\*", "the comment does not end", "`*/`", None),
    (
        r"\[\s*[&=][^\]]*\]?",
        "a lambda cannot capture",
        _LAMBDA,
        None,
    ),
    (r"\.\.\.", "`...` does not stand in a formula", None, None),
)

# What stands before the place where the parser stopped.
_BEFORE: tuple[tuple[str, str, str | None, str | None], ...] = (
    (r"\bnot\s+$", "`not` is Python's", None, "!"),
    (r"\blambda\s+$", "`lambda` is Python's", _LAMBDA, None),
    (
        r"\b(?:auto|const|return|if|for|while|int|double|bool|Tensor)\s+$",
        "`{}` begins a statement, a formula is one expression",
        None,
        None,
    ),
    (r"\bnew\s+$", "`new` does not stand in a formula", None, None),
    (
        r"\(\s*(?:double|float|bool|long|int\w*)\s*\)\s*$",
        "`{}` is a cast, which formulas do not have",
        "`x.to(dtype)`",
        None,
    ),
)

_SEGMENTS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"NAME", "NUMBER", "STRING", "PREFIX"}), "a value"),
    (frozenset({"MEMBER"}), "the name of a method"),
    (frozenset({"OPERATOR"}), "an operator"),
    (frozenset({"COMMA"}), "`,`"),
    (frozenset({"COLON"}), "`:`"),
    (frozenset({"RPAR"}), "`)`"),
    (frozenset({"RSQB"}), "`]`"),
    (frozenset({"RBRACE"}), "`}`"),
    (frozenset({"SEMICOLON"}), "`;`"),
    (frozenset({"RETURN"}), "`return`"),
    (frozenset({"$END"}), "the end of the formula"),
)

_TOKEN = re.compile(r"\w+|::|->|[<>=!]=|&&|\|\||<<|>>|\S")
_CLOSES = {"RPAR": "(", "RSQB": "[", "RBRACE": "{"}
_CLOSING = {")": "(", "]": "[", "}": "{"}


def explain(text: str, at: int, allowed: Set[str]) -> Slip:
    """The slip at offset `at` of `text`, where one of `allowed` had to stand."""
    if not text.strip():
        return Slip(0, 0, "the formula is empty", "an expression")
    allowed = _possible(text[:at], allowed)
    rest = text[at:]
    if (named := re.search(r"[(,]\s*(\w+)\s*$", text[:at])) and re.match("=[^=]", rest):
        start, name = named.start(1), named[1]
        message = f"`{name}=`: formulas have no keyword arguments"
        return Slip(start, at + 1, message, f"`/*{name}=*/` before the value")
    for pattern, message, expected, hint in _FOUND:
        if found := re.match(pattern, rest):
            shown = found[0]
            return Slip(at, at + len(shown), message.format(shown), expected, hint)
    for pattern, message, expected, hint in _BEFORE:
        if found := re.search(pattern, text[:at]):
            shown = found[0].strip()
            start = found.start()
            return Slip(
                start, start + len(shown), message.format(shown), expected, hint
            )
    if allowed == {"LPAR"}:
        return _attribute(text, at)
    found = _TOKEN.match(rest)
    if found is None:
        return _unclosed(text, at, allowed)
    shown = found[0]
    end = at + len(shown)
    if shown in _CLOSING and _innermost(text[:at]) is None:
        return Slip(at, end, f"`{shown}` closes nothing", _words(allowed))
    if shown == ":" and "RSQB" in allowed and "?" not in text[:at]:
        return Slip(at, end, "slices are Python's", "`x.slice(...)` or `x.narrow(...)`")
    if shown == ":" and "OPERATOR" in allowed:
        return Slip(at, end, "`:` without its `?`", "`test ? then : otherwise`")
    return Slip(at, end, f"unexpected `{shown}`", _words(allowed))


def _possible(before: str, allowed: Set[str]) -> Set[str]:
    """`allowed` without what cannot follow `before`: lexers do not count brackets."""
    opened = _innermost(before)
    bracket = "" if opened is None else before[opened]
    never = {"LAMBDA", "SEMICOLON"} if "return" not in before else {"LAMBDA"}
    if "OPERATOR" in allowed:
        never |= {n for n, b in _CLOSES.items() if b != bracket}
        never |= {"COMMA"} if bracket in ("", "[") else set()
        never |= {"COLON"} if "?" not in before and bracket != "[" else set()
    return allowed - never


def _attribute(text: str, at: int) -> Slip:
    """`x.name` without the parentheses of a call."""
    found = re.search(r"\w+\s*$", text[:at])
    start, name = (found.start(), found[0].strip()) if found else (at, "")
    message = f"`{name}` is not called: formulas have methods, not attributes"
    return Slip(start, start + len(name), message, f"`{name}(...)`")


def _unclosed(text: str, at: int, allowed: Set[str]) -> Slip:
    """The text ended too early."""
    opened = _innermost(text)
    if opened is not None and "PREFIX" not in allowed:
        bracket = text[opened]
        message = f"`{bracket}` is never closed"
        return Slip(opened, opened + 1, message, _words(allowed - {"OPERATOR"}))
    last = max(at - 1, 0)
    return Slip(last, last + 1, "the formula ends too early", _words(allowed))


def _innermost(text: str) -> int | None:
    """Where the innermost bracket that `text` leaves open stands."""
    blanked = re.sub(
        r'"([^"\\]|\\.)*"|/\*.*?\*/', lambda m: " " * len(m[0]), text, flags=re.S
    )
    opened: list[int] = []
    for position, character in enumerate(blanked):
        if character in "([{":
            opened.append(position)
        elif character in _CLOSING and opened:
            opened.pop()
    return opened[-1] if opened else None


def _words(allowed: Set[str]) -> str | None:
    """The terminals `allowed`, in words."""
    said = [word for terminals, word in _SEGMENTS if terminals & allowed]
    if not said:
        return None
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}"
