"""torch.compile(model, backend="atentriton").

Comes in: the graphs that Dynamo captures, before autograd. Goes out: the same functions
with their elementwise regions as fused kernels, which differentiate to any order and in
both modes; all else runs as PyTorch has it.

An installed package tells PyTorch the backend's name; from a checkout, import this
module first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.backends import registry
from torch._guards import detect_fake_mode
from torch.amp import autocast_mode
from torch.fx import GraphModule, Interpreter
from torch.fx.experimental.proxy_tensor import make_fx

from atentriton.decisions import fell_back, happened, watch
from atentriton.graphs.accounts import FusedGraph
from atentriton.graphs.replacing import Rewritten, rewrite
from atentriton.graphs.trace import unsaved
from atentriton.settings import chosen


def atentriton(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """The backend: called by Dynamo with each graph and what it is called with."""
    if chosen.disabled:
        return module.forward
    rewritten = captured(module, inputs)
    if rewritten is None:
        return module.forward
    forward = rewritten.module.forward

    def run(*args: Any) -> Any:
        if watch.on:
            happened(FusedGraph("torch.compile", rewritten))
        return forward(*args)

    return run


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
    if _transforms(module):
        fell_back("torch.compile", "the graph has transforms of torch.func inside")
        return None
    try:
        with torch.enable_grad(), unsaved():
            traced = make_fx(
                _Interpreter(module).run, tracing_mode="symbolic", pre_dispatch=True
            )(*given)
    except Exception as error:  # whatever: PyTorch runs what it has captured itself
        fell_back("torch.compile", f"the graph cannot be traced: {error}")
        return None
    rewritten = rewrite(traced)
    return rewritten if rewritten.kernels else None


class _Interpreter(Interpreter):
    """Runs Dynamo's graph for the tracer, in which autocast is recorded, but not on."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.casts: list[torch.autocast] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is autocast_mode._enter_autocast:
            self.casts.append(torch.autocast(*args, **kwargs).__enter__())
            return None
        if target is autocast_mode._exit_autocast:
            return self.casts.pop().__exit__(None, None, None)
        return super().call_function(target, args, kwargs)


def _transforms(module: GraphModule) -> bool:
    """Whether levels of torch.func begin in the graph, which nobody can trace."""
    return any(
        getattr(n.target, "__name__", "").endswith("_increment_nesting")
        for part in module.modules()
        if isinstance(part, GraphModule)
        for n in part.graph.nodes
    )


def _is_fake(tensor: Tensor, mode: Any) -> bool:
    return getattr(tensor, "fake_mode", None) is mode


# Where PyTorch has the name from the package, it registers what it then loads itself.
if "atentriton" not in registry._BACKENDS:
    registry.register_backend(atentriton, name="atentriton")
