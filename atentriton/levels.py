"""Functions and the dispatcher's levels: transforms, autograd, forward mode.

Comes in: what applies a Function, or goes on below one. Goes out: the same at the level
where it belongs. And the Function that has no derivative, and says so when one is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch._C._dynamo.eval_frame import (
    _FrameAction,
    _FrameExecStrategy,
    set_code_exec_strategy,
)
from torch._C._functorch import (
    TransformType,
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    maybe_get_level,
    peek_interpreter_stack,
)
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction


def forward_mode() -> bool:
    """Whether tangents may be asked for."""
    return forward_ad._current_level >= 0 or _are_functorch_transforms_active()


def jvp_is_next() -> bool:
    """Whether the dispatcher has brought the call to a level of torch.func.jvp."""
    if not _are_functorch_transforms_active():
        return False
    return peek_interpreter_stack().key() == TransformType.Jvp


def batched_at(tensor: Tensor) -> Iterator[int]:
    """The levels of torch.func.vmap at which the tensor is batched."""
    while is_functorch_wrapped_tensor(tensor):
        if is_batchedtensor(tensor):
            yield maybe_get_level(tensor)
        tensor = get_unwrapped(tensor)


@contextmanager
def further_out(saved: Sequence[Tensor]) -> Iterator[tuple[Sequence[Tensor], bool]]:
    """Where a Function's jvp runs: let levels further out have their tangents.

    Comes in: what was saved, which may have tangents at the level of the jvp itself.
    Goes out: the same without these, and whether there may be levels further out.
    PyTorch has turned forward mode off for a jvp, and with it all levels.
    """
    if not _are_functorch_transforms_active():
        yield saved, False
        return
    with forward_ad._set_fwd_grad_enabled(True):
        yield [forward_ad.unpack_dual(t).primal for t in saved], True


def applying(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """The `apply` that neither binds arguments nor asks for functorch transforms.

    It is that of PyTorch's own Functions for one level, and so of a twin among them.
    """
    own = {n: v for n, v in vars(function).items() if isinstance(v, staticmethod)}
    key = {"_compiled_autograd_key": staticmethod(_key)}
    twin: Any = type(function.__name__, (_SingleLevelFunction,), {**key, **own})
    return twin.apply


def _key(ctx: Any) -> tuple[int]:
    return (ctx._autograd_function_id,)


def at_one_level(apply: Callable[[], Any]) -> Any:
    """What a Function's own `apply` gives, also where a functorch transform is active.

    The dispatcher has by then brought the call to one level of the transforms.
    """
    if not _are_functorch_transforms_active():
        return apply()
    with enable_single_level_autograd_function():
        return apply()


def below_autograd(compute: Callable[[], Any]) -> Any:
    """What `compute` gives when it dispatches below autograd.

    A functorch transform has its other levels further down: there gradients and
    tangents are recorded again, though Function.forward has just turned both off.
    """
    with ExitStack() as stack:
        if _are_functorch_transforms_active():
            stack.enter_context(torch.enable_grad())
            stack.enter_context(forward_ad._set_fwd_grad_enabled(True))
        stack.enter_context(torch._C._AutoDispatchBelowAutograd())
        return compute()


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which Dynamo runs as it is, with all that it calls.

    It is marked, not wrapped: a call costs nothing. Where torch.compile breaks a graph
    at a call of the autograd engine, Dynamo would look into a backward of ours.
    """
    strategy = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    set_code_exec_strategy(function.__code__, strategy)
    return function


class Refusal(torch.autograd.Function):
    """The identity, without a derivative: the node raises if its gradient is needed.

    Whether it is, only the engine knows; Function.backward of the operator would have
    to raise even where the gradient of another input is all that is asked for.
    """

    @staticmethod
    def forward(message: str, tensor: Tensor) -> Tensor:
        return below_autograd(lambda: torch.ops.aten.alias(tensor))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.message = inputs[0]

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        raise NotImplementedError(ctx.message)

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor) -> Tensor:
        return tangent.view_as(tangent)


_refusal = applying(Refusal)


def refuse(
    refusals: Sequence[tuple[int, str]], tensors: Sequence[Tensor]
) -> Sequence[Tensor]:
    tensors = list(tensors)
    for i, message in refusals:
        tensor = tensors[i]
        if tensor.requires_grad and torch.is_grad_enabled():
            tensors[i] = at_one_level(lambda t=tensor, m=message: _refusal(m, t))
    return tensors
