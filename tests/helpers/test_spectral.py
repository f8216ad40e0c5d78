"""Functions of a matrix through its eigenvalues: gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from atentriton.helpers import spectral
from atentriton.helpers.retired import VALUES
from tests.helpers.applied import agree, leaves, operator, proved
from tests.helpers.rules import composes

DTYPES = (torch.float64, torch.complex128)
BOTH = pytest.mark.parametrize("dtype", DTYPES, ids=str)

eig = operator(
    lambda a: VALUES["eig"](a, True),
    lambda g, i, r: spectral.eig_backward(g, i[0], True, *r),
)


def real_values(matrix: Tensor) -> Tensor:
    """Not symmetric, with eigenvalues that are real and apart."""
    shift = torch.diag(torch.arange(1.0, len(matrix) + 1, dtype=matrix.dtype))
    return matrix.triu(1) + shift + 0.1 * matrix.tril(-1)


def test_gradients_of_real_eigenvalues() -> None:
    def ours(matrix: Tensor) -> Tensor:
        values, vectors = eig(real_values(matrix))
        return torch.cat((values[:, 0].sort().values[None], vectors.square()))

    def theirs(matrix: Tensor) -> Tensor:
        values, vectors = torch.linalg.eig(real_values(matrix))
        squares = (vectors * vectors.conj()).real
        return torch.cat((values.real.sort().values[None], squares))

    given = leaves(torch.randn(3, 3, dtype=torch.float64))
    agree(ours, theirs, given)
    proved(ours, given)
    proved(lambda a: eig(real_values(a)), given)


def test_gradients_of_complex_matrices() -> None:
    given = leaves(torch.randn(3, 3, dtype=torch.complex128))

    def by(eigenpairs: Callable[..., Any]) -> Callable[..., Any]:
        def projectors(matrix: Tensor) -> Tensor:
            values, vectors = eigenpairs(matrix)
            return torch.cat((values[None], vectors * vectors[:1].conj()))

        return projectors

    agree(by(eig), by(torch.linalg.eig), given)
    proved(by(eig), given)
    with pytest.raises(RuntimeError, match="phases of eigenvectors"):
        eig(given[0])[1].real.sum().backward()


def test_what_has_no_gradient_says_so() -> None:
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    with pytest.raises(RuntimeError, match="complex eigenvalues"):
        eig(turn.requires_grad_())[0].sum().backward()
    values, nothing = VALUES["eig"](turn)
    grads = [torch.ones_like(values), None]
    with pytest.raises(RuntimeError, match="eigenvectors=True"):
        spectral.eig_backward(grads, turn, False, values, nothing)
    assert spectral.eig_backward([None, None], turn, False, values, nothing) is None


@BOTH
def test_exponential(dtype: torch.dtype) -> None:
    ours = operator(
        torch.matrix_exp, lambda g, i, _: spectral.matrix_exp_backward(i[0], g[0])
    )
    given = leaves(torch.randn(2, 3, 3, dtype=dtype))
    agree(ours, torch.matrix_exp, given)
    proved(ours, leaves(given[0][0]))
    composes(
        torch.matrix_exp,
        lambda g, a, _: spectral.matrix_exp_backward(a, g),
        torch.randn(2, 2, dtype=dtype),
    )
