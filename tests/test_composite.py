"""Operators over whole tensors: torch's values, and derivatives by the formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad, grad
from torch.testing import assert_close

import atentriton
from atentriton import ops
from atentriton.checking import check
from atentriton.commands._formulas import OPERATORS, items
from atentriton.decisions import Decision

F64 = torch.float64
ITEMS = [i for i in items() if i.part == OPERATORS]
COMPOSITE = [i.verdict.name for i in ITEMS if i.verdict.kind == "composite"]
# What cannot be called on this machine: `_fused_dropout` has a kernel on GPUs alone.
ELSEWHERE = {"_fused_dropout"}


def test_every_entry_runs() -> None:
    assert len(ITEMS) == 199
    assert not [i.verdict.name for i in ITEMS if i.verdict.kind == "not_yet"]


@pytest.mark.parametrize("name", COMPOSITE)
def test_values_and_derivatives_are_pytorchs(name: str) -> None:
    report = check(name, quick=True)
    assert report.ok, report.failures[0]
    assert (report.passed > 0) == (name not in ELSEWHERE), report.skipped


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSITE)
def test_in_full(name: str) -> None:
    report = check(name)
    assert report.ok, report.failures[0]


def cubed(x: Tensor) -> Tensor:
    return ops.inverse(x @ x).sum()


def test_transforms_of_any_order() -> None:
    x = torch.randn(3, 3, dtype=F64) + 3 * torch.eye(3, dtype=F64)

    def theirs(x: Tensor) -> Tensor:
        return torch.linalg.inv(x @ x).sum()

    expected = func.hessian(theirs)(x)
    for outer in (func.jacfwd, func.jacrev):
        for inner in (func.jacfwd, func.jacrev):
            assert_close(outer(inner(cubed))(x), expected)
    batch = torch.stack((x, x.T))
    assert_close(
        func.vmap(func.jacfwd(cubed))(batch), func.vmap(func.jacfwd(theirs))(batch)
    )


def test_tangents_without_a_forward_formula_can_be_derived_again() -> None:
    assert not next(i for i in ITEMS if i.entry.name == "logsumexp").entry.forwards
    x = torch.randn(4, dtype=F64, requires_grad=True)
    tangent = torch.randn(4, dtype=F64)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        pushed = forward_ad.unpack_dual(ops.logsumexp(dual, [0])).tangent
        (found,) = grad(pushed, x)
    p = x.detach().softmax(0)
    assert_close(pushed.detach(), (p * tangent).sum())
    assert_close(found.detach(), p * (tangent - (p * tangent).sum()))


@pytest.mark.filterwarnings("ignore:Using torch.cross without")
@pytest.mark.parametrize("sizes", [((1, 3), (3, 3)), ((3, 1), (3, 3)), ((3, 3),) * 2])
def test_a_cross_product_along_no_given_dimension(sizes: Any) -> None:
    a, b = (torch.randn(s, dtype=F64, requires_grad=True) for s in sizes)
    assert torch.autograd.gradcheck(ops.cross, (a, b), check_forward_ad=True)


def test_in_place_writes_and_records() -> None:
    at = torch.tensor([2, 0])
    x = torch.randn(4, 3, dtype=F64, requires_grad=True)
    y = torch.randn(2, 3, dtype=F64, requires_grad=True)
    target = x * 1
    assert ops.index_copy_(target, 0, at, y) is target
    gradients = grad((target**2).sum(), (x, y))
    expected = (x * 1).index_copy(0, at, y)
    assert_close(target, expected)
    assert_close(gradients, grad((expected**2).sum(), (x, y)))
    with pytest.raises(RuntimeError, match="leaf Variable"):
        ops.index_copy_(x, 0, at, y)


def test_only_what_the_formulas_read_is_saved() -> None:
    saved: list[Tensor] = []
    x, at = torch.randn(5, 3, requires_grad=True), torch.tensor([1, 2])
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.append(t) or t, lambda t: t
    )
    with hooks:
        ops.index_select(x, 0, at)
    assert [t.dtype for t in saved] == [torch.int64]


def test_lists_of_tensors() -> None:
    a, b = torch.randn(2, 3, requires_grad=True), torch.randn(2, 1)
    joined = ops.cat([a, b], 1)
    assert_close(grad(joined.square().sum(), a)[0], 2 * a)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(b, torch.ones_like(b))
        pushed = forward_ad.unpack_dual(ops.cat([a.detach(), dual], 1)).tangent
    assert_close(pushed, torch.cat((torch.zeros(2, 3), torch.ones(2, 1)), 1))


@pytest.mark.parametrize("wanted", ["self", "A"])
def test_a_derivative_that_the_file_does_not_give_is_an_error(wanted: str) -> None:
    """Also where torch could derive what the value is made of."""
    given = {"self": torch.rand(4, 3), "A": torch.rand(4, 2)}
    given[wanted].requires_grad_()
    solution, _ = ops.lstsq(**given)
    message = "^the derivative for 'lstsq' is not implemented.$"
    with pytest.raises(NotImplementedError, match=message):
        solution.sum().backward()
    plain = {name: value.detach() for name, value in given.items()}
    with forward_ad.dual_level():
        plain[wanted] = forward_ad.make_dual(plain[wanted], plain[wanted])
        with pytest.raises(NotImplementedError, match=message):
            ops.lstsq(**plain)


def test_truths_have_no_derivative() -> None:
    x = torch.randn(3, requires_grad=True)
    assert not ops.any(x).requires_grad
    with forward_ad.dual_level():
        found = ops.all(forward_ad.make_dual(x.detach(), torch.ones(3)))
        assert forward_ad.unpack_dual(found).tangent is None


def test_retired_operators_keep_their_signatures() -> None:
    x = torch.randn(4, 2, dtype=F64)
    b = torch.randn(4, 3, dtype=F64)
    solution = ops.lstsq(b, x)[0][:2]
    assert_close(solution, torch.linalg.lstsq(x, b).solution)
    symmetric = x @ x.T + torch.diag(torch.arange(4, dtype=F64))
    values, _ = ops.eig(symmetric, True)
    assert values.shape == (4, 2)
    assert_close(values[:, 0].sort().values, torch.linalg.eigvalsh(symmetric))


def test_use_takes_them_where_they_are_named() -> None:
    x = torch.randn(3, requires_grad=True)

    def run() -> Any:
        return torch.cumsum(x, 0)

    with atentriton.use():
        plain = run()
    with atentriton.use(include=["cumsum"]):
        named = run()
    assert "Applied" in type(named.grad_fn).__name__
    assert "Applied" not in type(plain.grad_fn).__name__
    assert_close(grad(named.sum(), x), grad(plain.sum(), x))


def test_explained() -> None:
    found = atentriton.explain(lambda t: ops.cumsum(t, 0), torch.randn(3))
    assert found.decisions == (Decision("cumsum", "composite"),)
    assert "composite" in str(found)


def test_a_list_may_have_gaps_where_the_signature_says_so() -> None:
    x, at = torch.randn(3, 4), torch.tensor([0, 2])
    assert_close(ops.index(x, [None, at]), x[:, at])
    with pytest.raises(TypeError, match="expected Tensor as element 1 in argument 1"):
        ops.index(x, [None, 1.5])
