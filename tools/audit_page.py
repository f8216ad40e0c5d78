"""The page docs/audit.md, and its data.

Comes in: all findings. Goes out: the page: what was asked and how, tables, formulas.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.audit_findings import DERIVED, Finding, extent, number
from tools.audit_judging import ALLOWED, STEEP
from tools.audit_slopes import LEVELS
from tools.markdown import table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "audit.md"
DATA = ROOT / "tests" / "data" / "audit.yaml"

# What may be wrong with a number, the worst first.
KINDS = ("NaN", "infinite", "0", "wrong")

INTRODUCTION = """\
# Audit of PyTorch's formulas

Which formulas of PyTorch's derivatives.yaml are wrong, or lose what they compute? \
Written by `tools/audit.py` beside torch {torch}; `tests/test_audit_document.py` \
holds it, and `tests/data/audit.yaml` has it as data.

{asked} of the {total} entries that are pointwise in PyTorch's file were asked, at \
{points:,} points; derivatives of {wrong} of them are wrong somewhere.

- What PyTorch gives is PyTorch's own: `torch.ops.aten`, and autograd with a \
gradient of 1, on a CPU. Forward mode is asked where an entry has a formula of its \
own for it.
- What is right comes from mpmath: differences of the operator's value at {low} to \
{high:,} digits, of two widths and from both sides, which have to agree.
- Points are edges of float64 and float32, round numbers, and some hundred over the \
whole range; for other operands also int64 and uint8; complex128 for holomorphic \
operators. Left out are kinks, arguments and values that are below the normal \
numbers or not finite, points where the value itself is wrong, and derivatives that \
the dtype cannot hold.
- A derivative is wrong if it is NaN, infinite or 0 and should not be, or if it is \
further away than {allowed:,.0f} times the spacing of the dtype's numbers and what \
that spacing of the arguments does to it. Where this is more than a {steep:,.0f}th, \
the point does not count. Second derivatives are not asked.

PyTorch calls functions in C++, of which the file has but the names. `from` says \
where an error comes from: `text` if the formula gives it too when it is compiled \
here, with our formulas for those functions; `C++` if it gives the right number so, \
and the error is in a function that PyTorch calls or in a conversion that it makes \
(`toFloat`).

`wrong at` counts the points that were asked, far more of which lie at extreme \
magnitudes than in ordinary use; `at` is the plainest of those that are wrong.

Not asked, because there is nothing to find:

"""

# The columns of the tables.
HEAD = (
    "entry",
    "derivative",
    "at",
    "dtype",
    "PyTorch",
    "right",
    "error",
    "wrong at",
    "from",
)


@dataclass(frozen=True, slots=True)
class Document:
    """All that the page is made of."""

    torch: str
    asked: int
    left: dict[str, list[str]]
    points: int
    findings: list[Finding]


def page(found: Document) -> str:
    """The page: what was asked and how, the tables, the formulas."""
    findings = found.findings
    lost = sorted((f for f in findings if f.kind != "wrong"), key=_gravity)
    inexact = sorted((f for f in findings if f.kind == "wrong"), key=_gravity)
    lines = [
        *_introduction(found),
        "## NaN, infinite, or 0",
        "",
        "The derivative is finite, and not 0 where PyTorch gives 0. What happens to",
        "the most ordinary numbers comes first.",
        "",
        *table(HEAD, map(_cells, lost)),
        "",
        "## Inexact",
        "",
        "PyTorch gives another number; the largest relative errors come first.",
        "",
        *table(HEAD, map(_cells, inexact)),
        "",
        "## Formulas",
        "",
        "PyTorch's formula, and a better one. `open`: here it is not right either.",
        "",
        *_formula_lines(findings),
    ]
    return "\n".join(lines) + "\n"


def _introduction(found: Document) -> Iterator[str]:
    entries = {f.entry for f in found.findings}
    total = found.asked + sum(map(len, found.left.values()))
    paragraphs = INTRODUCTION.format(
        asked=found.asked,
        total=total,
        points=found.points,
        wrong=len(entries),
        torch=found.torch,
        allowed=ALLOWED,
        steep=1 / STEEP,
        low=LEVELS[0],
        high=LEVELS[-1],
    ).splitlines()
    for paragraph in paragraphs:
        yield from _wrapped(paragraph) or [""]
    for reason, names in found.left.items():
        listed = ", ".join(f"`{n}`" for n in names)
        yield from _wrapped(f"- {reason}: {listed}")
    yield ""


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        88,
        subsequent_indent="  " if text.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _gravity(finding: Finding) -> tuple[Any, ...]:
    """Worse ones first."""
    numbers = [number(finding.inputs[n]) for n in finding.dtypes]
    far = round(extent(numbers) / 3)
    size = min(finding.error, 1e300) if finding.kind == "wrong" else 1.0
    rank = (-round(math.log10(size)), far, KINDS.index(finding.kind))
    return *rank, finding.entry, finding.argument, finding.mode


def _cells(finding: Finding) -> tuple[str, ...]:
    """Of a table's line."""
    f = finding
    dtype = f.dtypes[f.argument]
    others = sorted({d for d in f.dtypes.values() if d not in (dtype, "bool")})
    return (
        f"`{f.entry}`",
        _derivative(f),
        ", ".join(f"{n} = {shown(v)}" for n, v in f.inputs.items() if v is not None),
        ", ".join([dtype, *others]),
        shown(f.torch),
        shown(f.right),
        shown_error(f.error) if f.kind == "wrong" else "",
        f"{f.wrong} of {f.points}",
        "text" if f.text else "C++",
    )


def _derivative(finding: Finding) -> str:
    mark = "tangent of" if finding.mode == "forward" else "by"
    return f"{mark} `{finding.argument}`"


def shown(value: Any) -> str:
    """A value in a table."""
    if isinstance(value, list):
        real, imaginary = value
        sign = "-" if math.copysign(1, imaginary) < 0 else "+"
        return f"{shown(real)} {sign} {shown(abs(imaginary))}i"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def shown_error(error: float) -> str:
    """An error in a table."""
    return "∞" if math.isinf(error) else f"{error:.1e}"


def _formula_lines(findings: Sequence[Finding]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for f in sorted(findings, key=lambda f: (f.entry, f.mode, f.argument)):
        groups.setdefault((f.entry, f.mode, f.formula), []).append(f)
    for (entry, mode, formula), group in groups.items():
        names = ", ".join(f"`{n}`" for n in dict.fromkeys(f.argument for f in group))
        key = f"forward, tangent of {names}" if mode == "forward" else names
        yield f"- `{entry}`, {key}"
        yield f"  - PyTorch: `{formula}`"
        for text in dict.fromkeys(_better(f) for f in group):
            yield f"  - {text}"


def _better(finding: Finding) -> str:
    text = finding.better
    if text:
        plain = text == DERIVED or text.startswith("the same, with ")
        return f"better: {text}" if plain else f"better: `{text}`"
    if re.search(r"\bresult\b", finding.formula):
        return "open: it knows the result, which has lost what is needed"
    return "open"


# -- the data --------------------------------------------------------------------------


def load(path: Path = DATA) -> Document:
    """What the tool found last."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    findings = [Finding(**f) for f in data.pop("findings")]
    return Document(**data, findings=findings)


def store(found: Document) -> None:
    """The page and its data, written."""
    data = asdict(found)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    head = "# What tools/audit.py found, and docs/audit.md shows.\n"
    DATA.write_text(head + text, encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")
