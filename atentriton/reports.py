"""What comes of checking an operator.

Comes in: differences, failures, reasons. Goes out: a `Report`, to be shown or as JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import torch

from atentriton.comparing import Difference

Kind = Literal[
    "value", "first", "second", "jvp", "vmap", "layouts", "edges", "gradcheck"
]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(slots=True)
class Measure:
    """The largest errors of one kind of check, over `cases` comparisons.

    `relative` is relative to the size of what is compared, in float64 and complex128;
    `eps` is the same over all dtypes, in units of their eps; `absolute` is the error
    itself. Where `exact` is false finite differences vouch for it, and give no errors.
    """

    cases: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    eps: float = 0.0
    exact: bool = True

    def add(self, found: Difference) -> None:
        self.cases += 1
        self.absolute = max(self.absolute, found.absolute)
        self.eps = max(self.eps, found.relative / found.eps)
        if found.eps <= torch.finfo(torch.float64).eps:
            self.relative = max(self.relative, found.relative)


@dataclass(frozen=True, slots=True)
class Failure:
    """A check that did not pass: which, on what arguments, and what went wrong."""

    kind: Kind
    case: str
    message: str


@dataclass(slots=True)
class Report:
    """What came of the checks of one operator.

    `runs` says what `atentriton.ops` runs: "kernels" of ours, "formulas" (of the
    derivatives of torch's operator), "torch" (its own in all), or "nothing". `skipped`
    has the reason for each kind that was not checked, `note` what has to be said of
    the errors. `dtypes` are those that values were compared in, `torch` is the version
    that was compared with. `passed` counts comparisons that held, `opinfo` the calls
    that were PyTorch's own samples, and `excepted` has, by reason, the differences that
    are no failures.
    """

    name: str
    runs: Literal["kernels", "formulas", "torch", "nothing"]
    reason: str = ""
    measures: dict[Kind, Measure] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    torch: str = str(torch.__version__)
    passed: int = 0
    opinfo: int = 0
    excepted: dict[str, int] = field(default_factory=dict)
    skipped: dict[Kind, str] = field(default_factory=dict)
    note: str = ""

    @property
    def compared(self) -> bool:
        """Whether there is something of ours to compare with torch's."""
        return self.runs in ("kernels", "formulas")

    @property
    def ok(self) -> bool:
        return not self.failures

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "runs": self.runs,
            "reason": self.reason,
            "ok": self.ok,
            "torch": self.torch,
            "dtypes": list(self.dtypes),
            "passed": self.passed,
            "failed": len(self.failures),
            "measures": {kind: asdict(m) for kind, m in self.measures.items()},
            "failures": [asdict(f) for f in self.failures],
            "skipped": dict(self.skipped),
            "opinfo": self.opinfo,
            "excepted": dict(self.excepted),
            "note": self.note,
        }
