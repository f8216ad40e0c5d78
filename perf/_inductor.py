"""The Triton kernels that Inductor writes for a function, with no GPU in reach.

Comes in: a function and tensors on the CPU. Goes out: what torch.compile would make of
forward and backward for a GPU: its kernels in Triton, what it leaves to single
operators, and how many bytes an element its partitioner saves. The graphs are
Inductor's own, partitioned on the CPU and then lowered for tensors that are not there;
only what asks the GPU for its properties is answered here. All of that is private to
PyTorch: `Unavailable` where it has changed.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

# An H100's, as torch.cuda.get_device_properties tells them.
_PROPERTIES = SimpleNamespace(
    name="NVIDIA H100",
    type="cuda",
    index=0,
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    L2_cache_size=50 << 20,
    gcnArchName="",
)
# What Inductor's heuristic takes first for a pointwise kernel over many elements.
BLOCK, WARPS = 1024, 4


class Unavailable(Exception):
    """Inductor's kernels cannot be had here; says why."""


@dataclass(frozen=True, slots=True)
class Made:
    """One graph: its kernels as (source, signature), and what is no kernel of its."""

    kernels: tuple[tuple[str, dict[str, str]], ...]
    outside: int


def kernels(
    function: Callable[..., Tensor], given: Sequence[Tensor]
) -> tuple[dict[str, Made], int]:
    """Of `forward` and `backward`, and the bytes that are saved between them, each
    memory once and inputs included."""
    try:
        graphs, saved = _graphs(function, given)
        return {mode: _lowered(*graph) for mode, graph in graphs.items()}, saved
    except Exception as error:  # whatever this PyTorch does otherwise
        text = str(error).strip().partition("\n")[0]
        raise Unavailable(f"{type(error).__name__}: {text}") from error


def _graphs(
    function: Callable[..., Tensor], given: Sequence[Tensor]
) -> tuple[dict[str, tuple[Any, list[Tensor]]], int]:
    from functorch.compile import make_boxed_func
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    found: dict[str, tuple[Any, list[Tensor]]] = {}

    def keep(mode: str) -> Callable[..., Any]:
        def compiler(module: Any, inputs: list[Tensor]) -> Any:
            found[mode] = (module, list(inputs))
            return make_boxed_func(module.forward)

        return compiler

    made = aot_function(
        function,
        keep("forward"),
        keep("backward"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    leaves = [t.detach().clone().requires_grad_(t.requires_grad) for t in given]
    result = made(*leaves)
    kept: dict[int, int] = {}
    if result.requires_grad:
        for tensor in result.grad_fn.saved_tensors:
            memory = tensor.untyped_storage()
            kept[memory.data_ptr()] = memory.nbytes()
        torch.autograd.grad(
            result,
            [t for t in leaves if t.requires_grad],
            torch.ones_like(result),
            allow_unused=True,
        )
    return found, sum(kept.values())


def _lowered(module: Any, inputs: list[Tensor]) -> Made:
    """The code that Inductor writes for a graph, on a GPU that is not there."""
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    there = torch.device("cuda", 0)
    for node in module.graph.nodes:
        if node.kwargs.get("device") is not None:
            node.kwargs = {**node.kwargs, "device": there}
    module.recompile()
    with FakeTensorMode() as mode, _pretending():
        fakes = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=there)
            for t in inputs
        ]
        again = make_fx(module)(*fakes)
        graph = GraphLowering(again, example_inputs=fakes, shape_env=None)
        with (
            V.set_graph_handler(graph),
            V.set_fake_mode(mode),
            V.set_debug_handler(DebugContext()),
        ):
            graph.run(*fakes)
            code: Any = graph.codegen()[0]
    text = getattr(code, "value", code)
    found = re.findall(r"async_compile\.triton\('\w+', '''\n(.*?)'''", text, re.DOTALL)
    outside = re.findall(r"= (?:torch\.ops|extern_kernels|aten)\.[\w.]+\(", text)
    return Made(tuple((_bare(s), _signature(s)) for s in found), len(outside))


def _bare(source: str) -> str:
    """The kernel without what chooses its block by running it."""
    source = re.sub(
        r"@triton_heuristics\.\w+\(.*?\n\)\n(?=@triton\.jit)",
        "",
        source,
        flags=re.DOTALL,
    )
    return source.replace("triton_helpers.set_driver_to_gpu()\n", "")


def _signature(source: str) -> dict[str, str]:
    found = re.search(r"'signature': (\{[^}]*\})", source)
    assert found is not None
    return eval(found[1], {})


@contextmanager
def _pretending() -> Iterator[None]:
    """As if there were a GPU, for those who only ask what it is like."""
    import torch._inductor.scheduler as scheduler
    from torch._dynamo.device_interface import CudaInterface
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    def properties(*_: Any) -> Any:
        return _PROPERTIES

    target = GPUTarget("cuda", 90, 32)
    with ExitStack() as stack:
        for place, name, answer in (
            (torch.cuda, "get_device_properties", properties),
            (torch.cuda, "current_device", lambda: 0),
            (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
            (CudaInterface, "get_device_properties", staticmethod(properties)),
            (scheduler, "has_triton", lambda *_: True),
        ):
            stack.enter_context(mock.patch.object(place, name, answer))
        stack.enter_context(mock.patch.object(driver, "_active", None))
        driver.set_active(SimpleNamespace(get_current_target=lambda: target))
        yield


def compiled(source: str, signature: dict[str, str], target: Any) -> Any:
    """The kernel compiled by Triton for a machine; aligned, as a rule, like ours."""
    import triton
    from triton.compiler import ASTSource

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inductor_kernel.py"
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        found = re.search(r"^def (\w+)\(", source, re.MULTILINE)
        assert found is not None
        names = list(signature)
        aligned = [n for n in names if n.endswith("numel") or signature[n][0] == "*"]
        made = ASTSource(
            getattr(module, found[1]),
            signature,
            {n: BLOCK for n, kind in signature.items() if kind == "constexpr"},
            {(names.index(n),): [["tt.divisibility", 16]] for n in aligned},
        )
        return triton.compile(made, target=target, options={"num_warps": WARPS})
