"""What becomes of each entry of derivatives.yaml? Writes docs/coverage.md.

    atentriton check --all --json > check.json
    python tools/coverage.py check.json

Classes are found by lowering and deriving each entry; dtypes and checks are those of
the file, which `atentriton check` writes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# The script runs from a checkout, installed or not.
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402

from atentriton.commands._formulas import (  # noqa: E402
    MEANING,
    OPERATORS,
    Item,
    counts,
    items,
)
from tools.markdown import table  # noqa: E402

PAGE = ROOT / "docs" / "coverage.md"
DEVIATIONS = ROOT / "tests" / "data" / "deviations.yaml"
CHECKS = ("value", "first", "second", "jvp", "gradcheck")
SHORT = {
    "float64": "f64",
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "complex128": "c128",
    "complex64": "c64",
    "bool": "bool",
}
HEAD = ("entry", "class", "backward", "second", "forward", "dtypes", "checks", "notes")


def page(found: Sequence[Item], reports: Mapping[str, Mapping[str, Any]]) -> str:
    """The page: counts, a row an entry, and the reasons that the notes refer to."""
    changed = deviations()
    notes = Notes()
    rows = [
        row(item, reports.get(item.verdict.name, {}), changed, notes) for item in found
    ]
    versions = sorted({r["torch"] for r in reports.values()})
    return "\n".join(
        [
            *_introduction(found, ", ".join(versions)),
            *table(HEAD, rows),
            "",
            "## Notes",
            "",
            *(f"{number}. {text}" for text, number in notes.numbers.items()),
            "",
        ]
    )


def _introduction(found: Sequence[Item], versions: str) -> Iterator[str]:
    yield "# Coverage"
    yield ""
    yield (
        f"The {len(found)} operators that derivatives.yaml was begun for. Written by "
        "`tools/coverage.py`"
    )
    yield (
        f"from what `atentriton check --all` found beside PyTorch {versions}; "
        "`atentriton coverage`"
    )
    yield "has the classes of the other entries as well."
    yield ""
    rows = [(f"`{k}`", str(n), MEANING[k]) for k, n in counts(found).items()]
    yield from table(("class", "entries", "what runs"), rows)
    yield ""
    yield (
        "`fused` operators run as Triton kernels on GPUs and as C kernels on CPUs; all "
        "others on"
    )
    yield (
        "whatever PyTorch's operator runs on. Checks: the value (v), first (1) and "
        "second (2)"
    )
    yield (
        "derivatives and tangents (t) beside PyTorch's, and gradcheck, gradgradcheck "
        "and"
    )
    yield "forward-mode gradcheck (g); a letter is there if nothing differed."
    yield ""


def row(
    item: Item,
    report: Mapping[str, Any],
    changed: Mapping[str, Sequence[str]],
    notes: Notes,
) -> tuple[str, ...]:
    verdict = item.verdict
    reasons = [*changed.get(verdict.name, ())]
    if verdict.kind not in ("fused", "matrix", "composite"):
        reasons.append(verdict.reason)
    skipped = report.get("skipped", {})
    reasons += [
        _sentence(text)
        for kind in CHECKS[1:]
        if (text := skipped.get(kind, "")).startswith("torch: ")
        or " torch's own fails so too" in text
    ]
    ways = (verdict.backward, verdict.second, verdict.jvp)
    return (
        f"`{verdict.name}`",
        verdict.kind,
        *(way.partition(":")[0] for way in ways),
        dtypes(report),
        marks(report),
        " ".join(str(notes.number(r)) for r in dict.fromkeys(reasons)),
    )


def _sentence(text: str) -> str:
    """The first one, without the numbers that a check of torch's has printed."""
    for end in (". ", ", numerical:", " Please file"):
        text = text.partition(end)[0]
    return text.replace("|", "\\|")


class Notes:
    """Sentences, each numbered once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers) + 1)


def dtypes(report: Mapping[str, Any]) -> str:
    """The dtypes, all integers as one word."""
    known: list[str] = report.get("dtypes", [])
    found = [short for name, short in SHORT.items() if name in known]
    if any("int" in name for name in known):
        found.append("int")
    return " ".join(found)


def marks(report: Mapping[str, Any]) -> str:
    """A letter for each kind of check that was made and found nothing."""
    failed = {f["kind"] for f in report.get("failures", ())}
    made = report.get("measures", {})
    letters = dict(zip(CHECKS, "v12tg", strict=True))
    return "".join(
        letter
        for kind, letter in letters.items()
        if kind in made and kind not in failed
    )


def deviations() -> dict[str, list[str]]:
    """Why formulas differ from those that the file started with, by entry."""
    found: dict[str, list[str]] = {}
    for item in yaml.safe_load(DEVIATIONS.read_text(encoding="utf-8")):
        found.setdefault(item["entry"], []).append(
            f"`{item['key']}` differs from PyTorch's old formula: {item['reason']}"
        )
    return found


def entries() -> list[Item]:
    return [item for item in items() if item.part == OPERATORS]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("check", type=Path, help="what `check --all --json` printed")
    args = parser.parse_args()
    try:
        operators = json.loads(args.check.read_text(encoding="utf-8"))["ops"]
    except (OSError, ValueError, KeyError) as error:
        parser.error(f'"{args.check}" is not what `check --all --json` prints: {error}')
    reports = {report["name"]: report for report in operators}
    PAGE.write_text(page(entries(), reports), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
