"""Every operator that computes by formulas, on Triton: interpreted, and compiled.

Each runs in Triton's interpreter once for each way to lie in memory. Each is compiled
for GPUs that are not there, in every dtype that it takes, with all its gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton import catalogue, launch, operators, samples
from atentriton.programs import Routine, compiler, routine
from atentriton.samples import ARRANGEMENTS, CONTIGUOUS, Arrangement
from atentriton.specs import TO_TORCH, specs_of
from fuser.signatures import Signature
from tests import rows

pytest.importorskip("triton")
tritonkernels = pytest.importorskip("atentriton.tritonkernels")

MACHINES = ("sm_80", "sm_90", "gfx942")
# Gradients in half types are those in float32 between two casts.
DERIVED = (torch.float32, torch.float64, torch.complex64)
REFUSALS = (RuntimeError, NotImplementedError, IndexError, TypeError, ValueError)
# Functions whose value is written down only to single precision by PyTorch itself.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6, torch.int64: 0.0}


def fused() -> list[str]:
    """The operators whose value is a kernel, in-place ones only where their own."""
    names = sorted(catalogue.valued())
    return [n for n in names if not compiler().operator(n).signature.view]


NAMES = fused()
each = pytest.mark.parametrize("name", NAMES)


@cache
def ours(name: str) -> Any:
    return operators.make(name)


def signature_of(name: str) -> Signature:
    return compiler().operator(name).signature


def drawn(name: str, dtype: torch.dtype, way: Any, arrangement: Arrangement) -> Any:
    """Arguments, and what torch's operator gives; None where it refuses them."""
    if name.endswith("_backward") and not (dtype.is_floating_point or dtype.is_complex):
        return None  # torch's smooth_l1_loss_backward dies of it
    signature = signature_of(name)
    theirs = catalogue.aten(name) or ours(name)
    try:
        values = samples.arguments(signature, dtype, way, arrangement)
        return values, _call(theirs, name, values)
    except REFUSALS:
        return None


def broadcast(values: Sequence[Any]) -> torch.Size:
    return torch.broadcast_shapes(*(v.shape for v in values if isinstance(v, Tensor)))


def first_case(name: str, arrangement: Arrangement) -> Any:
    """The first way to call the operator that torch's takes, in that layout."""
    ways = samples.settings(signature_of(name))
    tried = (drawn(name, d, w, arrangement) for w in ways for d in TOLERANCE)
    return next((case for case in tried if case is not None), None)


def _call(operator: Any, name: str, values: Sequence[Any]) -> tuple[Tensor, ...]:
    signature = signature_of(name)
    pairs = list(zip(signature.arguments, values, strict=True))
    plain = [v for a, v in pairs if not a.kwarg_only]
    if isinstance(plain[0], Tensor) and signature.inplace:
        plain[0] = plain[0].clone()
    found = operator(*plain, **{a.name: v for a, v in pairs if a.kwarg_only})
    return (found,) if isinstance(found, Tensor) else tuple(found)


@pytest.mark.interpreter
@each
def test_interpreted_in_every_layout(name: str) -> None:
    if catalogue.aten(name) is None:
        pytest.skip("the installed torch has no such operator")
    ran = 0
    for arrangement in ARRANGEMENTS:
        case = first_case(name, arrangement)
        if case is None:
            continue
        values, wanted = case
        if any(w.shape != broadcast(values) for w in wanted):
            continue  # torch's does not broadcast, and so takes no such tensors
        found = _call(ours(name), name, values)
        for got, want in zip(found, wanted, strict=True):
            error = TOLERANCE.get(want.dtype, 1e-4)
            torch.testing.assert_close(
                got, want, rtol=error, atol=error, equal_nan=True, msg=arrangement.name
            )
        ran += 1
    assert ran, "torch takes no layout of the samples"


def programs(name: str) -> Iterator[Routine]:
    """The operator in every dtype, and all its gradients in those of DERIVED."""
    signature = signature_of(name)
    known: set[str] = set()
    for dtype in TO_TORCH.values():
        for way in samples.settings(signature):
            case = drawn(name, dtype, way, CONTIGUOUS)
            if case is None:
                continue
            found = routine(name, specs_of(signature, case[0]))
            if found.program.inputs and found.lineage not in known:
                known.add(found.lineage)
                yield found
                if dtype in DERIVED and found.derivable:
                    derived = found.vjp(found.able, found.differentiable).routine
                    if derived is not None:
                        yield derived
            break


@pytest.mark.slow
@pytest.mark.skipif(tritonkernels.is_interpreting(), reason="nothing is compiled")
@pytest.mark.parametrize("machine", MACHINES)
@each
def test_compiled_for_absent_gpus(
    name: str, machine: str, record_property: Any
) -> None:
    count = 0
    for made in programs(name):
        for piece in launch.pieces_of(made).items:
            assert tritonkernels.compile_only(rows.dense(piece.program), machine).asm
            count += 1
    record_property("kernels compiled for absent GPUs", count)
    assert count, "nothing was compiled"
