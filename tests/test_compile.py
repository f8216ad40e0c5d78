"""torch.compile, export and make_fx: programs stay whole, and names last."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.autograd import grad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close

from atentriton import ops

F64 = torch.float64


def ours(x: Tensor) -> Tensor:
    return ops.acosh(ops.add(ops.mul(x, ops.exp(x)), 2))


def theirs(x: Tensor) -> Tensor:
    return torch.acosh(x * torch.exp(x) + 2)


def total(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: f(x).sum()


def values(seed: int = 0, size: int = 8) -> Tensor:
    return (
        torch.rand(size, dtype=F64, generator=torch.Generator().manual_seed(seed)) + 0.5
    )


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def targets(graph: torch.fx.GraphModule) -> list[str]:
    return [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]


# -- tracing
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_records_one_node_an_operator(mode: str) -> None:
    x = values()
    graph = make_fx(ours, tracing_mode=mode)(x)
    assert [t for t in targets(graph) if t.startswith("atentriton")] == [
        "atentriton.exp.default",
        "atentriton.mul.Tensor",
        "atentriton.add.Scalar",
        "atentriton.acosh.default",
    ]
    assert_close(graph(values(1)), theirs(values(1)))


def test_make_fx_records_derivatives_by_their_names() -> None:
    graph = make_fx(func.grad(total(ours)))(values())
    lineages = [
        n.args[0]
        for n in graph.graph.nodes
        if str(n.target) == "atentriton.derived.default"
    ]
    assert "acosh(float64).vjp(self)" in lineages
    assert_close(graph(values(1)), func.grad(total(theirs))(values(1)))


def test_make_fx_before_dispatch() -> None:
    graph = make_fx(ours, tracing_mode="symbolic", pre_dispatch=True)(values())
    assert "atentriton.acosh.default" in targets(graph)
    assert_close(graph(values(1, 5)), theirs(values(1, 5)))


class Module(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return ours(x)


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict: bool) -> None:
    size = torch.export.Dim("size")
    program = torch.export.export(
        Module(), (values(),), dynamic_shapes=({0: size},), strict=strict
    )
    assert "atentriton.acosh.default" in targets(program.graph_module)
    assert_close(program.module()(values(1, 5)), theirs(values(1, 5)))


LOAD = """
import io, sys, torch, atentriton
atentriton.register()
program = torch.export.load(io.BytesIO(sys.stdin.buffer.read()))
x = torch.arange(1, 9, dtype=torch.float64)
print(program.module()(x).tolist())
"""


def test_what_was_exported_runs_in_another_process() -> None:
    """Derivatives too: a lineage is enough to derive a program anew."""

    gradient = make_fx(func.grad(total(ours)))(values())
    program = torch.export.export(gradient, (values(),))
    assert "atentriton.derived.default" in targets(program.graph_module)
    saved = io.BytesIO()
    torch.export.save(program, saved)
    run = subprocess.run(
        [sys.executable, "-c", LOAD], input=saved.getvalue(), capture_output=True
    )
    assert run.returncode == 0, run.stderr.decode()
    x = torch.arange(1, 9, dtype=F64)
    found = torch.tensor(eval(run.stdout), dtype=F64)
    assert_close(found, func.grad(total(theirs))(x))


# -- torch.compile
# -----------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_whole_with_gradients(backend: str) -> None:
    compiled = torch.compile(ours, backend=backend, fullgraph=True)
    x = values().requires_grad_()
    y = compiled(x)
    assert_close(y, theirs(x))
    assert_close(grad(y.sum(), x), grad(theirs(x).sum(), x))
    assert_close(compiled(values(1)), theirs(values(1)))


INSIDE: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Any]] = {
    "grad": lambda f, x: func.grad(total(f))(x),
    "jvp": lambda f, x: func.jvp(f, (x,), (x,))[1],
    "hessian": lambda f, x: func.hessian(total(f))(x),
    "vmap": lambda f, x: func.vmap(f)(x),
}


@pytest.mark.parametrize("name", INSIDE)
def test_transforms_inside(name: str) -> None:
    def f(x: Tensor) -> Tensor:
        return INSIDE[name](ours, x)

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    assert_close(compiled(values()), INSIDE[name](theirs, values()))


def test_autograd_grad_inside() -> None:
    """The graph breaks there; what is run then must not be traced into."""

    def f(op: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (g,) = grad(op(x).sum(), x, create_graph=True)
        return g * 2

    compiled = torch.compile(lambda x: f(ours, x), backend="aot_eager")
    assert_close(compiled(values()), f(theirs, values()))


def test_in_place_inside() -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 1
        ops.exp_(y)
        return ops.mul_(y, x)

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    x = values().requires_grad_()
    expected = x.exp() * x
    assert_close(compiled(x), expected)
    assert_close(grad(compiled(x).sum(), x), grad(expected.sum(), x))


def test_sizes_may_change() -> None:
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True, dynamic=True)
    for size in (8, 5, 12):
        x = values(size, size).requires_grad_()
        y = compiled(x)
        assert_close(y, theirs(x))
        assert_close(grad(y.sum(), x), grad(theirs(x).sum(), x))


def test_numbers_may_change() -> None:
    def f(x: Tensor, scale: float) -> Tensor:
        return ops.mul(x, scale)

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
    for scale in (2.0, 0.5, 3.25):
        assert_close(compiled(values(), scale), values() * scale)


def test_inductor_runs_forward_and_backward_whole() -> None:
    compiled = torch.compile(ours, fullgraph=True)
    x = values().requires_grad_()
    y = compiled(x)
    assert_close(y, theirs(x))
    assert_close(grad(y.sum(), x), grad(theirs(x).sum(), x))


@pytest.mark.slow
@pytest.mark.parametrize("name", INSIDE)
def test_inductor_runs_transforms_inside(name: str) -> None:
    def f(x: Tensor) -> Tensor:
        return INSIDE[name](ours, x)

    compiled = torch.compile(f, fullgraph=True, dynamic=True)
    for size in (8, 5):
        assert_close(compiled(values(0, size)), INSIDE[name](theirs, values(0, size)))


# -- registration
# ------------------------------------------------------------------------


def leaf(*shape: int) -> Tensor:
    return (torch.rand(shape, dtype=F64) + 1.5).requires_grad_()


OPCHECKS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "acosh": lambda: (torch.ops.atentriton.acosh.default, (leaf(3),)),
    "mul": lambda: (torch.ops.atentriton.mul.Tensor, (leaf(3, 1), leaf(4))),
    "add": lambda: (torch.ops.atentriton.add.Scalar, (leaf(3), 2.5)),
    "derived": lambda: (
        torch.ops.atentriton.derived.default,
        ("acosh(float64).vjp(self)", [leaf(3), leaf(3)], []),
    ),
}


@pytest.mark.parametrize("name", OPCHECKS)
def test_opcheck(name: str) -> None:
    for used in (ops.acosh, ops.mul, ops.add):
        assert used.overloads()
    operator, args = OPCHECKS[name]()
    torch.library.opcheck(operator, args)
