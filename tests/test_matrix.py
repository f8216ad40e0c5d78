"""Products of matrices: torch's values, and derivatives by the formulas, fused at the
end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.testing import assert_close

from atentriton import evaluate, ops
from atentriton.evaluate import ZERO, Evaluator
from atentriton.questions import Geometry, reads
from fuser.grammar import parse_formula
from fuser.syntax import unparse

F64, C128 = torch.float64, torch.complex128
ATEN = torch.ops.aten

SHAPES: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "mm": (((2, 3), (3, 4)), {}),
    "addmm": (((4,), (2, 3), (3, 4)), {"alpha": 2, "beta": 0.5}),
    "bmm": (((2, 2, 3), (2, 3, 2)), {}),
    "baddbmm": (((2, 2, 2), (2, 2, 3), (2, 3, 2)), {"alpha": 2}),
    "addbmm": (((2, 2), (3, 2, 3), (3, 3, 2)), {"beta": 0.5, "alpha": 2}),
    "addmv": (((2,), (2, 3), (3,)), {"beta": 3, "alpha": 0.5}),
    "addr": (((2, 3), (2,), (3,)), {"beta": 3, "alpha": 0.5}),
    "dot": (((3,), (3,)), {}),
    "vdot": (((3,), (3,)), {}),
}


def case(name: str, dtype: torch.dtype) -> tuple[Any, Any, tuple[Tensor, ...]]:
    shapes, kwargs = SHAPES[name]
    args = tuple(torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes)
    ours, theirs = getattr(ops, name), getattr(ATEN, name)
    return (lambda *x: ours(*x, **kwargs)), (lambda *x: theirs(*x, **kwargs)), args


@pytest.mark.parametrize("dtype", [F64, C128], ids=["real", "complex"])
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_every_kind(name: str, dtype: torch.dtype) -> None:
    ours, theirs, args = case(name, dtype)
    assert_close(ours(*args), theirs(*args))
    assert gradcheck(ours, args, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(ours, args, check_fwd_over_rev=True, check_rev_over_rev=True)


@pytest.mark.parametrize("name", SHAPES)
def test_transforms(name: str) -> None:
    ours, theirs, leaves = case(name, F64)
    args = [a.detach() for a in leaves]
    every = tuple(range(len(args)))

    def squared(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *x: (f(*x) ** 2).sum()

    for transform in (func.grad, func.hessian, func.jacfwd):
        found = transform(squared(ours), argnums=every)(*args)
        assert_close(found, transform(squared(theirs), argnums=every)(*args))
    batches = [torch.stack([a, a * 2]) for a in args]
    for transform in (torch.vmap, lambda f: torch.vmap(func.grad(squared(f)))):
        assert_close(transform(ours)(*batches), transform(theirs)(*batches))


@pytest.mark.parametrize("name", [n for n, (_, kwargs) in SHAPES.items() if kwargs])
def test_complex_numbers_are_conjugated_in_gradients(name: str) -> None:
    shapes, kwargs = SHAPES[name]
    numbers = {k: complex(v, v + 1) for k, v in kwargs.items()}
    args = tuple(torch.randn(s, dtype=C128, requires_grad=True) for s in shapes)
    ours, theirs = getattr(ops, name), getattr(ATEN, name)
    assert_close(ours(*args, **numbers), theirs(*args, **numbers))
    assert gradcheck(lambda *x: ours(*x, **numbers), args, check_forward_ad=True)
    found = grad(ours(*args, **numbers).abs().sum(), args, create_graph=True)
    expected = grad(theirs(*args, **numbers).abs().sum(), args, create_graph=True)
    assert_close(found, expected)
    again = [grad(sum(g.abs().sum() for g in gs), args) for gs in (found, expected)]
    assert_close(again[0], again[1])


@pytest.mark.parametrize("name", SHAPES)
def test_conjugate_and_transposed_views(name: str) -> None:
    shapes, kwargs = SHAPES[name]
    drawn = [torch.randn(s, dtype=C128) for s in shapes]
    results = []
    for place in (ops, ATEN):
        leaves = [t.clone().requires_grad_() for t in drawn]
        views = [
            x.conj() if x.dim() < 2 else x.mT.contiguous().mT.conj() for x in leaves
        ]
        y = getattr(place, name)(*views, **kwargs)
        results.append([y, *grad((y * y.conj()).real.sum(), leaves)])
    assert_close(results[0], results[1])


@pytest.mark.parametrize("name", ["addmm", "addmv", "addr", "addbmm", "baddbmm"])
def test_what_is_added_is_broadcast(name: str) -> None:
    ours, theirs, args = case(name, F64)
    small = torch.rand(1, dtype=F64, requires_grad=True)
    if name == "baddbmm":
        small = torch.rand(1, 1, 2, dtype=F64, requires_grad=True)
    found, expected = ours(small, *args[1:]), theirs(small, *args[1:])
    assert_close(found, expected)
    assert_close(grad(found.sum(), small), grad(expected.sum(), small))


def test_beta_of_zero_and_alpha_of_zero() -> None:
    _, _, (bias, mat1, mat2) = case("addmm", F64)
    given = torch.full_like(bias, float("nan")).requires_grad_()
    for kwargs in ({"beta": 0}, {"beta": 1, "alpha": 0}):
        added = given if kwargs["beta"] == 0 else bias
        results = []
        for place in (ops, ATEN):
            y = place.addmm(added, mat1, mat2, **kwargs)
            results.append([y, *grad(y.sum(), (added, mat1, mat2))])
        assert_close(results[0], results[1])


@pytest.mark.parametrize("columns", [False, True])
def test_gradients_lie_in_memory_as_the_matrix_does(columns: bool) -> None:
    mat1, mat2 = torch.rand(2, 3), torch.rand(3, 4)
    if columns:
        mat1, mat2 = mat1.t().contiguous().t(), mat2.t().contiguous().t()
    mat1.requires_grad_(), mat2.requires_grad_()
    found = grad(ops.mm(mat1, mat2).sum(), (mat1, mat2))
    expected = grad(torch.mm(mat1, mat2).sum(), (mat1, mat2))
    assert_close(found, expected)
    assert [g.stride() for g in found] == [m.stride() for m in (mat1, mat2)]


def test_a_tangent_of_one_matrix_takes_one_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    products: list[str] = []
    wanted = Evaluator._apply

    def counted(self: Evaluator, name: str, args: list[Any], expr: Any) -> Any:
        found = wanted(self, name, args, expr)
        if found is not ZERO:
            products.append(name)
        return found

    monkeypatch.setattr(Evaluator, "_apply", counted)
    _, _, (bias, mat1, mat2) = case("addmm", F64)
    with torch.no_grad(), forward_ad.dual_level():
        dual = forward_ad.make_dual(mat1, torch.ones_like(mat1))
        tangent = forward_ad.unpack_dual(ops.addmm(bias, dual, mat2, alpha=2)).tangent
    assert products == ["mm"]
    assert_close(tangent, 2 * torch.ones_like(mat1) @ mat2.detach())


def test_the_pointwise_part_is_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    computed = evaluate.computed

    def recorded(tree: Any, leaves: Any) -> Tensor:
        texts.append(unparse(tree))
        return computed(tree, leaves)

    monkeypatch.setattr(evaluate, "computed", recorded)
    ours, theirs, args = case("addmm", F64)
    tangents = tuple(torch.rand_like(a) for a in args)
    plain = tuple(a.detach() for a in args)
    found = func.jvp(ours, plain, tangents)
    assert texts == [
        "maybe_multiply(t0, s0) + maybe_multiply(t1, s1) + maybe_multiply(t2, s1)"
    ]
    assert_close(found, func.jvp(theirs, plain, tangents))


def test_only_the_other_matrix_is_saved() -> None:
    packed: list[Tensor] = []
    mat1, mat2 = torch.rand(2, 3, requires_grad=True), torch.rand(3, 4)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: packed.append(t) or t, lambda t: t
    ):
        ops.mm(mat1, mat2)
    assert [t is mat2 for t in packed] == [True]


def test_conjugate_matrices_are_not_copied_first() -> None:
    a, b = torch.randn(2, 3, dtype=C128), torch.randn(4, 3, dtype=C128)
    assert_close(ops.mm(a, b.t().conj()), a @ b.mH)
    registered = torch.ops.atentriton.mm.default
    assert_close(registered(a, b.t().conj()), a @ b.mH)


def test_autocast_casts_as_for_torch() -> None:
    _, _, (bias, mat1, mat2) = case("addmm", torch.float32)
    for addmm in (ops.addmm, torch.ops.atentriton.addmm.default):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = addmm(bias, mat1, mat2)
            expected = torch.addmm(bias, mat1, mat2)
        assert_close(found, expected)
        leaves = (bias, mat1, mat2)
        assert_close(grad(found.sum(), leaves), grad(expected.sum(), leaves))


def test_compiled_whole() -> None:
    ours, theirs, args = case("addmm", F64)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    found = compiled(*args)
    assert_close(found, theirs(*args))
    assert_close(grad(found.sum(), args), grad(theirs(*args).sum(), args))
    torch._dynamo.reset()


def test_opcheck() -> None:
    _, _, args = case("mm", F64)
    assert ops.mm.overloads() == ["default"]
    torch.library.opcheck(torch.ops.atentriton.mm.default, args)


# -- formulas over tensors
# ---------------------------------------------------------------


def evaluated(text: str, **names: Any) -> Any:
    return Evaluator(names).value(parse_formula(text))


def test_a_shape_is_asked_for_without_the_elements() -> None:
    found = reads(parse_formula("f(grad, a, b.sizes(), a.strides(), c.size(d.dim()))"))
    assert found == (frozenset({"grad", "a"}), frozenset({"b", "c", "d"}))
    shape = Geometry((2, 3), (3, 1), F64)
    assert evaluated("b.sizes()", b=shape) == [2, 3]
    assert evaluated("b.size(1) * 2", b=shape) == 6


def test_numbers_stay_numbers() -> None:
    assert evaluated("-alpha.conj() * 2", alpha=1 + 2j) == -2 + 4j
    assert evaluated("a > 1 ? b : c", a=2, b="yes", c="no") == "yes"


def test_pointwise_parts_promote_and_broadcast_as_torch_does() -> None:
    a, b, c = torch.rand(2, 3), torch.rand(3, dtype=F64), torch.rand(3, 2)
    assert_close(evaluated("a * b + 2", a=a, b=b), a * b + 2)
    assert_close(evaluated("a.mm(c).sin() * s", a=a, c=c, s=0.5), (a @ c).sin() * 0.5)
    assert evaluated("maybe_multiply(a, s)", a=a, s=1) is a


def test_a_missing_tangent_costs_nothing() -> None:
    a = torch.rand(2, 2)
    assert evaluated("z.mm(a) * a", z=ZERO, a=a) is ZERO
    assert evaluated("z + a", z=ZERO, a=a) is a
    assert_close(evaluated("z - a", z=ZERO, a=a), -a)
    assert evaluated("a - z.conj()", z=ZERO, a=a) is a
