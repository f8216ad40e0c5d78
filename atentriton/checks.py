"""The checks of an operator: what it gives for each case, beside PyTorch.

Comes in: an operator of ours and PyTorch's. Goes out: a `Report`, filled as checks are
run. The reference is torch's operator under torch's own autograd, in float64 where the
dtype under test is a narrower one; what that dtype costs torch's own operator is
allowed to ours, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from atentriton import (
    edges,
    exceptions,
    operators,
    opinfos,
    samples,
    trials,
)
from atentriton.cases import REFUSALS, Case, Cases
from atentriton.comparing import ALLOWED, LEAST, compare, mismatch
from atentriton.numerical import batched, mistakes
from atentriton.programs import compiler
from atentriton.reports import KINDS, Failure, Kind, Measure, Report
from atentriton.samples import ARRANGEMENTS
from atentriton.specs import FROM_TORCH, TO_TORCH
from fuser.formulas import Entry
from fuser.lower import NotPointwise

DOUBLE = (torch.float64, torch.complex128)
DERIVED = (torch.float64, torch.complex128, torch.float32, torch.bfloat16)
ALL = tuple(TO_TORCH.values())


_DERIVE: dict[Kind, Any] = {
    "first": trials.first,
    "second": trials.second,
    "jvp": trials.tangents,
}


class Check:
    # Which derivatives are compared.
    kinds: tuple[Kind, ...] = tuple(_DERIVE)

    def __init__(
        self, report: Report, ours: Any, theirs: Any, entry: Entry | None
    ) -> None:
        self.report, self.entry = report, entry
        self.signature = (entry or compiler().operator(report.name)).signature
        self.inplace = self.signature.inplace or isinstance(ours, operators.InPlace)
        note = "torch's value, our derivatives" if report.runs == "formulas" else ""
        known = exceptions.inaccuracy(report.name)
        self.inaccuracy, report.note = known or (0.0, note)
        self.operator = theirs
        self.ours = self.caller(ours)
        self.theirs = self.caller(theirs)
        self.cases = Cases(self.signature, self.theirs)
        self.dtypes = ALL
        if self.signature.base.endswith("_backward"):
            # Given integers, one of torch's divides by 0 and ends the process.
            self.dtypes = tuple(d for d in ALL if d.is_floating_point or d.is_complex)

    def caller(self, operator: Any) -> Callable[[Sequence[Any]], tuple[Tensor, ...]]:
        """The operator on a value for each argument; its results as a tuple."""
        arguments = self.signature.arguments
        plain = [i for i, a in enumerate(arguments) if not a.kwarg_only]
        named = [(i, a.name) for i, a in enumerate(arguments) if a.kwarg_only]

        def call(values: Sequence[Any]) -> tuple[Tensor, ...]:
            args = [values[i] for i in plain]
            if self.inplace:
                args[0] = args[0].clone()
            found = operator(*args, **{name: values[i] for i, name in named})
            return (found,) if isinstance(found, Tensor) else tuple(found)

        return call

    def run(self, quick: bool) -> None:
        for case in self.cases.of(DOUBLE if quick else self.dtypes):
            wide = self.value(case)
            if wide is not None and case.dtype in DERIVED:
                self.derivatives(case)
        if quick:
            return
        for case in self.cases.mixed():
            if case.dtype in self.dtypes:
                self.value(case)
        self.samples_of_torch()
        self.at_edges()
        self.gradchecks()
        for case in self.cases.of((torch.float64,)):
            self.vmap(case)
        dtype = torch.float32
        if not self.cases.takes(dtype) and torch.int64 in self.dtypes:
            dtype = torch.int64
        for arrangement in ARRANGEMENTS:
            for case in self.cases.of((dtype,), arrangement, first=True):
                self.layout(case)
        for kind in KINDS:
            if kind not in self.report.measures and kind not in self.report.skipped:
                self.report.skipped[kind] = "torch's operator does not have it"

    # -- the checks ----------------------------------------------------------------

    def value(self, case: Case) -> tuple[Tensor, ...] | None:
        """Compare values, dtypes and strides; None where torch cannot do this."""
        try:
            plain = self.theirs(case.values)
        except REFUSALS:
            return None
        if any(p.dtype not in FROM_TORCH for p in plain):  # such as complex32
            return None
        wide = self.wide(case, plain)
        self.compare("value", case, plain, wide, lambda: self.ours(case.values))
        if (name := name_of(case.dtype)) not in self.report.dtypes:
            self.report.dtypes.append(name)
        return wide

    def wide(self, case: Case, plain: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """torch's results, from arguments in float64 where this says more."""
        if not any(p.is_floating_point() or p.is_complex() for p in plain):
            return plain
        try:
            wide = self.theirs(case.widened())
        except REFUSALS:
            return plain
        exact = [p.is_floating_point() or p.is_complex() for p in plain]
        return tuple(w if e else p for w, e, p in zip(wide, exact, plain, strict=True))

    def derivatives(self, case: Case) -> None:
        """Compare gradients, their gradients, and tangents."""
        if not case.leaves:
            return
        for kind in self.kinds:
            derive = _DERIVE[kind]
            try:
                found = self.references(kind, case, derive)
            except REFUSALS as error:
                self.refused(kind, case, error)
                continue
            if found is None:
                self.skip(kind, "nothing in it has a gradient")
                continue
            plain, wide = found
            self.compare(
                kind, case, plain, wide, self.deriving(derive, case), memory=False
            )

    def deriving(self, derive: Any, case: Case) -> Callable[[], Sequence[Tensor]]:
        return lambda: derive(self.ours, case.values, case.leaves) or ()

    def references(
        self, kind: Kind, case: Case, derive: Any
    ) -> tuple[list[Tensor], list[Tensor]] | None:
        """torch's derivatives in the case's dtype and in a wide one, if any."""
        ways = [derive, trials.tangents_by_backward] if kind == "jvp" else [derive]
        for way in ways:
            try:
                plain = way(self.theirs, case.values, case.leaves)
                if plain is None or case.dtype in DOUBLE:
                    return plain and (plain, plain)
                wide = way(self.theirs, case.widened(), case.leaves)
                return plain, wide or plain
            except REFUSALS:
                if way is ways[-1]:
                    raise
        return None

    def samples_of_torch(self) -> None:
        """Values and derivatives on the samples of torch's OpInfo database."""
        for dtype, values in opinfos.calls(self.signature, self.operator, self.dtypes):
            case = self.cases.case(values, dtype, f"OpInfo {name_of(dtype)}")
            if self.value(case) is not None:
                self.report.opinfo += 1
                if dtype in DERIVED:
                    self.derivatives(case)

    def at_edges(self) -> None:
        """Values at the edges of float32 and float64, each element by itself."""
        for case in self.cases.of((torch.float32, torch.float64)):
            values = edges.arguments(self.signature, case.values, case.dtype)
            if values is None:
                continue
            case = self.cases.case(values, case.dtype, f"edges {name_of(case.dtype)}")
            try:
                plain = self.theirs(case.values)
            except REFUSALS:
                continue
            wide = self.wide(case, plain)
            try:
                found = self.ours(case.values)
            except Exception as error:
                self.fail("edges", case, f"{type(error).__name__}: {error}")
                continue
            self.report.measures.setdefault("edges", Measure(exact=False)).cases += 1
            for got, theirs, want in zip(found, plain, wide, strict=True):
                bad = edges.wrong(got, (theirs, want), self.inaccuracy)
                given = ((at, _at(case.values, at)) for at in bad)
                self.elements(
                    case,
                    [
                        f"got {got[at].item()}, torch has {theirs[at].item()}, at {v}"
                        for at, v in given
                    ],
                )

    def elements(self, case: Case, wrong: list[str]) -> None:
        """One failure for elements that are wrong, but for those that are excepted."""
        left: list[str] = []
        for message in wrong:
            reason = exceptions.reason(self.report.name, "edges", case.text, message)
            if reason is None:
                left.append(message)
            else:
                self.excepted(reason)
        if left:
            self.fail("edges", case, f"{left[0]}; {len(left)} such elements")
        else:
            self.report.passed += 1

    def gradchecks(self) -> None:
        """torch's own checks of derivatives, on few elements."""
        small = samples.Arrangement("small", ((2, 3),))
        for case in self.cases.of(DOUBLE, small):
            self.gradcheck(case)

    def gradcheck(self, case: Case) -> None:
        try:
            self.theirs(case.values)
        except REFUSALS:  # such as complex numbers
            return
        for part, message in batched(self.ours, case.values, case.leaves):
            measure = Measure(exact=False)
            if message is not None:
                theirs = dict(batched(self.theirs, case.values, case.leaves))
                if theirs.get(part, "torch has none") is not None:
                    why = f"{part}: torch's own fails so too: {theirs.get(part)}"
                    self.skip("gradcheck", why)
                    self.excepted("gradcheck fails for torch's operator as well")
                    continue
                self.fail("gradcheck", case, f"{part}: {message}")
            else:
                self.report.passed += 1
            self.report.measures.setdefault("gradcheck", measure).cases += 1

    def differences(self) -> None:
        """Derivatives against differences, where there is no operator of torch's."""
        self.report.note = "not in torch: derivatives against finite differences"
        for setting in samples.settings(self.signature):
            values = samples.arguments(self.signature, torch.float64, setting)
            case = self.cases.case(values, torch.float64, "float64")
            for kind, message in mistakes(self.ours, values, case.leaves):
                measure = Measure(exact=False)
                self.report.measures.setdefault(kind, measure).cases += 1
                if message is None:
                    self.report.passed += 1
                else:
                    self.fail(kind, case, message)

    def vmap(self, case: Case) -> None:
        """Compare a mapped call with one call for each element, stacked."""
        places = [i for i, v in enumerate(case.values) if isinstance(v, Tensor)]
        if not places or any(case.values[i].dim() == 0 for i in places):
            return
        values = list(case.values)

        def mapped(chosen: Sequence[int]) -> tuple[Tensor, ...]:
            def one(*tensors: Tensor) -> tuple[Tensor, ...]:
                again = list(values)
                for i, tensor in zip(chosen, tensors, strict=True):
                    again[i] = tensor
                return self.ours(again)

            given = [torch.stack((values[i], values[i].flip(0))) for i in chosen]
            return torch.vmap(one)(*given)

        for chosen in (places, places[:1]) if len(places) > 1 else (places,):
            try:
                flipped = list(values)
                for i in chosen:
                    flipped[i] = values[i].flip(0)
                pairs = zip(self.theirs(values), self.theirs(flipped), strict=True)
                wanted = tuple(torch.stack(pair) for pair in pairs)
            except REFUSALS:
                return
            self.compare(
                "vmap", case, wanted, wanted, lambda c=chosen: mapped(c), memory=False
            )

    def layout(self, case: Case) -> None:
        """Compare values, strides and gradients of tensors that lie so in memory."""
        try:
            plain = self.theirs(case.values)
        except REFUSALS:
            with suppress(Exception):
                self.ours(case.values)
                self.fail("layouts", case, "torch refuses this, and it does not")
            return
        wide = self.wide(case, plain)
        self.compare("layouts", case, plain, wide, lambda: self.ours(case.values))
        with suppress(*REFUSALS):
            found = self.references("first", case, trials.first)
            if case.leaves and found is not None:
                run = self.deriving(trials.first, case)
                self.compare("layouts", case, *found, run, memory=False)

    # -- what comes of them --------------------------------------------------------

    def compare(
        self,
        kind: Kind,
        case: Case,
        plain: Sequence[Tensor],
        wide: Sequence[Tensor],
        compute: Callable[[], Sequence[Tensor]],
        memory: bool = True,
    ) -> None:
        """Compare what is computed with torch's results, plain and wide ones."""
        try:
            found = compute()
        except NotPointwise as error:  # such as the mean of a loss
            self.excepted(f"not made of kernels: {error.diagnostic.message}")
            return
        except Exception as error:
            self.fail(kind, case, f"{type(error).__name__}: {error}")
            return
        if len(found) != len(plain):
            self.fail(kind, case, f"{len(found)} results, torch has {len(plain)}")
            return
        measure = self.report.measures.setdefault(kind, Measure())
        for got, theirs, want in zip(found, plain, wide, strict=True):
            # torch's tangent of a half is not always a half.
            problem = mismatch(got, theirs, dtype=kind != "jvp", strides=memory)
            if problem:
                self.fail(kind, case, problem)
                return
            least = 0.0 if memory or kind == "vmap" else LEAST
            error = compare(got, want, least)
            measure.add(error)
            allowed = (
                ALLOWED[kind] * error.eps + 4 * compare(theirs, want, least).relative
            )
            allowed = max(allowed, self.inaccuracy)
            if not error.relative <= allowed:
                self.fail(kind, case, error.describe(case.values, allowed))
                return
        self.report.passed += 1

    def refused(self, kind: Kind, case: Case, error: Exception) -> None:
        """Where torch has no derivative, ours may: only a crash is a failure."""
        self.skip(kind, f"torch: {in_short(error)}")
        try:
            _DERIVE[kind](self.ours, case.values, case.leaves)
        except (NotImplementedError, RuntimeError):
            return
        except Exception as mine:
            self.fail(kind, case, f"{type(mine).__name__}: {mine}")

    def skip(self, kind: Kind, reason: str) -> None:
        if kind not in self.report.measures:
            self.report.skipped[kind] = reason

    def fail(self, kind: Kind, case: Case, message: str) -> None:
        reason = exceptions.reason(self.report.name, kind, case.text, message)
        if reason is None:
            self.report.failures.append(Failure(kind, case.text, message))
        else:
            self.excepted(reason)

    def excepted(self, reason: str) -> None:
        counts = self.report.excepted
        counts[reason] = counts.get(reason, 0) + 1


def _at(values: Sequence[Any], at: int) -> list[Any]:
    """The arguments of one element of a result."""
    long = (isinstance(v, Tensor) and v.dim() == 1 and v.numel() > 1 for v in values)
    return [v[at].item() if w else v for v, w in zip(values, long, strict=True)]


def in_short(error: Exception) -> str:
    """The first sentence of what it says."""
    return str(error).strip().partition("\n")[0].partition(". ")[0]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
