"""What else may be going on when operators are replaced: each mode of PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, func, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad, grad, graph
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from atentriton import use
from atentriton.decisions import Decision, watched

F64, BF16 = torch.float64, torch.bfloat16


@pytest.fixture
def x() -> Tensor:
    return torch.rand(6, dtype=F64) + 0.5


def ran(call: Callable[[], Any]) -> list[tuple[str, str]]:
    """The operators that are called, and what runs for each."""
    with watched() as events:
        call()
    return [(e.operator, e.ran) for e in events if isinstance(e, Decision)]


def why(call: Callable[[], Any]) -> list[str]:
    with watched() as events:
        call()
    return [e.reason for e in events if isinstance(e, Decision)]


# -- grad modes
# ------------------------------------------------------------------------


def test_inference_mode(x: Tensor) -> None:
    with torch.inference_mode(), use():
        y = x.tanh()
        assert y.is_inference()
        y += 1
        y.sin_()
        assert ran(lambda: y * 2) == [("mul.Scalar", "fused")]
    assert_close(y.clone(), (x.tanh() + 1).sin())


def test_forward_mode(x: Tensor) -> None:
    with use(), forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangent = forward_ad.unpack_dual(dual.tanh() * dual).tangent
    assert_close(tangent, (1 - x.tanh() ** 2) * x + x.tanh())


def test_transforms(x: Tensor) -> None:
    def f(a: Tensor) -> Tensor:
        return (a.tanh() * a.exp() - 2**a).sum()

    transformed: dict[str, Callable[[], Any]] = {
        "grad": lambda: func.grad(f)(x),
        "hessian": lambda: func.hessian(f)(x),
        "jacrev": lambda: func.jacrev(torch.tanh)(x),
        "jacfwd": lambda: func.jacfwd(torch.tanh)(x),
        "jvp": lambda: func.jvp(f, (x,), (x,)),
        "vmap": lambda: torch.vmap(lambda a: a.tanh() * 2)(x),
        "grads": lambda: torch.vmap(func.grad(lambda a: 2 - a.tanh()))(x),
    }
    for name, call in transformed.items():
        expected = call()
        with use():
            assert_close(call(), expected, msg=lambda m, n=name: f"{n}: {m}")
            assert ran(call)


# -- saved tensors
# ---------------------------------------------------------------------


def test_hooks_on_saved_tensors(x: Tensor) -> None:
    w = x.requires_grad_()
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> int:
        packed.append(tensor)
        return len(packed) - 1

    with use(), graph.saved_tensors_hooks(pack, packed.__getitem__):
        y = w.tanh()
    assert len(packed) == 1
    y.sum().backward()
    with use(), graph.save_on_cpu():
        (again,) = grad((w.tanh() * 1).sum(), w)
    assert_close(again, w.grad)


# -- autocast
# --------------------------------------------------------------------------


def casts() -> dict[str, Callable[[], Tensor]]:
    f = torch.rand(3, 3) + 0.1
    h, d = f.bfloat16(), f.double()
    return {
        "exp": lambda: f.exp(),
        "exp of half": lambda: h.exp(),
        "log of half": lambda: h.log(),
        "mm": lambda: f.mm(f),
        "mm of double": lambda: d.mm(d),
        "addmm": lambda: torch.addmm(f, f, f),
        "bmm": lambda: torch.bmm(f[None], f[None]),
        "matmul": lambda: f @ h,
        "linear": lambda: F.linear(f, f, f[0]),
        "mixed": lambda: f + h,
        "half": lambda: h * h,
        "pow": lambda: h**2,
        "reversed pow": lambda: 2**h,
        "atan2": lambda: torch.atan2(f, h),
        "addcmul": lambda: torch.addcmul(f, f, h),
        "mse_loss": lambda: F.mse_loss(h, h),
        "smooth_l1_loss": lambda: F.smooth_l1_loss(h, f),
        "huber_loss": lambda: F.huber_loss(h, f),
        "with logits": lambda: F.binary_cross_entropy_with_logits(h, f),
        "gelu": lambda: F.gelu(h),
        "softplus": lambda: F.softplus(h),
        "polygamma": lambda: torch.polygamma(1, h),
        "in place": lambda: h.clone().mul_(f),
    }


@pytest.mark.parametrize("name", casts())
def test_autocast_gives_the_dtype_of_eager(name: str) -> None:
    call = casts()[name]
    for cached in (False, True):
        with torch.autocast("cpu", dtype=BF16, cache_enabled=cached):
            expected = call()
            with use():
                found = call()
                assert call() is not found
        assert found.dtype == expected.dtype
        assert_close(found, expected, rtol=2e-2, atol=2e-2)


def test_autocast_is_differentiable() -> None:
    leaves = [torch.rand(3, 3, requires_grad=True) for _ in range(2)]

    def f(a: Tensor, b: Tensor) -> Tensor:
        return (a.mm(b).exp() * a).sum()

    with torch.autocast("cpu", dtype=BF16):
        expected = grad(f(*leaves), leaves)
        with use():
            found = grad(f(*leaves), leaves)
    assert_close(found, expected, rtol=2e-2, atol=2e-2)


def test_custom_float32_regions_within_autocast() -> None:
    h = torch.rand(3).bfloat16()
    off = torch.autocast("cpu", enabled=False)
    with torch.autocast("cpu", dtype=BF16), use(), off:
        assert h.exp().dtype == BF16
        assert (h.float() * 2).dtype == torch.float32


# -- modes
# -----------------------------------------------------------------------------


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def test_a_dispatch_mode_sees_our_operators(x: Tensor) -> None:
    with use(), Recorder() as inside:
        y = x.tanh() * 2
    with Recorder() as outside, use():
        y.sin_()
    assert inside.seen == ["atentriton.tanh.default", "atentriton.mul.Scalar"]
    assert outside.seen
    assert_close(y, (x.tanh() * 2).sin())


def test_fake_tensors(x: Tensor) -> None:
    with use(), FakeTensorMode():
        y = torch.rand(3, 4).tanh() * 2
        y += 1
        assert isinstance(y, FakeTensor)
        assert y.shape == (3, 4)


def test_make_fx(x: Tensor) -> None:
    def f(a: Tensor) -> Tensor:
        with use():
            return (a.tanh() * a).sum()

    traced = make_fx(f)(x)
    assert "atentriton.tanh.default" in traced.code
    assert_close(traced(x), f(x))


def test_jit_tracing(x: Tensor) -> None:
    with use():
        x.tanh()  # a call that looks the same has been made before
        traced = torch.jit.trace(lambda a: a.tanh() * 2, x)
    assert "atentriton.tanh" in traced.code
    assert_close(traced(x + 1), (x + 1).tanh() * 2)


@pytest.mark.parametrize("around", [False, True], ids=["alone", "around"])
@pytest.mark.parametrize("breaks", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("inside", [False, True], ids=["out", "in"])
def test_what_is_compiled_is_the_compilers(
    inside: bool, breaks: bool, around: bool, x: Tensor
) -> None:
    def f(a: Tensor) -> Tensor:
        b = a.tanh()
        if breaks:
            torch._dynamo.graph_break()
        return (b * a).sum()

    def within(a: Tensor) -> Tensor:
        with use():
            return f(a)

    w = x.requires_grad_()
    compiled = torch.compile(within if inside else f, backend="aot_eager")
    try:
        with use() if around else nullcontext():
            for _ in range(2):
                y = compiled(w)
                (found,) = grad(y, w)
    finally:
        torch._dynamo.reset()
    assert torch._C._len_torch_function_stack() == 0
    assert_close(y, f(w))
    assert_close(found, *grad(f(w), w))


def test_another_function_mode(x: Tensor) -> None:
    with use():
        torch.set_default_device("meta")
        try:
            made = torch.rand(3)
            assert made.tanh().device.type == "meta"
            assert ran(lambda: x.tanh()) == [("tanh", "fused")]
        finally:
            torch.set_default_device(None)
        assert torch.rand(3).device.type == "cpu"
    with torch.device("meta"), use():
        assert torch.rand(3).tanh().device.type == "meta"
        assert_close(x.tanh(), x.sinh() / x.cosh())


def test_a_number_on_the_cpu_with_another_device() -> None:
    m = torch.rand(3, device="meta")
    with use():
        found = (m * torch.tensor(2.0), torch.tensor(1.0, dtype=F64) + m)
        assert [(f.device.type, f.dtype) for f in found] == [("meta", m.dtype)] * 2
        with pytest.raises(RuntimeError, match="meta"):
            m + torch.rand(3)
        with pytest.raises(RuntimeError, match="meta"):
            torch.rand(3).add_(m)


# -- other kinds of tensors
# ------------------------------------------------------------


class Plain(Tensor):
    """A subclass that changes nothing."""


class Logging(Tensor):
    """A subclass that says what it was called with."""

    calls: list[str]

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        cls.calls.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


def test_subclasses_are_left_to_torch(x: Tensor) -> None:
    plain = x.as_subclass(Plain)
    with use():
        for call in (plain.tanh, lambda: plain * x, lambda: 2 - plain):
            assert type(call()) is Plain
            assert {how for _, how in ran(call)} == {"torch"}
        assert why(plain.tanh) == ["an argument is a Plain"]
        assert ran(lambda: nn.Parameter(x) * 2) == [("mul.Scalar", "fused")]
        assert type(nn.Parameter(x) * 2) is Tensor


def test_subclasses_are_asked(x: Tensor) -> None:
    logging = x.as_subclass(Logging)
    Logging.calls = []
    with use():
        result = logging.tanh()
    asked = [call for call in Logging.calls if call != "__get__"]  # by torch 2.11
    assert asked == ["tanh"]
    assert type(result) is Logging


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_strided_is_left_to_torch(x: Tensor) -> None:
    matrix = torch.eye(3)
    given = {
        "an argument's layout is torch.sparse_coo": lambda: matrix.to_sparse() * 2,
        "an argument's layout is torch.sparse_csr": lambda: matrix.to_sparse_csr() * 2,
        "an argument is quantized": lambda: torch.quantize_per_tensor(
            matrix, 0.1, 0, torch.quint8
        ).relu(),
    }
    for reason, call in given.items():
        with use():
            found = call()
            assert why(call) == [reason]
        assert type(found) is Tensor
        assert found.layout == call().layout


def test_out_is_torchs(x: Tensor) -> None:
    result = torch.empty_like(x)
    with use():
        assert torch.tanh(x, out=result) is result
        assert why(lambda: torch.tanh(x, out=result)) == ["the result goes to out="]
    assert_close(result, x.tanh())


def test_dtypes_that_an_operator_does_not_take() -> None:
    n = torch.tensor([1, 2])
    for call in (
        lambda: torch.ops.aten.bitwise_and(n * 0.5, n),
        lambda: n.add_(0.5),
        lambda: (n > 0).neg(),
        lambda: n.polygamma_(1),
    ):
        with pytest.raises((RuntimeError, TypeError)) as theirs:
            call()
        with use(), pytest.raises(type(theirs.value)):
            call()
    assert n.tolist() == [1, 2]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_meet_no_call_that_is_known() -> None:
    """PyTorch's guards end the process when they ask one for its strides."""
    x = torch.rand(2, 3)
    nested = torch.nested.nested_tensor([torch.rand(2, 3), torch.rand(1, 3)])
    with use():
        for function, given in (
            (torch.sin, (x,)),
            (torch.add, (x, x.clone())),
            (torch.lerp, (x, x.clone(), x.clone())),
        ):
            for _ in range(2):
                function(*given)
        assert torch.sin(nested).is_nested
        assert torch.add(nested, nested).is_nested
        with pytest.raises((RuntimeError, NotImplementedError)):
            torch.lerp(nested, nested, nested)
