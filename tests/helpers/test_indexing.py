"""What picks elements: its derivatives, with indices of every kind and with masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton.helpers import indexing
from tests.helpers.applied import leaves, operator
from tests.helpers.rules import BOTH, holds, same_gradient

ATEN = torch.ops.aten
TRUE, FALSE = torch.tensor(True), torch.tensor(False)


@BOTH
@pytest.mark.parametrize(
    ("shape", "dim", "index"),
    [
        ((2, 3), 1, [[0, 0, 2, 1], [1, 1, 1, 1]]),
        ((3, 2), -2, [[2]]),
        ((2, 3), 0, [[], []]),
        ((), 0, 0),
    ],
    ids=str,
)
def test_gather(shape: Any, dim: int, index: Any, dtype: torch.dtype) -> None:
    places = torch.tensor(index, dtype=torch.int64)
    tensor = torch.randn(shape, dtype=dtype)
    holds(
        lambda x: x.gather(dim, places),
        lambda g, x, _: ATEN.gather_backward(g, x, dim, places, False),
        tensor,
    )
    theirs = operator(
        lambda x: x.gather(dim, places),
        lambda g, x, _: ATEN.gather_backward(g[0], x[0], dim, places, True),
    )
    (x,) = leaves(tensor)
    grad = torch.randn(places.shape, dtype=dtype)
    (found,) = torch.autograd.grad(theirs(x), x, grad)
    expected = torch.autograd.grad(x.gather(dim, places, sparse_grad=True), x, grad)[0]
    assert found.is_sparse and expected.is_sparse
    assert_close(found.to_dense(), expected.to_dense())


LONG = torch.tensor([0, 2, 2])
INDICES: list[tuple[tuple[int, ...], list[Tensor | None]]] = [
    ((3, 2), [LONG]),
    ((2, 3), [None, LONG.int()]),
    ((3, 3), [LONG, torch.tensor([[1], [0]])]),
    ((3, 2, 3), [LONG, None, LONG]),
    ((2, 3), [torch.tensor([[True, False, True], [False, False, True]])]),
    ((2, 3), [torch.tensor([False, False])]),
    ((3,), [torch.tensor(1)]),
]


@BOTH
@pytest.mark.parametrize(("shape", "indices"), INDICES, ids=range(len(INDICES)))
def test_index(shape: Any, indices: list[Any], dtype: torch.dtype) -> None:
    holds(
        lambda x: ATEN.index(x, indices),
        lambda g, x, _: indexing.index_backward(g.new_zeros(x.shape), indices, g),
        torch.randn(shape, dtype=dtype),
    )


@BOTH
@pytest.mark.parametrize(
    ("shape", "dim", "index"),
    [((2, 3), 1, [0, 2, 2]), ((2, 3), -2, []), ((), 0, [0]), ((3,), 0, 2)],
    ids=str,
)
def test_index_select(shape: Any, dim: int, index: Any, dtype: torch.dtype) -> None:
    places = torch.tensor(index, dtype=torch.int64)
    holds(
        lambda x: x.index_select(dim, places),
        lambda g, x, _: ATEN.index_select_backward(g, x.shape, dim, places),
        torch.randn(shape, dtype=dtype),
    )


MASKS = pytest.mark.parametrize(
    ("shape", "mask"),
    [
        ((2, 3), torch.tensor([[True, False, True], [False, False, True]])),
        ((2, 3), torch.tensor([True, False, True])),
        ((3, 1), torch.tensor([True, False, True, True])),
        ((2, 3), FALSE),
        ((2, 3), TRUE),
        ((), TRUE),
        ((), FALSE),
        ((0, 2), TRUE),
        ((), torch.tensor([[True, True]])),
    ],
    ids=range(9),
)


@BOTH
@MASKS
def test_masked_select(shape: Any, mask: Tensor, dtype: torch.dtype) -> None:
    def backward(grad: Tensor, x: Tensor, _: Tensor) -> Tensor:
        return indexing.masked_select_backward(grad, x, mask)

    def indexed(x: Tensor) -> Tensor:  # the same, and can be batched
        both = torch.broadcast_shapes(shape, mask.shape)
        return x.expand(both)[mask.expand(both)]

    x = torch.randn(shape, dtype=dtype)
    holds(indexed, backward, x)
    same_gradient(lambda x: x.masked_select(mask), backward, x)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@BOTH
@MASKS
@pytest.mark.parametrize("more", [0, 2])
def test_masked_scatter(
    shape: Any, mask: Tensor, more: int, dtype: torch.dtype
) -> None:
    target = torch.randn(torch.broadcast_shapes(shape, mask.shape), dtype=dtype)
    count = int(mask.expand(target.shape).sum())

    def backward(grad: Tensor, source: Tensor, _: Tensor) -> Tensor:
        return indexing.masked_scatter_backward(grad, mask, source.shape)

    holds(
        lambda source: target.masked_scatter(mask, source),
        backward,
        torch.randn(1, count + more, dtype=dtype),
    )


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@BOTH
def test_masked_scatter_of_a_scalar(dtype: torch.dtype) -> None:
    target, mask = torch.zeros(2, dtype=dtype), torch.tensor([False, True])
    holds(
        lambda source: target.masked_scatter(mask, source),
        lambda g, s, _: indexing.masked_scatter_backward(g, mask, s.shape),
        torch.randn((), dtype=dtype),
    )


def test_gradients_that_are_not_picked_do_not_count() -> None:
    mask = torch.tensor([False, True, False])
    grad = torch.tensor([torch.nan, 1, torch.inf])
    found = indexing.masked_scatter_backward(grad, mask, [2])
    assert found.tolist() == [1, 0]


@pytest.mark.parametrize("mask_dtype", [torch.uint8, torch.bool], ids=str)
def test_fused_dropout(mask_dtype: torch.dtype) -> None:
    mask = torch.tensor([1, 0, 1], dtype=mask_dtype)
    holds(
        lambda x: x * mask / 0.25,
        lambda g, *_: indexing._fused_dropout_backward(g, mask, 0.25),
        torch.randn(2, 3).double(),
    )
