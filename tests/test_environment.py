"""The set-up that `make` leaves can run Triton kernels, here or on a GPU."""

from __future__ import annotations

from importlib import metadata

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is built for Linux alone")
tl = triton.language


@triton.jit
def double_kernel(x, y, numel, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < numel
    tl.store(y + at, 2 * tl.load(x + at, mask=inside), mask=inside)


def check_double(device: str) -> None:
    x = torch.randn(1000, device=device)
    y = torch.full_like(x, float("nan"))
    double_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    torch.testing.assert_close(y, 2 * x, rtol=0, atol=0)


@pytest.mark.interpreter
def test_interpreter_runs_on_cpu_tensors() -> None:
    check_double("cpu")


@pytest.mark.gpu
def test_gpu_runs_triton_kernels() -> None:
    check_double("cuda")


@pytest.mark.gpu
def test_triton_is_the_one_that_torch_asks_for() -> None:
    asked = [r for r in metadata.requires("torch") or [] if r.startswith("triton")]
    assert any(f"=={metadata.version('triton')};" in r.replace(" ", "") for r in asked)
