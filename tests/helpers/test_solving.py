"""Linear equations: derivatives beside torch's own, from each side."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton.helpers import solving
from tests.helpers.rules import BOTH, holds, same_gradient

ATEN = torch.ops.aten
LEFT = pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
ASKED = [True, True]


def matrices(dtype: torch.dtype, *batch: int) -> tuple[Tensor, Tensor]:
    a = torch.randn(*batch, 3, 3, dtype=dtype) + 4 * torch.eye(3, dtype=dtype)
    return a, torch.randn(*batch, 3, 3, dtype=dtype)


@BOTH
@LEFT
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_solutions(left: bool, batch: Any, dtype: torch.dtype) -> None:
    def backward(g: Tensor, a: Tensor, _: Tensor, x: Tensor, *factors: Tensor) -> Any:
        return solving.linalg_solve_backward(g, x, a, *factors[:2], left, True)

    def tangent(a_t: Tensor, b_t: Tensor, _a: Any, _b: Any, *found: Tensor) -> Tensor:
        return solving.linalg_solve_jvp(a_t, b_t, *found[:3], left)

    def value(a: Tensor, b: Tensor) -> Any:
        return ATEN._linalg_solve_ex(a, b, left=left)

    same_gradient(value, backward, *matrices(dtype, *batch))
    a, b = matrices(dtype, *batch)
    changes = torch.randn_like(a), torch.randn_like(b)
    _, expected = torch.func.jvp(lambda a, b: value(a, b)[0], (a, b), changes)
    torch.testing.assert_close(tangent(*changes, a, b, *value(a, b)), expected)


@BOTH
def test_a_vector(dtype: torch.dtype) -> None:
    a, b = matrices(dtype)
    holds(
        torch.linalg.solve,
        lambda g, a, _, x: solving.linalg_solve_backward(g, x, a, a, a, True, True),
        a,
        b[:, 0],
    )


@BOTH
@LEFT
@pytest.mark.parametrize("upper", [True, False], ids=["upper", "lower"])
@pytest.mark.parametrize("unit", [True, False], ids=["unit", ""])
def test_triangles(left: bool, upper: bool, unit: bool, dtype: torch.dtype) -> None:
    ways = upper, left, unit
    names = {"upper": upper, "left": left, "unitriangular": unit}
    holds(
        lambda a, b: torch.linalg.solve_triangular(a, b, **names),
        lambda g, a, _, x: solving.linalg_solve_triangular_backward(
            g, a, x, *ways, ASKED
        ),
        *matrices(dtype),
        pushforward=lambda a_t, b_t, a, _, x: (
            solving.linalg_solve_triangular_forward_AD(a_t, b_t, a, x, *ways)
        ),
    )


@BOTH
@pytest.mark.parametrize("upper", [True, False], ids=["upper", "lower"])
@pytest.mark.parametrize("transpose", [True, False], ids=["transposed", ""])
def test_triangles_the_older_way(
    upper: bool, transpose: bool, dtype: torch.dtype
) -> None:
    ways = upper, transpose, False

    def backward(g: Tensor, b: Tensor, a: Tensor, x: Tensor, _: Tensor) -> Any:
        return solving.triangular_solve_backward(g, None, b, a, x, *ways, ASKED)

    a, b = matrices(dtype)
    same_gradient(lambda b, a: ATEN.triangular_solve(b, a, *ways), backward, b, a)
    a_t, b_t = torch.randn_like(a), torch.randn_like(b)

    def newer(b: Tensor, a: Tensor) -> Tensor:
        matrix = a.mT if transpose else a
        return torch.linalg.solve_triangular(matrix, b, upper=upper != transpose)

    _, expected = torch.func.jvp(newer, (b, a), (b_t, a_t))
    x = ATEN.triangular_solve(b, a, *ways)[0]
    found = solving.triangular_solve_jvp(x, a, a_t, b_t, *ways)
    torch.testing.assert_close(found, expected)


@BOTH
@LEFT
@pytest.mark.parametrize("adjoint", [True, False], ids=["adjoint", ""])
def test_factors(left: bool, adjoint: bool, dtype: torch.dtype) -> None:
    a, b = matrices(dtype)
    factors, pivots = torch.linalg.lu_factor(a)

    def value(factors: Tensor) -> Tensor:
        return torch.linalg.lu_solve(factors, pivots, b, left=left, adjoint=adjoint)

    def backward(g: Tensor, factors: Tensor, _: Tensor) -> Tensor:
        x = value(factors)
        return solving.linalg_lu_solve_LU(g, factors, pivots, x, left, adjoint)

    def tangent(factors_t: Tensor, factors: Tensor, _: Tensor) -> Tensor:
        x, none = value(factors), torch.zeros_like(b)
        return solving.linalg_lu_solve_jvp(
            x, factors, pivots, factors_t, none, left, adjoint
        )

    holds(value, backward, factors, pushforward=tangent)
