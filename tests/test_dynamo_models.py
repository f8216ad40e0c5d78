"""torch.compile(..., backend="atentriton"): its name, models, what else is on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, func, nn
from torch.autograd import forward_ad, grad, gradgradcheck
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from atentriton import explain
from atentriton.decisions import FellBack
from atentriton.dynamo import atentriton as backend
from atentriton.settings import strict
from tests.compiled import F64, leaf
from tests.compiled import fresh as fresh

ROOT = Path(__file__).resolve().parent.parent


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=backend, **options)


def regions(function: Callable[..., Any], *given: Any) -> list[tuple[str, ...]]:
    """The operators of each kernel of a compiled function that has run already."""
    found = explain(function, *given)
    return [a.operators for graph in found.graphs for a in graph.accounts]


# -- the name
# -----------------------------------------------------------------------------


def test_the_name_is_known_once_the_module_is_imported() -> None:
    program = (
        "import torch, atentriton.dynamo\n"
        "f = torch.compile(lambda x: x.sin() * 2, backend='atentriton')\n"
        "assert f(torch.ones(3)).allclose(torch.ones(3).sin() * 2)\n"
        "assert 'atentriton' in torch._dynamo.list_backends()\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_the_package_names_its_backend() -> None:
    found = entry_points(group="torch_dynamo_backends", name="atentriton")
    if not found:
        pytest.skip("the package is not installed here")
    assert all(e.load() is backend for e in found)


def test_a_name_that_the_package_gives_is_registered_once() -> None:
    program = (
        "from importlib.metadata import EntryPoint\n"
        "from torch._dynamo.backends import registry\n"
        "value = 'atentriton.dynamo:atentriton'\n"
        "point = EntryPoint('atentriton', value, 'torch_dynamo_backends')\n"
        "registry._BACKENDS['atentriton'] = point\n"
        "found = registry.lookup_backend('atentriton')\n"
        "assert found.__module__ == 'atentriton.dynamo'\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


# -- models
# -------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention, and a gated network, with what is usual around them."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.gate, self.up = nn.Linear(width, 12), nn.Linear(width, 12)
        self.down = nn.Linear(12, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = batch, length, self.heads, width // self.heads
        q, k, v = (
            t.view(shape).transpose(1, 2)
            for t in self.queries(self.first(x)).chunk(3, -1)
        )
        scores = (q @ k.transpose(-1, -2)) * shape[-1] ** -0.5
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(mask, -1e9).softmax(-1) @ v
        x = x + F.dropout(
            self.out(mixed.transpose(1, 2).reshape(x.shape)), 0.1, self.training
        )
        h = self.second(x)
        return x + self.scale * self.down(F.silu(self.gate(h)) * self.up(h))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.one(x)))
        return F.gelu(self.two(y)) * torch.sigmoid(y) + y


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Softplus(), nn.Linear(8, 1)
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (perceptron, (5, 6)),
    "convolutions": (Convolutions, (2, 3, 5, 5)),
    "attention": (Block, (2, 4, 8)),
}


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, training: bool) -> None:
    made, shape = MODELS[name]
    theirs = made().double().train(training)
    ours = made().double().train(training)
    ours.load_state_dict(theirs.state_dict())
    run = compiled(ours, fullgraph=True)
    for rows in (shape[0], 4, 7):
        x = leaf(rows, *shape[1:])
        for model, f in ((ours, run), (theirs, theirs)):
            torch.manual_seed(rows)
            value = f(x)
            found = [value, *grad(value.square().sum(), [x, *model.parameters()])]
            if model is ours:
                kept = found
        assert_close(kept, found)
        assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()))
    with torch.no_grad():
        assert not run(x).requires_grad
    with torch.inference_mode():
        torch.manual_seed(2)
        value = run(x)
        torch.manual_seed(2)
        assert_close(value, theirs(x))


def test_second_derivatives_of_a_model() -> None:
    model = perceptron().double()
    run = compiled(model, fullgraph=True)
    x = leaf(3, 6)

    def energy_and_force(f: Callable[[Tensor], Tensor]) -> list[Tensor]:
        (force,) = grad(f(x).sum(), x, create_graph=True)
        return [force, *grad(force.square().sum(), list(model.parameters())[:-1])]

    assert_close(energy_and_force(run), energy_and_force(model))


def test_regions_of_a_model() -> None:
    model = Block().double().eval()
    run = compiled(model)
    x = leaf(2, 4, 8)
    run(x)
    found = regions(run, x)
    assert ("silu", "mul.Tensor") in found
    assert ("mul.Tensor", "add.Tensor") in found


# -- shapes and graphs
# --------------------------------------------------------------------


def test_sizes_become_numbers() -> None:
    graphs: list[Any] = []

    def counted(module: Any, inputs: Any) -> Any:
        graphs.append(1)
        return backend(module, inputs)

    run = torch.compile(
        lambda x: torch.tanh(x) * x.shape[0] / x.shape[1], backend=counted, dynamic=True
    )
    for rows, columns in ((3, 4), (5, 4), (8, 9)):
        x = leaf(rows, columns)
        value = run(x)
        assert_close(value, torch.tanh(x) * rows / columns)
        right = torch.tanh(x) * rows / columns
        assert_close(grad(value.sum(), x), grad(right.sum(), x))
    assert len(graphs) == 1


def test_several_graphs() -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.sin(x) * 2
        torch._dynamo.graph_break()
        return torch.exp(y) + y if y.sum() > 0 else torch.exp(-y)

    run = compiled(function)
    for sign in (1, -1):
        x = leaf(5).detach().abs().mul_(0.1 * sign).requires_grad_()
        found, right = run(x), function(x)
        assert_close(found, right)
        assert_close(grad(found.sum(), x), grad(right.sum(), x))


def test_unknown_operators_pass() -> None:
    def function(x: Tensor) -> Any:
        values, places = torch.sort(torch.sin(x) * 2)
        return torch.linalg.norm(values.exp()), places, torch.fft.rfft(x * 2).abs()

    x = leaf(6)
    assert_close(compiled(function, fullgraph=True)(x), function(x))


def test_nothing_to_fuse() -> None:
    x = leaf(3, 3)
    assert_close(compiled(lambda x: x @ x)(x), x @ x)


def test_a_graph_that_cannot_be_traced_is_pytorch_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from atentriton import dynamo

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(dynamo, "make_fx", refuse)
    x = leaf(3)
    found = explain(compiled(lambda x: x.sin() * 2), x)
    assert_close(found.result, x.sin() * 2)
    assert "the graph cannot be traced: no" in [d.reason for d in found.fell_back]
    torch._dynamo.reset()
    with strict(), pytest.raises(Exception, match="cannot be traced") as error:
        compiled(lambda x: x.cos() * 2)(x)
    assert isinstance(error.value, FellBack) or "FellBack" in repr(error.value)


# -- what else is on
# ----------------------------------------------------------------------


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("inside", [True, False, None])
def test_autocast(inside: bool | None, outside: bool) -> None:
    linear = nn.Linear(6, 6)

    def function(x: Tensor) -> Tensor:
        y = F.silu(linear(x)) * 2
        if inside is None:
            return y
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            return F.silu(linear(x)) * 2 + y

    run = compiled(function, fullgraph=True)
    x = torch.randn(4, 6)
    with torch.autocast("cpu", torch.bfloat16, enabled=outside):
        found, right = run(x), function(x)
    assert found.dtype == right.dtype
    assert_close(found, right, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("inside", [True, False])
def test_checkpoints(inside: bool) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.tanh(x * 2) * torch.exp(x)

    run = compiled(function)
    if inside:
        run = compiled(lambda x: checkpoint(function, x, use_reentrant=False) + x)
    x = leaf(5)
    found = run(x) if inside else checkpoint(run, x, use_reentrant=False)
    right = function(x) + (x if inside else 0)
    assert_close(found, right)
    assert_close(grad(found.sum(), x), grad(right.sum(), x))


def test_forward_mode() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.tanh(x) * x.exp()

    run = compiled(function)
    x, t = leaf(5).detach(), torch.rand(5, dtype=F64)
    tangents: list[Tensor] = []
    for f in (run, function):
        with forward_ad.dual_level():
            value = f(forward_ad.make_dual(x, t))
            tangents.append(forward_ad.unpack_dual(value).tangent)
    assert_close(*tangents)


def test_transforms_inside() -> None:
    def function(x: Tensor) -> Any:
        def scalar(x: Tensor) -> Tensor:
            return (torch.tanh(x) * x.exp()).sum()

        return func.grad(scalar)(x), func.vmap(torch.sin)(x) * 2

    x = leaf(3, 4).detach()
    found = explain(compiled(function), x)
    assert_close(found.result, function(x))
    assert any("torch.func" in d.reason for d in found.fell_back)


def test_in_place_results_differentiate_twice() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.exp()
        y.mul_(x).add_(1)
        z = y.view(-1)
        z.sigmoid_()
        return y * x

    assert gradgradcheck(compiled(function), (leaf(2, 3),))


# -- operators, one by one
# ----------------------------------------------------------------


def _infos() -> list[Any]:
    from torch.testing._internal import common_methods_invocations as database

    kinds = database.UnaryUfuncInfo, database.BinaryUfuncInfo
    return [i for i in database.op_db if isinstance(i, kinds)]


@pytest.mark.slow
def test_operators_of_pytorch_s_own_database() -> None:
    """Values and gradients of each elementwise operator's own samples."""
    wrong: list[str] = []
    seen = 0
    for info in _infos():
        for dtype in (F64, torch.float32, torch.complex128, torch.int64):
            if dtype not in info.supported_dtypes("cpu") or "jiterator" in info.name:
                continue
            torch._dynamo.reset()
            wanted = dtype in info.supported_backward_dtypes("cpu")
            samples = list(info.sample_inputs("cpu", dtype, requires_grad=wanted))[:3]
            for sample in samples:
                seen += 1
                trouble = _trouble(info.op, sample)
                if trouble:
                    wrong.append(f"{info.name} {dtype}: {trouble}")
    assert not wrong, "\n".join(wrong)
    assert seen > 500


