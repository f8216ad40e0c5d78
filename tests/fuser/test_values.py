"""Tensors and numbers have the dtype together that PyTorch gives them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from fuser import dtypes, ir
from fuser.dtypes import DTYPES, DType
from fuser.values import (
    NUMBER_DTYPES,
    Number,
    Tensor,
    Tuple,
    Undefined,
    Value,
    number,
    promoted,
    result_type,
)

NUMBERS = (True, 3, 2.5, 1j)
KINDS = (
    "default",
    "no_opmath",
    "int_to_float",
    "always_bool",
    "complex_to_float",
    "bool_to_long",
)
PAIRS: dict[str, tuple[Value, torch.Tensor | complex]] = {
    **{
        f"{d}{'' if dims else ' 0d'}": (
            Tensor(ir.input_("x", d), d, zero_dim=not dims),
            torch.ones((2,) * dims, dtype=getattr(torch, d.name)),
        )
        for d in DTYPES.values()
        for dims in (1, 0)
    },
    **{type(n).__name__: (number(n), n) for n in NUMBERS},
}
DEFAULTS = {"float32": dtypes.float32, "float64": dtypes.float64}


@pytest.fixture(params=list(DEFAULTS))
def default(request: pytest.FixtureRequest):
    """Either default dtype, here and in torch."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, request.param))
    yield DEFAULTS[request.param]
    torch.set_default_dtype(before)


def named(dtype: torch.dtype) -> str:
    # A half with a complex number of lower rank would be torch.complex32.
    return "complex64" if dtype == torch.complex32 else str(dtype).split(".")[1]


def test_result_type_of_two_is_torchs(default: DType) -> None:
    for (a, there), (b, elsewhere) in itertools.product(PAIRS.values(), repeat=2):
        expected = torch.result_type(there, elsewhere)
        assert result_type([a, b], default).name == named(expected), (a, b)


def test_result_type_of_three(default: DType) -> None:
    """As TensorIterator combines them: by rank first, then by kind."""
    dims = [p for n, p in PAIRS.items() if "0d" not in n and isinstance(p[0], Tensor)]
    flat = [p for n, p in PAIRS.items() if "0d" in n]
    numbers = [p for p in PAIRS.values() if isinstance(p[0], Number)]
    for (a, x), (b, y), (c, z) in itertools.product(dims, flat, numbers):
        expected, _ = elementwise_dtypes(
            x, y, z, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH
        )
        for values in itertools.permutations([a, b, c]):
            assert result_type(values, default).name == named(expected), values


@pytest.mark.parametrize("kind", KINDS)
def test_promoted_is_torchs(kind: str, default: DType) -> None:
    known = ELEMENTWISE_TYPE_PROMOTION_KIND[kind.upper()]
    for (a, there), (b, elsewhere) in itertools.product(PAIRS.values(), repeat=2):
        if torch.result_type(there, elsewhere) == torch.complex32:
            continue
        compute, result = elementwise_dtypes(
            there, elsewhere, type_promotion_kind=known
        )
        common, ours = promoted([a, b], kind, default)
        assert ours.name == named(result), (a, b)
        widened = common if kind == "no_opmath" else common.opmath
        assert widened.name == named(compute), (a, b)


def test_what_is_no_tensor_and_no_number_does_not_count() -> None:
    half = Tensor(ir.input_("x", dtypes.float16), dtypes.float16)
    others: Sequence[Value] = (Undefined(), Tuple(()), ir.Static(None))
    assert result_type([*others, half]) == dtypes.float16
    with pytest.raises(ValueError, match="no values"):
        result_type(others)


@pytest.mark.parametrize("value", NUMBERS)
def test_numbers_keep_their_kind(value: complex) -> None:
    made = number(value)
    assert made.constant == value
    assert type(made.constant) is type(value)
    assert made.node.dtype == NUMBER_DTYPES[made.kind]
    unknown = Number(ir.scalar("s", NUMBER_DTYPES[made.kind]))
    assert unknown.constant is None
