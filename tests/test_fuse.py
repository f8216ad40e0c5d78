"""`fuse`: a function as one kernel, and as one for each derivative."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, func
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from atentriton import explain, fuse, native, ops
from atentriton.fusing import FusedFunction, FusionError

F64 = torch.float64


@fuse
def swiglu(a: Tensor, b: Tensor) -> Tensor:
    return F.silu(a) * b


@fuse
def snake(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return x + torch.sin(x * torch.exp(a)) ** 2 / (torch.exp(b) + 1e-9)


@fuse
def several(x: Tensor, s: float = 2.0, *, flag: bool = True) -> dict[str, Any]:
    y = x * s / x.shape[-1]
    y += 1
    if flag:
        y.relu_()
    return {"y": y, "z": [y * 2, torch.where(x > 0, torch.ones_like(x), y)]}


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=F64, requires_grad=True)


def test_values_for_changing_sizes_and_numbers() -> None:
    for rows, columns in ((4, 6), (5, 7), (4, 6), (9, 3)):
        x, a = leaf(rows, columns), leaf(columns)
        assert_close(swiglu(x, a), swiglu.function(x, a))
        assert_close(snake(x, a, a), snake.function(x, a, a))
        for s in (2.0, 3.5, 2.0):
            assert_close(several(x, s), several.function(x, s))
            assert_close(
                several(x, s=s, flag=False), several.function(x, s, flag=False)
            )


def test_sizes_do_not_trace_again() -> None:
    traced: list[int] = []

    @fuse
    def f(x: Tensor) -> Tensor:
        traced.append(1)
        return torch.tanh(x) * x / x.shape[-1]

    for size in (3, 4, 5, 50):
        x = torch.rand(size, size + 1)
        assert_close(f(x), f.function(x))
    assert sum(traced) == 1 + 4, "once by fuse, four times by the test itself"


def test_derivatives_of_first_and_second_order() -> None:
    given = leaf(4, 6), leaf(6), leaf(6)
    assert gradcheck(snake, given, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(snake, given)


def test_third_order() -> None:
    x = leaf(5)
    found = [x, x]
    for i, f in enumerate((swiglu, swiglu.function)):
        value = f(x, x).sum()
        for _ in range(3):
            (value,) = grad(value.sum(), x, create_graph=True)
        found[i] = value
    assert_close(found[0], found[1])


def test_transforms() -> None:
    x, a = leaf(4, 6).detach(), leaf(6).detach()
    ours: Callable[..., Any] = swiglu
    theirs: Callable[..., Any] = swiglu.function
    for transform in (
        lambda f: func.vmap(f, (0, None))(x, a),
        lambda f: func.jacrev(f)(x, a),
        lambda f: func.jacfwd(f)(x, a),
        lambda f: func.hessian(lambda b: f(x, b).sum())(a),
        lambda f: func.jvp(lambda y: f(y, a), (x,), (x,)),
    ):
        assert_close(transform(ours), transform(theirs))


def laid_out() -> dict[str, Tensor]:
    r = torch.rand
    return {
        "contiguous": r(4, 3, 5, 2),
        "permuted": r(3, 4, 5, 2).transpose(0, 1),
        "channels last": r(4, 3, 5, 2).to(memory_format=torch.channels_last),
        "with gaps": r(4, 3, 5, 4)[..., ::2],
        "reversed": r(2, 5, 3, 4).permute(3, 2, 1, 0),
        "expanded": r(4, 1, 5, 2).expand(4, 3, 5, 2),
    }


# Functions with operators whose results are not laid out like all that they take.
OWN_LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "masked_fill": lambda x, y: x.masked_fill(y > 0.5, 0.0),
    "masked_fill between": lambda x, y: x.sin().masked_fill(y > 0.5, 0.0) * y,
    "masked_fill second": lambda x, y: y * x.masked_fill(x > 0.5, 0.0),
    "masked_fill by a tensor": lambda x, y: x.masked_fill(y > 0.5, y.new_ones(())),
    "a number's power": lambda x, y: 2**x + y,
    "rsub": lambda x, y: torch.rsub(x.exp(), y.sin()) * 2,
    "threshold": lambda x, y: torch.ops.aten.threshold_backward(x, y.cos(), 0.5),
    "mvlgamma": lambda x, y: torch.mvlgamma(x + 3, 2) * y,
    "logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "two results": lambda x, y: (x.masked_fill(y > 0.5, 0.0), x.sin() * y),
}


@pytest.mark.parametrize("name", OWN_LAYOUTS)
def test_results_are_laid_out_as_eagerly(name: str) -> None:
    function = OWN_LAYOUTS[name]
    fused = fuse(function)
    for x, y in product(laid_out().values(), repeat=2):
        found, expected = fused(x, y), function(x, y)
        assert_close(found, expected)
        assert strides(found) == strides(expected)
    x, y = laid_out()["reversed"], laid_out()["contiguous"]
    found = func.jvp(fused, (x, y), (x * 2, y))
    assert_close(found, func.jvp(function, (x, y), (x * 2, y)))
    assert strides(found[0]) == strides(function(x, y))


def strides(found: Any) -> list[tuple[int, ...]]:
    return [t.stride() for t in tree_leaves(found)]


def test_one_kernel_each_way() -> None:
    x, a, b = leaf(64, 3), leaf(3), leaf(3)
    once = explain(lambda: grad(snake(x, a, b).sum(), (x, a, b)))
    assert [launch.kernels for launch in once.launches] == [1, 1]


def test_errors_name_the_line() -> None:
    @fuse
    def normed(x: Tensor) -> Tensor:
        return torch.softmax(x, -1) + 1  # here

    @fuse
    def branching(x: Tensor) -> Tensor:
        if x.sum() > 0:  # and here
            return x
        return -x

    with pytest.raises(FusionError, match=r"softmax.*not elementwise") as error:
        normed(leaf(3, 4))
    assert "# here" in str(error.value)
    with pytest.raises(FusionError, match="elements of a tensor") as error:
        branching(leaf(3))
    assert "# and here" in str(error.value)


def test_parts_are_fused_where_that_is_asked_for() -> None:
    def normed(x: Tensor) -> Tensor:
        y = torch.tanh(x) * 2
        return torch.exp(y - torch.softmax(y, -1)) * y

    fused = fuse(normed, partial=True)
    x = leaf(3, 4)
    assert_close(fused(x), normed(x))
    assert gradcheck(fused, (x,))
    assert gradgradcheck(fused, (x,))


def test_copies_and_pickles_are_the_function_itself() -> None:
    assert copy.deepcopy(swiglu) is swiglu
    assert pickle.loads(pickle.dumps(swiglu)) is swiglu
    by_hand = FusedFunction(_plain, partial=True)
    again = pickle.loads(pickle.dumps(by_hand))
    assert again.function is _plain and again.partial


def _plain(x: Tensor) -> Tensor:
    return x * 2


def test_no_size_compiles_anything_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    compile_ = native._compiled

    def counted(*given: Any) -> Any:
        compiled.append(given)
        return compile_(*given)

    monkeypatch.setattr(native, "_compiled", counted)
    fused = fuse(snake.function)

    def both(*shape: int) -> None:
        x, a = leaf(*shape), leaf(shape[-1])
        grad(fused(x, a, a).sum(), (x, a))

    both(40, 60)
    first = len(compiled)
    for shape in ((50, 70), (33, 65), (60, 40)):
        both(*shape)
    assert len(compiled) == first
    assert sum(map(len, fused.traces.values())) == 1


def test_another_pattern_of_broadcasting() -> None:
    fused = fuse(swiglu.function)
    for a, b in (
        ((4, 6), (4, 6)),
        ((4, 6), (6,)),
        ((4, 1), (1, 6)),
        ((1,), (4, 6)),
        ((), (4, 6)),
        ((4, 6), ()),
        ((0, 6), (1, 6)),
        ((4, 6), (4, 6)),
    ):
        given = leaf(*a), leaf(*b)
        found, right = fused(*given), swiglu.function(*given)
        assert_close(found, right)
        assert_close(grad(found.sum(), given), grad(right.sum(), given))


def test_arguments_by_name_in_any_order() -> None:
    a, b = leaf(3), leaf(3)
    for _ in range(2):
        assert_close(swiglu(b=b, a=a), swiglu(a, b))
        assert_close(swiglu(a, b=b), swiglu(a, b))


def test_numbers_of_each_kind() -> None:
    @fuse
    def scaled(x: Tensor, s: Any) -> Tensor:
        return x * s

    x = torch.arange(3)
    for s in (2, 2.0, True, 2.5, 3, float("inf"), 1e300, 2 + 1j, float("nan"), 2):
        found, right = scaled(x, s), x * s
        assert_close(found, right, equal_nan=True)
        assert found.dtype == right.dtype


def test_numbers_that_python_looks_at() -> None:
    @fuse
    def either(x: Tensor, s: float) -> Tensor:
        return x * s if s > 1 else x + s

    x = leaf(3)
    for s in (2.5, 0.5, 2.5, 1.5, 0.25):
        assert_close(either(x, s), x * s if s > 1 else x + s)


def test_what_is_on_around_the_call() -> None:
    fused = fuse(lambda x: torch.tanh(x) * 2.0)
    x = leaf(3)
    for _ in range(2):
        assert fused(x).requires_grad
        with torch.no_grad():
            assert not fused(x).requires_grad
        with torch.inference_mode():
            assert fused(x).is_inference()
    counted = fuse(lambda i: i * 2.0)
    i = torch.arange(3)
    before = torch.get_default_dtype()
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            assert counted(i).dtype == counted(i).dtype == dtype
        finally:
            torch.set_default_dtype(before)


def test_autocast() -> None:
    @fuse(partial=True)
    def product(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(x @ w) * 2

    x, w = torch.randn(3, 4), torch.randn(4, 5)
    for dtype in (torch.bfloat16, torch.float16, None, torch.bfloat16):
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            found, right = product(x, w), torch.relu(x @ w) * 2
        assert found.dtype == right.dtype
        assert_close(found, right, rtol=2e-2, atol=2e-2)


def test_which_gradients_are_asked_for() -> None:
    for first, second in ((True, False), (False, True), (True, True), (False, False)):
        a = leaf(3).detach().requires_grad_(first)
        b = leaf(3).detach().requires_grad_(second)
        value = swiglu(a, b)
        assert value.requires_grad == (first or second)
        leaves = [t for t in (a, b) if t.requires_grad]
        if leaves:
            right = swiglu.function(a, b)
            assert_close(grad(value.sum(), leaves), grad(right.sum(), leaves))


def test_what_is_kept_for_the_backward_pass() -> None:
    x, a = leaf(50, 40), leaf(40)
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        snake(x, a, a)
    assert {t.data_ptr() for t in kept} <= {x.data_ptr(), a.data_ptr()}


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([2.0, 3.0], dtype=F64))
        self.register_buffer("shift", torch.ones(2, dtype=F64))

    @fuse
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.scale + self.shift)


def test_methods_read_the_parameters_of_the_call() -> None:
    module = Scaled()
    x = leaf(3, 2)
    for _ in range(3):
        value = module(x)
        right = torch.tanh(x * module.scale + module.shift)
        assert_close(value, right)
        assert_close(grad(value.sum(), module.scale), grad(right.sum(), module.scale))
        with torch.no_grad():
            module.scale.mul_(1.5)
        module.scale = torch.nn.Parameter(module.scale.detach() + 1)
        module.shift = module.shift * 2
    assert isinstance(module.scale, torch.nn.Parameter)
    assert copy.deepcopy(module)(x).shape == (3, 2)


def test_tensors_from_elsewhere_are_no_arguments() -> None:
    outside = torch.ones(3, dtype=F64)
    fused = fuse(lambda x: x * outside)
    with pytest.raises(FusionError, match=r"shape \(3,\) that is not among its arg"):
        fused(leaf(3))


def test_explained() -> None:
    @fuse(partial=True)
    def attention(x: Tensor) -> Tensor:
        return torch.softmax(x.sin() * 2, -1) * x.exp()

    found = explain(attention, leaf(8, 16))
    (graph,) = found.graphs
    first, second = graph.accounts
    assert first.operators == ("sin", "mul.Tensor")
    assert first.read == first.written == first.saved == 8 * 16 * 8
    assert first.unfused == (2 * first.read, 2 * first.written, first.saved)
    assert first.ends == ("softmax.int is not elementwise",)
    assert second.operators == ("exp", "mul.Tensor")
    assert second.ends == ("the function returns",)
    assert graph.outside == {"softmax.int": "softmax.int is not elementwise"}
    assert "softmax.int is not elementwise" in " ".join(str(found).split())
    assert [d.operator for d in found.decisions] == [attention.__qualname__]
    drawn = found.dot()
    assert drawn.startswith("digraph") and drawn.count("fillcolor") == 2
    assert drawn.count("->") >= 5


@pytest.mark.slow
def test_inside_of_another_compiler() -> None:
    def step(x: Tensor, a: Tensor) -> Tensor:
        return swiglu(x * 2, a) + ops.tanh(a)

    given = leaf(4, 6), leaf(6)
    compiled = torch.compile(step, backend="inductor", fullgraph=True)
    found, right = compiled(*given), step(*given)
    assert_close(found, right)
    assert_close(grad(found.sum(), given), grad(right.sum(), given))
    torch._dynamo.reset()


def test_what_cannot_be_fused_is_said_in_words() -> None:
    with pytest.raises(TypeError, match="takes a function of tensors, not 3"):
        fuse(3)  # type: ignore[call-overload]
    x = leaf(3, 4)
    with pytest.raises(RuntimeError, match=r"size of tensor a \(4\) must match"):
        swiglu(x, leaf(3))
    with pytest.raises(FusionError, match=r"layout is torch\.sparse_coo"):
        swiglu(x.detach().to_sparse(), x)
    with pytest.raises(FusionError, match="cannot be traced") as error:
        fuse(lambda y: torch.from_numpy(y.numpy()))(x)  # the place
    assert "# the place" in str(error.value)
