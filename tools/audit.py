"""Which of PyTorch's derivative formulas are wrong or unstable? Writes docs/audit.md.

    python tools/audit.py [--jobs N] [OPERATOR ...]

The entries of the installed PyTorch's derivatives.yaml that are pointwise are asked:
PyTorch's own derivative, by each argument, at edges and at a few hundred points over
the domain, against the derivative in mpmath of what the operator computes. The page,
and its data in tests/data/audit.yaml, are written where all are asked. It takes a
quarter of an hour.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

# The script runs from a checkout, installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from atentriton.commands._formulas import items, torch_file
from atentriton.workers import spread
from fuser.errors import nearest
from tools.audit_findings import Result, audit
from tools.audit_page import Document, page, store
from tools.audit_values import VALUES

REASONS = {
    "constant": "the result does not depend on the argument, or is written over it",
    "copies": "copies, conjugates and parts of complex numbers",
    "quantization": "a derivative by convention",
    "steps": "steps",
}
_CONSTANT = "eq_ ne_ lt_ le_ gt_ ge_ fill fill_ zero_"
_COPIES = "clone complex _conj_physical conj_physical_"


def _reason(name: str) -> str:
    base = name.partition(".")[0]
    if base in _CONSTANT.split():
        return REASONS["constant"]
    if base in _COPIES.split():
        return REASONS["copies"]
    return REASONS["quantization" if "quantize" in base else "steps"]


def pointwise() -> list[str]:
    """The entries of PyTorch's file that are fused."""
    return [
        item.entry.name for item in items(torch_file()) if item.verdict.kind == "fused"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="OPERATOR")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    names = pointwise()
    known = [n for n in names if n in VALUES]
    for name in given.names:
        if name not in known:
            guess = nearest(name, known)
            hint = f'; did you mean "{guess}"?' if guess else ""
            parser.error(f'"{name}" is no entry that is asked{hint}')
    asked = given.names or known
    results: list[Result] = []
    for result in spread(audit, asked, given.jobs):
        results.append(result)
        print(f"{result.entry}: {result.points} points", file=sys.stderr)
        for text in result.mistakes:
            print(f"  ours: {text}", file=sys.stderr)
    left: dict[str, list[str]] = {}
    for name in names:
        if name not in VALUES:
            left.setdefault(_reason(name), []).append(name)
    found = Document(
        torch.__version__.partition("+")[0],
        len(asked),
        left,
        sum(r.points for r in results),
        [f for r in results for f in r.findings],
    )
    if given.names:
        print(page(found))
    else:
        store(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
