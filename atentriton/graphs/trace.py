"""A function as a graph of ATen operators, before autograd, with sizes left open.

Comes in: a function and the leaves of its arguments. Goes out: `Traced`: a graph module
of tensors and numbers, and the condition under which it holds for other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.source import ConstantSource
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils._python_dispatch import _disable_current_modes


@dataclass(frozen=True)
class Traced:
    """`module` takes the tensors and numbers in order; `holds` asks whether it may be
    used for others of the same dtypes and ranks."""

    module: GraphModule
    holds: Callable[[Sequence[Any]], bool]


def trace(function: Callable[..., Any], leaves: Sequence[Any]) -> Traced:
    """The graph of `function(*leaves)`; leaves are tensors, ints and floats.

    Whatever PyTorch raises for data-dependent control flow is passed on.
    """
    env = ShapeEnv(specialize_zero_one=True, duck_shape=True)
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    with ExitStack() as stack:
        for context in (
            temporarily_clear_interpreter_stack(),
            _disable_current_modes(),
            forward_ad._set_fwd_grad_enabled(False),
            mode,
        ):
            stack.enter_context(context)
        given = [_symbolic(mode, env, i, leaf) for i, leaf in enumerate(leaves)]
        module = make_fx(
            function,
            tracing_mode="symbolic",
            pre_dispatch=True,
            record_stack_traces=True,
        )(*given)
    return Traced(module, _guard(env, given))


def _symbolic(mode: FakeTensorMode, env: ShapeEnv, place: int, leaf: Any) -> Any:
    source = ConstantSource(f"argument{place}")
    if isinstance(leaf, Tensor):
        context = StatelessSymbolicContext(
            dynamic_sizes=[DimDynamic.DUCK] * leaf.dim(),
        )
        like = torch.empty_strided(
            leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device
        )
        fake = mode.from_tensor(like, source=source, symbolic_context=context)
        return fake.requires_grad_(leaf.requires_grad)
    if isinstance(leaf, bool):
        return leaf
    if isinstance(leaf, float):
        symbol = env.create_unspecified_symbol(leaf, source, DimDynamic.DYNAMIC)
        return env.create_symfloatnode(symbol, hint=leaf, source=source)
    return leaf


def _guard(env: ShapeEnv, given: Sequence[Any]) -> Callable[[Sequence[Any]], bool]:
    """Whether sizes and strides of other tensors fit what was assumed of these."""
    tensors = [(i, t) for i, t in enumerate(given) if isinstance(t, Tensor)]
    places: dict[Any, tuple[int, int]] = {}
    fixed: list[tuple[int, int, Any]] = []
    for i, tensor in tensors:
        for k, size in enumerate(tensor.shape):
            if not isinstance(size, torch.SymInt):
                fixed.append((i, k, int(size)))
                continue
            symbol = size.node.expr
            if symbol in places:
                fixed.append((i, k, places[symbol]))
            else:
                places[symbol] = (i, k)
    expressions = [guard.expr for guard in env.guards]

    def holds(leaves: Sequence[Any]) -> bool:
        for i, k, wanted in fixed:
            size = leaves[i].shape[k]
            if isinstance(wanted, tuple):
                wanted = leaves[wanted[0]].shape[wanted[1]]
            if size != wanted:
                return False
        sizes = {s: leaves[i].shape[k] for s, (i, k) in places.items()}
        if any(size < 2 for size in sizes.values()):
            return False
        for expression in expressions:
            if not expression.free_symbols <= sizes.keys():
                continue
            if expression.subs(sizes) != True:  # noqa: E712 - a sympy truth value
                return False
        return True

    return holds
