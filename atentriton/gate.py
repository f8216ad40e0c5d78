"""The gate before raw pointers: which calls may launch a kernel directly.

Comes in: the tensors of a call. Goes out: whether they are plain memory and nothing
watches or transforms what PyTorch does. Everything else goes through the registered
operators, where PyTorch's dispatcher does what a transform, a mode or a subclass asks.
Without the gate results would be silently wrong: fake, meta and zero tensors have no
memory behind their pointer, a tracer would see nothing, and for a conjugate or negative
view the memory holds other values than the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch._C import (
    _are_functorch_transforms_active,
    _dispatch_keys,
    _get_tracing_state,
    _is_fwd_grad_enabled,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch.autograd import forward_ad
from torch.compiler import is_compiling

PLAIN = frozenset({Tensor, torch.nn.Parameter})

# What may be in the key set of a tensor whose pointer is the address of its elements.
# Conjugate and Negative are among them because `settled` writes their values out.
KEYS = frozenset(
    (
        *("CPU", "AutogradCPU", "AutocastCPU"),
        *("CUDA", "AutogradCUDA", "AutocastCUDA"),
        *("ADInplaceOrView", "Conjugate", "Negative"),
    )
)
_plain_sets: dict[int, bool] = {}


def unwatched() -> bool:
    """Whether no transform, mode or compiler stands between a call and the kernel."""
    return not (
        is_compiling()
        or _get_tracing_state() is not None
        or _are_functorch_transforms_active()
        or _len_torch_dispatch_stack()
        or _len_torch_function_stack()
    )


def plain(tensor: Tensor) -> bool:
    """Whether the tensor's pointer is the address of what it says it holds.

    Conjugate and negative views count as plain here: `settled` makes them so.
    """
    if type(tensor) not in PLAIN:
        return False
    keys = _dispatch_keys(tensor)
    known = _plain_sets.get(keys.raw_repr())
    if known is None:
        names = str(keys).partition("(")[2].rstrip(")").split(", ")
        known = _plain_sets[keys.raw_repr()] = KEYS.issuperset(names)
    return known


def unusual(tensor: Tensor) -> str:
    """What keeps kernels from the tensor, whatever its dtype; nothing for most."""
    if tensor.layout is not torch.strided:
        return f"an argument's layout is {tensor.layout}"
    if tensor.is_quantized:
        return "an argument is quantized"
    return "an argument is nested" if tensor.is_nested else ""


def direct(tensors: Iterable[Tensor]) -> bool:
    """Whether the call may skip the dispatcher."""
    return unwatched() and all(map(plain, tensors))


def settled(tensor: Tensor) -> Tensor:
    """The tensor with its values in memory: no lazy conjugate or negative.

    Differentiable: where something has to be done, PyTorch does it.
    """
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def differentiates(tensors: Iterable[Tensor]) -> bool:
    """Whether the call has to leave a trace for a derivative.

    That is so when a tensor requires a gradient where gradients are recorded, or inside
    a forward-mode level, whatever the tensors: a tangent is never lost.
    """
    if forward_ad._current_level >= 0 and _is_fwd_grad_enabled():
        return True
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def records(tensors: Iterable[Tensor]) -> bool:
    """The same question above the dispatcher's own: under a transform, always."""
    return _are_functorch_transforms_active() or differentiates(tensors)
