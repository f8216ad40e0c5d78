"""torch.compile(model, backend="atentriton").

Comes in: the graphs that Dynamo captures, before autograd. Goes out: the same functions
with their elementwise regions as fused kernels, which differentiate to any order and in
both modes; all else runs as PyTorch has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import detect_fake_mode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from atentriton.decisions import Decision, happened
from atentriton.graphs.replacing import Rewritten, rewrite
from atentriton.settings import chosen


def atentriton(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """The backend: called by Dynamo with each graph and what it is called with."""
    if chosen.disabled:
        return module.forward
    rewritten = captured(module, inputs)
    if rewritten is None:
        return module.forward
    for kernel in rewritten.kernels:
        happened(Decision(kernel.routine.program.name, "fused"))
    return rewritten.module.forward


def captured(module: GraphModule, inputs: Sequence[Any]) -> Rewritten | None:
    """Dynamo's graph as ATen operators, with its regions replaced.

    None where it has none: then the graph is best left as it is.
    """
    mode = detect_fake_mode(inputs)
    given = [
        mode.from_tensor(v, static_shapes=True)
        if mode is not None and isinstance(v, Tensor) and not _is_fake(v, mode)
        else v
        for v in inputs
    ]
    with torch.enable_grad():
        traced = make_fx(module, tracing_mode="symbolic", pre_dispatch=True)(*given)
    rewritten = rewrite(traced)
    return rewritten if rewritten.kernels else None


def _is_fake(tensor: Tensor, mode: Any) -> bool:
    return getattr(tensor, "fake_mode", None) is mode
