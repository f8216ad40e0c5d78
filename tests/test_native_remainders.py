"""fmod in C kernels, where it is vectorised: to the bit what the C library gives."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from atentriton.specs import TO_TORCH
from fuser import ir
from fuser.dtypes import DType, bfloat16, float16, float32, float64
from fuser.optable import PRIMITIVES
from tests import rows
from tests.native import run

FMOD = PRIMITIVES["fmod"]
BITS = {16: torch.int16, 32: torch.int32, 64: torch.int64}
typed = pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)


def patterns(dtype: DType, count: int, mask: int = -1) -> Tensor:
    """Numbers of random bits, of all magnitudes and kinds; `mask` leaves only some."""
    kind = BITS[dtype.bits]
    most = torch.iinfo(kind)
    bits = torch.randint(most.min, most.max, (count,), dtype=kind)
    return (bits & mask).view(TO_TORCH[dtype])


def right(dividend: Tensor, divisor: Tensor) -> Tensor:
    pairs = zip(dividend.tolist(), divisor.tolist(), strict=True)
    values = [_fmod(a, b) for a, b in pairs]
    return torch.tensor(values, dtype=torch.float64).to(dividend.dtype)


def _fmod(a: float, b: float) -> float:
    return math.nan if math.isinf(a) or b == 0 else math.fmod(a, b)


def check(dtype: DType, dividend: Tensor, divisor: Tensor) -> None:
    (found,) = run(rows.program(FMOD, dtype), [dividend, divisor])
    want = right(dividend, divisor)
    assert torch.equal(found.isnan(), want.isnan())
    kind = BITS[dtype.bits]
    clean = [torch.where(x.isnan(), 0, x).view(kind) for x in (found, want)]
    assert torch.equal(*clean)


@typed
def test_any_two_numbers(dtype: DType) -> None:
    torch.manual_seed(0)
    check(dtype, patterns(dtype, 20_000), patterns(dtype, 20_000))


@typed
def test_quotients_as_large_as_there_are(dtype: DType) -> None:
    """Of huge numbers by subnormal ones, and by those next to them."""
    torch.manual_seed(1)
    info = torch.finfo(TO_TORCH[dtype])
    huge = info.max * (1 - torch.rand(4_000, dtype=torch.float64) / 4)
    digits = round(-math.log2(info.eps))
    tiny = patterns(dtype, 4_000, ~(-1 << digits))
    check(dtype, huge.to(TO_TORCH[dtype]), tiny)
    check(dtype, huge.to(TO_TORCH[dtype]), tiny + info.smallest_normal)


@typed
def test_quotients_next_to_whole_numbers(dtype: DType) -> None:
    """Where the rounded quotient is one too much, or the remainder is 0."""
    torch.manual_seed(2)
    divisor = torch.rand(6_000, dtype=torch.float64).add(0.5).to(TO_TORCH[dtype])
    times = torch.randint(1, 1 << 12, (6_000,)).to(divisor.dtype)
    product = divisor * times
    for dividend in (
        product,
        torch.nextafter(product, torch.zeros_like(product)),
        -torch.nextafter(product, torch.full_like(product, math.inf)),
    ):
        check(dtype, dividend, divisor)


@typed
def test_zeros_infinities_and_nans(dtype: DType) -> None:
    info = torch.finfo(TO_TORCH[dtype])
    least = info.smallest_normal * info.eps
    sizes = [0.0, least, info.tiny, 1.0, 1.5, info.max, math.inf, math.nan]
    edges = [*sizes, *(-x for x in sizes)]
    pairs = list(itertools.product(edges, edges))
    dividend, divisor = torch.tensor(pairs, dtype=TO_TORCH[dtype]).unbind(1)
    check(dtype, dividend.clone(), divisor.clone())


def test_a_divisor_that_is_a_number() -> None:
    """What is the same for all elements is spread over the lanes, or a literal."""
    torch.manual_seed(3)
    x = ir.input_("x", float32)
    number = ir.make("cast", float32, (ir.scalar("number", float64),))
    dividend = torch.rand(1000) * 100 - 50
    for divisor, given in ((number, [0.75]), (ir.const(0.75, float32), [])):
        program = rows.of(ir.make("fmod", float32, (x, divisor)))
        (found,) = run(program, [dividend], given)
        assert torch.equal(found, right(dividend, torch.full_like(dividend, 0.75)))


def test_what_follows_from_a_remainder() -> None:
    """Steps before and after, one remainder of another, and a row of divisors."""
    torch.manual_seed(4)
    x, y = ir.input_("x", float32), ir.input_("y", float32)
    once = ir.make("fmod", float32, (ir.make("add", float32, (x, y)), y))
    other = ir.make("sub", float32, (once, ir.const(0.25, float32)))
    program = rows.of(
        ir.make("sub", float32, (ir.make("fmod", float32, (y, other)), x))
    )
    given = {x: torch.rand(37, 21) * 9, y: torch.rand(37, 1) + 0.5}
    (found,) = run(program, [given[i] for i in program.inputs])
    first = torch.fmod(given[x] + given[y], given[y])
    exact = torch.fmod(given[y].expand(37, 21), first - 0.25) - given[x]
    assert torch.equal(found, exact)
