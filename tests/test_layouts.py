"""Shapes, strides and walks: held against what PyTorch's own operators return."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from torch import Tensor

from atentriton import catalogue, operators, ops, samples
from atentriton.layouts import (
    INT32_MAX,
    LIKE,
    broadcast,
    check_one_device,
    contiguous_strides,
    expanded_strides,
    output_strides,
    overlaps,
    walk,
)
from fuser.dtypes import int32, int64
from fuser.kernel import Access

LAST = torch.channels_last
U, L, S = Access.UNIFORM, Access.LINEAR, Access.STRIDED


def operands() -> dict[str, tuple[Tensor, ...]]:
    r = torch.rand
    return {
        "contiguous": (r(2, 3),),
        "transposed": (r(2, 3).t(),),
        "both transposed": (r(2, 3).t(), r(2, 3).t()),
        "channels last": (r(2, 3, 4, 5).to(memory_format=LAST),),
        "channels last with a bias": (r(2, 3, 4, 5).to(memory_format=LAST), r(3, 1, 1)),
        "channels last first": (r(2, 3, 4, 5).to(memory_format=LAST), r(2, 3, 4, 5)),
        "channels last second": (r(2, 3, 4, 5), r(2, 3, 4, 5).to(memory_format=LAST)),
        "rows with gaps": (r(4, 6)[::2],),
        "columns with gaps": (r(4, 6)[:, ::2],),
        "expanded": (r(4, 1).expand(4, 5),),
        "expanded in front": (r(5).expand(4, 5),),
        "permuted": (r(2, 3, 4).permute(2, 0, 1),),
        "permuted and a row": (r(2, 3, 4).permute(2, 0, 1), r(3)),
        "row and column": (r(3, 1), r(1, 4)),
        "no dimensions": (r(()), r(())),
        "transposed and a number": (r(4, 3).t(), r(())),
        "empty": (r(0, 3), r(1, 3)),
        "three": (r(3, 1), r(1, 4), r(())),
    }


def through_torch(tensors: tuple[Tensor, ...]) -> Tensor:
    if len(tensors) == 1:
        return tensors[0].cos()
    if len(tensors) == 2:
        return torch.add(*tensors)
    return torch.addcmul(*tensors)


@pytest.mark.parametrize("case", operands())
def test_results_lie_in_memory_as_those_of_torch(case: str) -> None:
    tensors = operands()[case]
    expected = through_torch(tensors)
    shape = broadcast([t.shape for t in tensors])
    assert shape == tuple(expected.shape)
    assert output_strides(shape, tensors) == expected.stride()


def some_tensor(rng: random.Random, full: list[int]) -> Tensor:
    """A tensor that broadcasts to `full`: permuted, with gaps, expanded or not."""
    sizes = [n if rng.random() < 0.8 else 1 for n in full]
    order = rng.sample(range(len(sizes)), len(sizes))
    gaps = [rng.choice([1, 1, 2]) for _ in sizes]
    stored = torch.rand([sizes[p] * gaps[p] for p in order])
    tensor = stored.permute([order.index(d) for d in range(len(sizes))])
    tensor = tensor[tuple(slice(None, None, g) for g in gaps)]
    return tensor.expand(full) if rng.random() < 0.2 else tensor


def test_random_operands_give_the_strides_of_torch() -> None:
    rng = random.Random(0)
    for _ in range(300):
        # A dimension of size 1 has no stride to speak of: PyTorch's own rule for meta
        # tensors and its kernels disagree there.
        full = [rng.choice([2, 3]) for _ in range(rng.randint(0, 4))]
        tensors = tuple(some_tensor(rng, full) for _ in range(rng.randint(1, 3)))
        expected = through_torch(tensors)
        if 1 in expected.shape:
            continue
        shape = broadcast([t.shape for t in tensors])
        assert output_strides(shape, tensors) == expected.stride(), [
            (t.shape, t.stride()) for t in tensors
        ]


def stored_in(order: tuple[int, ...], tensor: Tensor) -> Tensor:
    """The tensor with its first dimension where `order` has 0, and so on, in memory."""
    if tensor.dim() != len(order):
        return tensor
    back = [order.index(d) for d in range(len(order))]
    return tensor.permute(order).contiguous().permute(back)


@pytest.mark.parametrize("name", LIKE)
def test_results_that_are_not_like_all_tensors_in_order(name: str) -> None:
    ours = operators.make(name)
    assert isinstance(ours, operators.Fused)
    call = ours.registered.redispatch
    orders = ((0, 1, 2), (2, 1, 0), (1, 0, 2))
    for chosen in product(orders, repeat=3):
        arrangement = samples.Arrangement(
            "permuted", ((3, 4, 5),), lambda i, t, c=chosen: stored_in(c[i % 3], t)
        )
        values = samples.arguments(
            ours.signature, torch.float32, arrangement=arrangement
        )
        expected = call(values, catalogue.aten(name))
        alone = [v.to("meta") if isinstance(v, Tensor) else v for v in values]
        for found in (ours.on(values), call(alone)):
            pairs = zip(*map(several, (found, expected)), strict=True)
            assert all(a.stride() == b.stride() for a, b in pairs), chosen


def several(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (found,) if isinstance(found, Tensor) else found


TOO_LARGE = {
    "binary_cross_entropy_with_logits": ((4, 6), (6,)),
    "soft_margin_loss": ((4, 1), (6,)),
    "soft_margin_loss_backward": ((4, 6), (4, 1), ()),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_tensor_larger_than_the_result_is_refused_in_the_words_of_torch(
    name: str,
) -> None:
    tensors = [torch.rand(shape) for shape in TOO_LARGE[name]]
    with pytest.raises(RuntimeError, match="output with shape") as theirs:
        getattr(torch.ops.aten, name)(*tensors, reduction=0)
    with pytest.raises(RuntimeError) as ours:
        getattr(ops, name)(*tensors, reduction=0)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("shapes", [((1, 6), (4, 6)), ((), (6,))])
def test_a_loss_of_which_torch_gives_a_part_is_refused(
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    tensors = [torch.rand(shape) for shape in shapes]
    with pytest.raises(RuntimeError, match="output with shape"):
        ops.binary_cross_entropy(*tensors, reduction=0)


def test_what_is_too_large_is_told_without_mapped_dimensions() -> None:
    x, targets = torch.randn(6), torch.randn(3, 6)
    mapped = torch.func.vmap(lambda t: ops.soft_margin_loss(x, t, 0))(targets)
    torch.testing.assert_close(mapped, ops.soft_margin_loss(x.expand(3, 6), targets, 0))


def test_shapes_that_do_not_broadcast_are_refused_in_the_words_of_torch() -> None:
    for shapes in [((3,), (4,)), ((2, 3), (4, 3)), ((2, 1, 5), (4, 3))]:
        with pytest.raises(RuntimeError) as ours:
            broadcast(shapes)
        with pytest.raises(RuntimeError) as theirs:
            torch.add(torch.empty(shapes[0]), torch.empty(shapes[1]))
        assert str(ours.value) == str(theirs.value)


def classified(*tensors: Tensor) -> tuple[tuple[int, ...], tuple[Access, ...]]:
    """Sizes and accesses of the walk of these operands and their result."""
    shape = broadcast([t.shape for t in tensors])
    strides = [expanded_strides(shape, t.shape, t.stride()) for t in tensors]
    found = walk(shape, [*strides, output_strides(shape, tensors)])
    assert found.layout.rank == len(found.sizes)
    return found.sizes, found.layout.access


def test_one_dense_layout_is_one_flat_loop() -> None:
    last = torch.rand(2, 3, 4, 5).to(memory_format=LAST)
    assert classified(torch.rand(2, 3, 4)) == ((24,), (L, L))
    assert classified(last, last) == ((120,), (L, L, L))
    permuted = torch.rand(2, 3, 4).permute(2, 0, 1)
    assert classified(permuted) == ((24,), (L, L))


def test_a_tensor_without_dimensions_is_uniform_in_a_flat_loop() -> None:
    assert classified(torch.rand(2, 3), torch.rand(())) == ((6,), (L, U, L))
    assert classified(torch.rand(1), torch.rand(2, 3)) == ((6,), (U, L, L))


def test_one_element_takes_the_flat_loop_whatever_its_strides() -> None:
    assert classified(torch.rand(3, 3)[:1, :1]) == ((1,), (L, L))
    assert classified(torch.rand(()), torch.rand(1, 1)) == ((1,), (L, L, L))


def test_dimensions_are_merged_as_far_as_all_operands_allow() -> None:
    assert classified(torch.rand(2, 3, 4), torch.rand(4)) == ((6, 4), (L, L, L))
    assert classified(torch.rand(2, 3, 4), torch.rand(2, 1, 1)) == ((2, 12), (L, U, L))
    assert classified(torch.rand(4, 6)[:, ::2]) == ((12,), (S, L))
    assert classified(torch.rand(4, 6)[:, :3]) == ((4, 3), (L, L))


def test_the_result_is_written_in_order() -> None:
    rows, columns = torch.rand(4, 3), torch.rand(3, 4).t()
    sizes, access = classified(rows, columns)
    assert (sizes, access) == ((4, 3), (L, S, L))


def test_offsets_beyond_32_bits_take_64() -> None:
    def index(shape: tuple[int, ...], strides: tuple[int, ...]):
        return walk(shape, [strides, contiguous_strides(shape)]).layout.index

    assert index((1000,), (1,)) == int32
    assert index((2,), (INT32_MAX,)) == int32
    assert index((2,), (INT32_MAX + 1,)) == int64
    assert index((2**16, 2**16), (2**16, 1)) == int64
    assert index((2**31,), (0,)) == int64


def test_expanded_tensors_overlap_themselves() -> None:
    assert overlaps(torch.rand(3, 1).expand(3, 4))
    assert not overlaps(torch.rand(3, 4).t())
    assert not overlaps(torch.rand(1, 4).expand(1, 4))


def test_one_device_or_numbers_from_the_cpu() -> None:
    cpu, number = torch.rand(3), torch.rand(())
    meta = torch.rand(3, device="meta")
    assert check_one_device([cpu, number]).type == "cpu"
    assert check_one_device([number, meta]).type == "meta"
    assert check_one_device([number, number]).type == "cpu"
    with pytest.raises(RuntimeError, match="found at least two devices, cpu and meta!"):
        check_one_device([cpu, meta])
