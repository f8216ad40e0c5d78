"""Calls to check operators over whole tensors with that PyTorch's database lacks.

Comes in: an operator's name and a dtype. Goes out: values for its arguments. And lists
of tensors among arguments, laid out one after the other, as what derivatives are taken
of has to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Several:
    """Stands before the items of a list."""

    count: int


@dataclass(frozen=True, slots=True)
class Sparse:
    """Stands before the elements of a sparse matrix, whose places these are."""

    places: Tensor
    sizes: tuple[int, ...]


def flattened(values: Sequence[Any]) -> Iterator[Any]:
    """The values; those of lists with tensors, and of sparse matrices, one by one."""
    for value in values:
        if isinstance(value, list) and any(isinstance(v, Tensor) for v in value):
            yield Several(len(value))
            yield from value
        elif isinstance(value, Tensor) and value.is_sparse:
            yield Sparse(value._indices(), tuple(value.shape))
            yield value._values()
        else:
            yield value


def grouped(flat: Sequence[Any]) -> list[Any]:
    """The values again, with their lists and sparse matrices."""
    items = iter(flat)
    found: list[Any] = []
    for item in items:
        match item:
            case Several(count=count):
                found.append([next(items) for _ in range(count)])
            case Sparse(places=places, sizes=sizes):
                elements = next(items)
                checked: dict[str, Any] = {"check_invariants": True}
                found.append(
                    torch.sparse_coo_tensor(places, elements, sizes, **checked)
                )
            case _:
                found.append(item)
    return found


def of(name: str, dtype: torch.dtype) -> list[list[Any]]:
    """Calls of the operator of that full name; none where the database has some."""
    make = _CALLS.get(name)
    if make is None:
        return []
    generator = torch.Generator().manual_seed(0)

    def draw(*sizes: int) -> Tensor:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(sizes, dtype=wide, generator=generator).to(dtype)

    return make(draw)


Draw = Callable[..., Tensor]
Calls = list[list[Any]]


def _regular(draw: Draw, *sizes: int) -> Tensor:
    """Matrices that are far from singular, and so from a change of their pivots."""
    return draw(*sizes) + 4 * torch.eye(*sizes[-2:]).to(draw(1))


def _coalesced(draw: Draw) -> Calls:
    at = torch.tensor([[0, 1, 1], [2, 0, 0]])
    return [[torch.sparse_coo_tensor(at, draw(3), (2, 3))]]


def _times_sparse(draw: Draw) -> Calls:
    at = torch.tensor([[0, 1, 1], [2, 0, 1]])
    sparse = torch.sparse_coo_tensor(at, draw(3), (2, 3))
    return [[draw(2, 4), sparse, draw(3, 4), 0.5, 2.0]]


def _by_index(draw: Draw) -> Calls:
    at, other = torch.tensor([2, 0, 2]), torch.tensor([[1], [0]])
    mask = torch.tensor([[True, False, True], [False, False, True]])
    return [
        [draw(4, 3), [at]],
        [draw(2, 4, 3), [None, at]],
        [draw(3, 2, 4), [at, None, other]],
        [draw(2, 3), [mask]],
    ]


def _put(draw: Draw) -> Calls:
    at = torch.tensor([2, 0])
    return [
        [draw(4, 3), [at], draw(2, 3), False, False],
        [draw(4, 3), [at], draw(3), True, False],
        [draw(2, 4), [None, at], draw(2, 2), False, True],
    ]


def _factored(draw: Draw) -> Calls:
    return [[_regular(draw, *sizes)] for sizes in ((3, 3), (2, 3, 3), (1, 1))]


def _decomposed(draw: Draw) -> Calls:
    sizes = ((3, 3), (2, 3, 3), (2, 4), (4, 2))
    return [[_regular(draw, *s), True, True] for s in sizes]


def _solved(draw: Draw) -> Calls:
    found: Calls = []
    for batch in ((), (2,)):
        factors, pivots = torch.linalg.lu_factor(_regular(draw, *batch, 3, 3))
        found.append([draw(*batch, 3, 2), factors, pivots])
    return found


def _grid(draw: Draw) -> Calls:
    return [
        [draw(2, 2, 3), [2, 1, 3, 4], True],
        [draw(1, 2, 3), [1, 2, 2, 3], False],
        [draw(2, 3, 4), [2, 1, 2, 2, 3], True],
    ]


def _sampled(draw: Draw) -> Calls:
    """Within the image and not near a pixel's edge, where nothing has a kink."""
    at = 0.37 * torch.tanh(draw(2, 2, 3, 2)) + 0.11
    return [
        [draw(2, 2, 5, 4), at, mode, padding, corners]
        for mode, padding, corners in ((0, 0, True), (0, 1, False), (2, 2, False))
    ]


def _convolved(draw: Draw) -> Calls:
    return [
        [draw(5, 2, 3), draw(2, 3, 4), draw(4), 0],
        [draw(4, 1, 2), draw(3, 2, 2), draw(2), 1],
    ]


def _aligned(draw: Draw) -> Calls:
    targets = torch.tensor([[1, 2], [2, 2]])
    if draw(1).is_complex():
        return []
    short, long = draw(2, 2, 4).log_softmax(-1), draw(6, 2, 4).log_softmax(-1)
    return [
        [long, targets, [6, 6], [2, 2], 0, False],
        [short, targets, [2, 2], [2, 2], 0, True],
    ]


def _observed(draw: Draw) -> Calls:
    on = torch.tensor([1])
    values = draw(3, 4)
    if values.is_complex():
        return []
    state = [torch.tensor([n]) for n in (-1.0, 1.0, 0.01)]
    zero_point = torch.tensor([0], dtype=torch.int32)
    return [[values, on, on, *state, zero_point, 0.01, 0, 255, -1, False, False]]


_CALLS: dict[str, Callable[[Draw], Calls]] = {
    "_coalesce": _coalesced,
    "_sparse_addmm": _times_sparse,
    "index.Tensor": _by_index,
    "_index_put_impl_": _put,
    "_det_lu_based_helper": _factored,
    "_lu_with_info": _decomposed,
    "lu_solve": _solved,
    "affine_grid_generator": _grid,
    "_grid_sampler_2d_cpu_fallback": _sampled,
    "conv_tbc": _convolved,
    "_ctc_loss": _aligned,
    "_fused_moving_avg_obs_fq_helper": _observed,
}
