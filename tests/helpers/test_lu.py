"""LU decompositions and what is made of their factors: derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from atentriton.helpers import lu
from tests.helpers.applied import agree, leaves, operator, proved
from tests.helpers.rules import composes

DTYPES = (torch.float64, torch.complex128)
BOTH = pytest.mark.parametrize("dtype", DTYPES, ids=str)
SHAPES = pytest.mark.parametrize("shape", [(3, 3), (3, 2), (2, 3)], ids=str)


@BOTH
@SHAPES
def test_decomposition(shape: tuple[int, int], dtype: torch.dtype) -> None:
    ours = operator(
        torch.linalg.lu_factor,
        lambda g, i, r: lu._lu_with_info_backward(g[0], i[0], *r),
        lambda t, _, r: (lu._lu_with_info_jvp(t[0], *r), None),
    )
    given = leaves(torch.randn(2, *shape, dtype=dtype))
    agree(lambda a: ours(a)[0], lambda a: torch.linalg.lu_factor(a)[0], given)
    proved(lambda a: ours(a)[0], leaves(given[0][0]), forward=True)


@BOTH
@pytest.mark.parametrize("batch", [(2,), (1,)], ids=["batch", "broadcast"])
def test_solution(batch: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = torch.randn(2, 3, 3, dtype=dtype)
    packed, pivots = torch.linalg.lu_factor(matrix)

    def theirs(b: Tensor, a: Tensor) -> Tensor:
        return torch.linalg.lu_solve(a, pivots[: len(a)], b)

    ours = operator(
        theirs,
        lambda g, i, _: lu.lu_solve_backward(g[0], *i, pivots[: len(i[1])]),
        lambda t, i, r: lu.lu_solve_forward_AD(*t, i[1], pivots[: len(i[1])], r[0]),
    )
    given = leaves(torch.randn(*batch, 3, 2, dtype=dtype), packed)
    agree(ours, theirs, given)
    proved(ours, leaves(given[0][:1], given[1][:1]), forward=True)


@BOTH
@SHAPES
def test_unpacking(shape: tuple[int, int], dtype: torch.dtype) -> None:
    packed, pivots = torch.linalg.lu_factor(torch.randn(2, *shape, dtype=dtype))

    def theirs(a: Tensor) -> tuple[Tensor, ...]:
        return torch.lu_unpack(a, pivots)

    ours = operator(theirs, lambda g, i, _: lu.lu_unpack_backward(g, i[0], True))
    given = leaves(packed)
    for which in (1, 2):
        agree(lambda a, w=which: ours(a)[w], lambda a, w=which: theirs(a)[w], given)
    agree(
        lambda a: ours(a)[1] @ ours(a)[2], lambda a: theirs(a)[1] @ theirs(a)[2], given
    )


def test_nothing_unpacked_has_no_gradient() -> None:
    packed = torch.randn(3, 3)
    assert lu.lu_unpack_backward([packed, packed, packed], packed, False) is None
    assert lu.lu_unpack_backward([packed, None, None], packed, True) is None


@BOTH
@SHAPES
def test_gradients_under_transforms(shape: tuple[int, int], dtype: torch.dtype) -> None:
    matrix = torch.randn(*shape, dtype=dtype)
    composes(
        lambda a: tuple(torch.linalg.lu_factor(a)), lu._lu_with_info_backward, matrix
    )
    composes(
        lambda a: tuple(torch.linalg.lu_factor(a)),
        lambda t, _, *factors: lu._lu_with_info_jvp(t, *factors),
        matrix,
    )


@BOTH
def test_solutions_under_transforms(dtype: torch.dtype) -> None:
    packed, pivots = torch.linalg.lu_factor(torch.randn(3, 3, dtype=dtype))
    composes(
        lambda b, a: torch.linalg.lu_solve(a, pivots, b),
        lambda g, b, a, _: lu.lu_solve_backward(g, b, a, pivots),
        torch.randn(3, 2, dtype=dtype),
        packed,
    )
