"""Dtypes promote as PyTorch's do."""

from __future__ import annotations

import itertools

import pytest
import torch

from fuser import dtypes
from fuser.dtypes import DTYPES, SCALAR_TYPES, DType, promote


def in_torch(dtype: DType) -> torch.dtype:
    return getattr(torch, dtype.name)


@pytest.mark.parametrize("a", DTYPES.values(), ids=str)
def test_promote_is_torchs(a: DType) -> None:
    for b in DTYPES.values():
        assert in_torch(promote(a, b)) == torch.promote_types(in_torch(a), in_torch(b))


def test_promote_is_a_join() -> None:
    for a, b, c in itertools.product(DTYPES.values(), repeat=3):
        assert promote(a, b) == promote(b, a)
        # float16 and bfloat16 have no float32 on the way up from one of them alone.
        if not (a.is_half or b.is_half or c.is_half):
            assert promote(promote(a, b), c) == promote(a, promote(b, c))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_properties_are_torchs(dtype: DType) -> None:
    known = in_torch(dtype)
    assert dtype.bits == known.itemsize * 8
    assert dtype.is_complex == known.is_complex
    assert dtype.is_floating == known.is_floating_point
    assert dtype.signed == (known.is_signed and dtype != dtypes.bool_)
    assert dtype.is_differentiable == (known.is_complex or known.is_floating_point)
    if not dtype.is_half:
        assert dtype.opmath == dtype
        assert in_torch(dtype.real) == known.to_real()
        if dtype.is_differentiable:
            assert in_torch(dtype.complex) == known.to_complex()


def test_half_types_compute_in_float32() -> None:
    halves = [d for d in DTYPES.values() if d.is_half]
    assert [d.name for d in halves] == ["float16", "bfloat16"]
    assert all(d.opmath == dtypes.float32 for d in halves)
    # There is no complex type of two halves here.
    assert all(d.complex == dtypes.complex64 for d in halves)


def test_names() -> None:
    assert dtypes.dtype("float32") is dtypes.float32
    assert repr(dtypes.int64) == "int64"
    with pytest.raises(KeyError, match='did you mean "float64"'):
        dtypes.dtype("flaot64")
    assert set(SCALAR_TYPES.values()) == set(DTYPES.values())


def test_equal_dtypes_hash_alike() -> None:
    again = DType("float32", "float", 32)
    assert again == dtypes.float32
    assert hash(again) == hash(dtypes.float32)
