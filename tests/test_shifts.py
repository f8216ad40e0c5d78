"""Shifts of integers and the next number of half types, beside PyTorch's."""

from __future__ import annotations

import math

import pytest
import torch

from atentriton import ops
from atentriton.catalogue import card_of

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
HALVES = [torch.float16, torch.bfloat16]
SHIFTS = ["bitwise_left_shift", "bitwise_right_shift"]


def _numbers(dtype: torch.dtype) -> torch.Tensor:
    bounds = torch.iinfo(dtype)
    return torch.tensor([0, 1, 5, 100, bounds.max, bounds.min, 77], dtype=dtype)


def _counts(dtype: torch.dtype) -> list[int]:
    bits = torch.iinfo(dtype).bits
    return [0, 1, 3, bits - 2, bits - 1, bits, bits + 1, 100, -1 if bits > 8 else 127]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", SHIFTS)
def test_a_shift_by_a_tensor_or_a_number(name: str, dtype: torch.dtype) -> None:
    ours, theirs = getattr(ops, name), getattr(torch.ops.aten, name)
    numbers = _numbers(dtype)
    for count in _counts(dtype):
        by = torch.full_like(numbers, count)
        assert torch.equal(ours(numbers, by), theirs(numbers, by)), count
        assert torch.equal(ours(numbers, count), theirs(numbers, count)), count


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", SHIFTS)
def test_a_shift_of_a_number(name: str, dtype: torch.dtype) -> None:
    counts = torch.tensor(_counts(dtype), dtype=dtype)
    ours = getattr(ops, name)(7, counts)
    assert ours.dtype == dtype
    assert torch.equal(ours, getattr(torch.ops.aten, name)(7, counts))


@pytest.mark.parametrize("overload", ["Tensor", "Scalar"])
@pytest.mark.parametrize("base", ["__lshift__", "__rshift__"])
def test_the_operators_of_python_are_fused(base: str, overload: str) -> None:
    assert card_of(f"{base}.{overload}").kind == "fused"


def test_negative_numbers_keep_their_sign() -> None:
    numbers = torch.tensor([-7, -8, -1, -128], dtype=torch.int8)
    for count in (0, 1, 2, 7, 8, -1):
        ours = ops.bitwise_right_shift(numbers, count)
        assert torch.equal(ours, torch.bitwise_right_shift(numbers, count)), count


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_infinities_become_the_largest_half(dtype: torch.dtype) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 1.5, -0.0], dtype=dtype)
    assert torch.equal(ops.nan_to_num(x), torch.nan_to_num(x))
    wide = ops.nan_to_num(x.float())
    assert torch.equal(wide, torch.nan_to_num(x.float()))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_next_number_is_a_half(dtype: torch.dtype) -> None:
    every = torch.arange(-(2**15), 2**15, 7).to(torch.int16).view(dtype)
    every = every[every.isfinite()]
    for goal in (math.inf, -math.inf, 0.0, 1.0):
        other = torch.full_like(every, goal)
        assert torch.equal(
            ops.nextafter(every, other).view(torch.int16),
            torch.nextafter(every, other).view(torch.int16),
        ), goal
