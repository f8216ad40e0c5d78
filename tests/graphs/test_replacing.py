"""Whole functions, rewritten: what they give, write and leave for derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close
from torch.utils import _pytree as pytree

from atentriton.fusing import FusedFunction

F64, BF16 = torch.float64, torch.bfloat16


@dataclass
class Case:
    """`function` is one graph with that many kernels, for arguments of those shapes."""

    function: Callable[..., Any]
    kernels: int
    given: Callable[[], Any]
    partial: bool
    tolerance: dict[str, float] = field(default_factory=dict)


CASES: list[Case] = []


def leaf(*shape: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(shape, dtype=dtype).requires_grad_()


def case(
    kernels: int,
    given: Callable[[], Any] = lambda: (leaf(4, 6),),
    partial: bool = False,
    **tolerance: float,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(Case(function, kernels, given, partial, tolerance))
        return function

    return add


# -- gradients that end
# -------------------------------------------------------------------


@case(1)
def straight_through(x: Tensor) -> Tensor:
    return x + (torch.round(x / 0.1) * 0.1 - x).detach()


@case(1)
def detached_result(x: Tensor) -> Any:
    y = x * 2
    return y.detach(), y + 1


@case(3)
def without_gradients(x: Tensor) -> Tensor:
    y = x * 3
    with torch.no_grad():
        z = y * 3
    return y * z


@case(2, partial=True)
def written_without_gradients(x: Tensor) -> Tensor:
    y = x * 2
    with torch.no_grad():
        y.add_(1)
    return y * y


@case(1)
def all_without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 2


# -- writes
# -------------------------------------------------------------------------------


@case(1, lambda: (leaf(4, 6), torch.zeros(4, 6, dtype=F64)), partial=True)
def written_argument(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.add_(1)
    return x * 2


@case(1)
def written_intermediate(x: Tensor) -> Tensor:
    y = x * 2
    z = y
    y.add_(1).mul_(x)
    return z.sin()


@case(3, partial=True)
def written_view(x: Tensor) -> Any:
    y = x * 2
    row = y[0]
    row.mul_(3)
    y.add_(1)
    return y * 2, row + 1


@case(1, partial=True)
def written_constant(x: Tensor) -> Tensor:
    z = torch.zeros_like(x)
    z[0] = 1
    return z * x


@case(2, partial=True)
def written_after_it_was_read(x: Tensor) -> Tensor:
    y = x * 2
    z = x.clone()
    z[:, 0] = 1.5
    return y * z


@case(2, partial=True)
def written_copy_of_what_is_kept(x: Tensor) -> Tensor:
    y = torch.tanh(x)
    z = y.clone()
    z[0] = 1
    return y * z


@case(2, lambda: (leaf(4, 6) * 1,), partial=True)
def written_result_of_another(x: Tensor) -> Tensor:
    z = x.sin()
    x.mul_(2)
    return z * x.sin()


# -- constants, numbers, dtypes
# -----------------------------------------------------------


@case(1)
def constants(x: Tensor) -> Tensor:
    two, zero = torch.tensor(2.0, dtype=F64), torch.zeros((), dtype=F64)
    y = torch.where(x > 0, two, zero) * x
    return y + torch.full((), 3.0, dtype=F64) + x.new_ones(())


@case(1, rtol=1e-2, atol=1e-2)
def constant_of_a_half_type(x: Tensor) -> Tensor:
    return x.to(BF16) * torch.full_like(x, 0.1, dtype=BF16)


@case(1, lambda: (leaf(), leaf(4, 6, dtype=torch.float32)))
def mixed_dtypes(s: Tensor, x: Tensor) -> Any:
    return s * x, x * torch.ones(6, dtype=BF16)


@case(1, lambda: (leaf(),))
def no_dimensions(x: Tensor) -> Tensor:
    return x * 2 + torch.sin(x)


@case(2, lambda: (leaf(), leaf(4, 6)))
def two_shapes(s: Tensor, x: Tensor) -> Any:
    return s * x, s * 2


@case(1, lambda: (torch.empty(0, 6, dtype=F64, requires_grad=True), leaf(6)))
def no_elements(x: Tensor, a: Tensor) -> Tensor:
    return x * a + 1


@case(1, lambda: (leaf(4, 6), torch.float16))
def given_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) * 2


@case(1, lambda: (torch.randint(0, 5, (4, 6)),))
def integers(i: Tensor) -> Any:
    return i * 2.0, i / 2, i // 2, i**2, i + True


@case(1)
def booleans(x: Tensor) -> Any:
    small = (x > 0) & (x < 1)
    return small, ~(x > 0), (x > 0) * 2, torch.logical_xor(x > 0, x > 1) | small


@case(1, lambda: (torch.randn(3, dtype=torch.complex128, requires_grad=True),))
def complex_numbers(z: Tensor) -> Any:
    crelu = torch.complex(torch.relu(torch.real(z)), torch.relu(z.imag))
    return crelu, z.conj() * z, z.abs()


# -- arguments and results
# ----------------------------------------------------------------


@case(1)
def one_result_twice(x: Tensor) -> Any:
    y = x * 2
    return y, y, x


@case(0)
def the_argument(x: Tensor) -> Tensor:
    return x


@case(0)
def no_result(x: Tensor) -> None:
    return None


@case(1)
def results_of_other_kinds(x: Tensor) -> Any:
    return x.shape[0], "text", None, x * x.shape[-1]


@case(2, lambda: ({"q": leaf(4, 6), "r": [leaf(6), (leaf(),)]}, None))
def nested(d: dict[str, Any], absent: None) -> Any:
    return {"o": (d["q"] * d["r"][0], [d["r"][1][0].exp()])}


# -- shapes and memory
# --------------------------------------------------------------------


@case(1, lambda: (leaf(4, 6).t(), leaf(6, 4)))
def the_first_operand_decides(p: Tensor, q: Tensor) -> Tensor:
    return q + (p * 2)


@case(4, lambda: (leaf(4, 6).t(), leaf(6, 4)), partial=True)
def views_of_either_layout(p: Tensor, q: Tensor) -> Any:
    first = (q + (p * 2)).view(-1) * 3
    return first, ((p * 2) + q).t().view(-1) * 2


@case(2)
def views_between(x: Tensor) -> Tensor:
    return (x.sin().unsqueeze(-1) * x.unsqueeze(-2)).transpose(0, 1) + 1


@case(2)
def expanded(x: Tensor) -> Any:
    return (x[:, :1] * 2).expand(4, 6) * x, x[0].expand(4, 6).exp()


@case(1)
def even_and_odd(x: Tensor) -> Tensor:
    return x[:, ::2] * x[:, 1::2]


@case(1)
def alike_everywhere(x: Tensor) -> Any:
    return (x**0) * x[0], x**0 * 1


@case(1)
def losses(x: Tensor) -> Any:
    zeros = torch.zeros_like(x)
    return F.mse_loss(x, x * 2, reduction="none"), F.huber_loss(x, zeros, "none")


@case(1)
def siblings(x: Tensor) -> Any:
    return torch.clamp(x, None, 0.3), F.hardtanh(x), torch.lerp(x, x[0], 0.3)


# -- parts
# --------------------------------------------------------------------------------


@case(2, partial=True)
def reduced_in_between(x: Tensor) -> Tensor:
    y = x * 2
    total = y.sum(-1, keepdim=True)
    return torch.exp(y - total) / (1 + total)


@case(1, partial=True)
def dropped_out(x: Tensor) -> Any:
    return F.dropout(F.gelu(x), 0.4) * 2 + x, F.dropout(x, 0.4, False)


@case(2, partial=True)
def dropped_out_in_order(x: Tensor) -> Tensor:
    y = x * 2
    first = F.dropout(x, 0.5)
    return y * F.dropout(y + y.sum(), 0.5) + first


def _tensors(tree: Any) -> list[Tensor]:
    return [v for v in pytree.tree_leaves(tree) if isinstance(v, Tensor)]


def _again(tree: Any) -> Any:
    """Tensors of their own, alike in elements and in memory."""

    def again(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        made.copy_(value.detach()).requires_grad_(value.requires_grad)
        return made if value.is_leaf else made * 1

    return pytree.tree_map(again, tree)


def _called(function: Callable[..., Any], given: Any) -> tuple[Any, ...]:
    """Results, arguments as they are after the call, gradients."""
    torch.manual_seed(1)
    results = pytree.tree_leaves(function(*given))
    ends = [t for t in _tensors(results) if t.requires_grad]
    starts = [t for t in _tensors(given) if t.requires_grad]
    cotangents = [
        torch.linspace(0.5, 1, t.numel(), dtype=F64).to(t.dtype).view(t.shape)
        for t in ends
    ]
    gradients: Any = ()
    if ends:
        gradients = torch.autograd.grad(
            ends, starts, cotangents, materialize_grads=True
        )
    return results, _tensors(given), list(gradients)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.function.__name__)
def test_as_pytorch_has_it(case: Case) -> None:
    fused = FusedFunction(case.function, case.partial)
    first = case.given()
    for _ in range(3):  # as it is traced, from the graph, and by a quick way
        ours, theirs = (_called(f, _again(first)) for f in (fused, case.function))
        for found, right in zip(
            pytree.tree_leaves(ours), pytree.tree_leaves(theirs), strict=True
        ):
            if isinstance(right, Tensor):
                assert found.requires_grad == right.requires_grad
                assert found.stride() == right.stride() or not right.numel()
                assert_close(found, right, **case.tolerance)
            else:
                assert found == right and type(found) is type(right)
    (made,) = (made for known in fused.traces.values() for made in known)
    assert len(made.rewritten.kernels) == case.kernels