def _trouble(operator: Callable[..., Any], sample: Any) -> str:
    """What differs where the operator is compiled; nothing if all is well."""

    def function(given: Tensor, *args: Any) -> Any:
        return operator(given, *args, **sample.kwargs)

    given = sample.input, *sample.args
    leaves = [t for t in given if isinstance(t, Tensor) and t.requires_grad]
    results: list[Any] = []
    for f in (function, compiled(function, dynamic=False)):
        try:
            value = f(*given)
            tensors = value if isinstance(value, tuple) else (value,)
            ends = [t.abs().sum() for t in tensors if t.requires_grad]
            gradients: Any = ()
            if ends:
                gradients = grad(sum(ends), leaves, allow_unused=True)
            results.append([*tensors, *(g for g in gradients if g is not None)])
        except Exception as error:
            results.append(error)
    theirs, ours = results
    if isinstance(theirs, Exception):
        return ""
    if isinstance(ours, Exception):
        return f"{type(ours).__name__}: {str(ours)[:200]}"
    # In float32 it is PyTorch that is off by more, near poles and zeros.
    loose = any(t.dtype == torch.float32 for t in theirs)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if loose else {}
    try:
        assert_close(ours, theirs, equal_nan=True, **tolerance)
    except AssertionError as error:
        return str(error)[:200]
    return ""
