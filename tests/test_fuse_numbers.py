"""Whole numbers among the arguments of a fused function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from atentriton import fuse


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def repeated(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = torch.sin(x)
    return x


def asked_of_its_type(x: Tensor, n: int) -> Tensor:
    return x * n if isinstance(n, int) else x + n


# Functions of a whole number: whether each value of it is a trace of its own.
OF_WHOLE: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "factor": (lambda x, n: x * n, False),
    "term": (lambda x, n: n - x, False),
    "quotient": (lambda x, n: n / x + x / n, False),
    "alpha": (lambda x, n: torch.add(x, x.cos(), alpha=n), False),
    "slope": (lambda x, n: F.leaky_relu(x, n), False),
    "limit": (lambda x, n: x.clamp(max=n).exp(), False),
    "computed": (lambda x, n: x * (n + 1) / (n * n) + 1 / n, False),
    "with sizes": (lambda x, n: x * (n + x.shape[-1]), False),
    "base": (lambda x, n: n**x, False),
    "fill": (lambda x, n: x + torch.full_like(x, n), False),
    "result": (lambda x, n: (x * n, n + 1), False),
    "exponent": (lambda x, n: x**n, True),
    "repeated": (repeated, True),
    "type": (asked_of_its_type, True),
    "branch": (lambda x, n: x * n if n > 2 else x - n, True),
    "dimension": (lambda x, n: x.unsqueeze(n - 4) * 2, True),
    "size": (lambda x, n: x.expand(n, 2, 3).sin(), True),
    "text": (lambda x, n: x * float(str(n)), True),
    "decimals": (lambda x, n: torch.round(x, decimals=n), True),
    "key": (lambda x, n: x * {2: 0.1, 3: 0.2, 4: 0.3}[n], True),
}


@pytest.mark.parametrize("name", OF_WHOLE)
def test_whole_numbers_stay_open_where_they_are_only_numbers(name: str) -> None:
    function, settled = OF_WHOLE[name]
    calls: list[int] = []

    def counted(x: Tensor, n: int) -> Any:
        calls.append(n)
        return function(x, n)

    fused = fuse(counted)
    x = leaf(2, 3)
    assert_close(fused(x, 2), function(x, 2))
    calls.clear()
    for n in (2, 3, 4, 3, 2, 4):
        found, expected = fused(x, n), function(x, n)
        assert_close(found, expected)
    assert calls == ([3, 4] if settled else [])
    traces = [made for known in fused.traces.values() for made in known]
    assert len(traces) == (3 if settled else 1)


def test_derivatives_with_whole_numbers() -> None:
    @fuse
    def f(x: Tensor, n: int, p: int) -> Tensor:
        return torch.tanh(x / (n + 1)) ** p * n

    x = leaf(3, 4)
    for n, p in ((2, 3), (5, 3), (-3, 2)):
        assert gradcheck(lambda x, n=n, p=p: f(x, n, p), x, check_forward_ad=True)
        assert gradgradcheck(lambda x, n=n, p=p: f(x, n, p), x)


def test_whole_numbers_and_truth_are_told_apart() -> None:
    f = fuse(lambda x, n: x * n)
    ints = torch.arange(6)
    for n in (2, 0, 1, -(2**63), 2**63 - 1, True, 2.0, False, 3):
        for _ in range(2):
            assert_close(f(ints, n), ints * n)


def test_a_computed_number_that_no_kernel_takes() -> None:
    f = fuse(lambda x, n: x * (n * n))
    x = torch.rand(3)
    assert_close(f(x, 3), x * 9)
    for _ in range(2):
        with pytest.raises(OverflowError, match="too big"):
            f(x, 2**40)
