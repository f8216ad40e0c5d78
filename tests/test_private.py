"""What of PyTorch is used that PyTorch does not promise: what for, and that it is so.

A new release of PyTorch that changes one of these fails here first, and by name.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, func
from torch.autograd import forward_ad
from torch.testing import assert_close

from atentriton import levels


class Doubled(torch.autograd.Function):
    """A Function in the style of ours, with a forward that can be given."""

    @staticmethod
    def forward(compute: Any, x: Tensor) -> Tensor:
        return compute(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, g * 2

    @staticmethod
    def jvp(ctx: Any, _: None, t: Tensor) -> Tensor:
        assert len(ctx.saved_tensors) == 1
        return t * 2


apply = levels.applying(Doubled)


def test_a_function_for_one_level_skips_the_binding_of_arguments() -> None:
    """autograd.Function.apply binds by inspect.signature, which takes 9 us, and may
    hand over to functorch, of which kernels of the dispatcher are out of reach."""
    x = torch.rand(3, requires_grad=True)
    y = apply(lambda t: t * 2, x)
    assert_close(torch.autograd.grad(y.sum(), x)[0], torch.full((3,), 2.0))


def test_a_function_may_work_at_one_level_of_the_transforms() -> None:
    """The kernel on the Autograd key is called once for each level of functorch."""
    from torch._functorch.utils import enable_single_level_autograd_function

    x = torch.rand(3)

    def f(t: Tensor) -> Tensor:
        with enable_single_level_autograd_function():
            return apply(lambda u: u.detach() * 2, t).sum()

    assert_close(func.grad(f)(x), torch.full((3,), 2.0))


def test_kernels_above_autograd_can_go_on_below_it() -> None:
    """The forward of the Function calls the same operator again, one level deeper."""
    x = torch.rand(3, requires_grad=True)
    with torch._C._AutoDispatchBelowAutograd():
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_forward_of_a_function_turns_both_modes_off() -> None:
    """Hence they are turned on again for the deeper levels of a transform."""
    seen: list[bool] = []

    def compute(x: Tensor) -> Tensor:
        seen.extend((torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()))
        with forward_ad._set_fwd_grad_enabled(True):
            seen.append(torch._C._is_fwd_grad_enabled())
        return x * 2

    apply(compute, torch.rand(3, requires_grad=True))
    assert seen == [False, False, True]


def test_what_is_saved_for_forward_is_let_go() -> None:
    """A result that its own node kept alive would only be freed by the collector."""
    x = torch.rand(3, requires_grad=True)
    y = apply(lambda t: t * 2, x)
    assert y.grad_fn is not None
    assert y.grad_fn.saved_tensors == ()


def test_the_forward_mode_level_is_a_number() -> None:
    """Inside a level every call goes through the Function."""
    assert forward_ad._current_level == -1
    with forward_ad.dual_level():
        assert forward_ad._current_level == 0


def test_modes_and_transforms_can_be_asked_for() -> None:
    """The gate: nothing may stand between a direct call and the kernel."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch._C._len_torch_function_stack() == 0
    with TorchDispatchMode():
        assert torch._C._len_torch_dispatch_stack() == 1
    with TorchFunctionMode():
        assert torch._C._len_torch_function_stack() == 1
    assert not torch._C._is_any_autocast_enabled()
    with torch.autocast("cpu"):
        assert torch._C._is_any_autocast_enabled()
    seen: list[bool] = []

    def f(x: Tensor) -> Tensor:
        seen.append(torch._C._are_functorch_transforms_active())
        return x

    func.vmap(f)(torch.rand(2))
    assert seen == [True]
    assert not torch._C._are_functorch_transforms_active()


def test_the_keys_of_a_tensor_are_named_in_its_key_set() -> None:
    """The gate reads from them whether a pointer is the address of the elements."""
    keys = torch._C._dispatch_keys(torch.rand(2))
    assert str(keys).startswith("DispatchKeySet(") and "AutogradCPU" in str(keys)
    assert isinstance(keys.raw_repr(), int)
    conjugate = torch.rand(2, dtype=torch.complex64).conj()
    assert "Conjugate" in str(torch._C._dispatch_keys(conjugate))


def test_guards_compare_everything_that_a_direct_call_depends_on() -> None:
    """One step instead of a dozen questions, for a call that looks like another."""
    from torch._C._dynamo.guards import TensorGuards

    x = torch.rand(3, 4)
    check = TensorGuards(
        x, dynamic_dims_sizes=[[3, 4]], dynamic_dims_strides=[[4, 1]]
    ).check
    leaf = x.clone().requires_grad_()
    assert check(x) and check(torch.rand(3, 4))
    assert not check(leaf) and not check(x.double()) and not check(x.to("meta"))
    assert not check(x[:2]) and not check(torch.rand(4, 3).t()) and not check(1.0)
    assert not check(torch._neg_view(x)) and not check(torch.nn.Parameter(x))
    required = TensorGuards(
        leaf, dynamic_dims_sizes=[[3, 4]], dynamic_dims_strides=[[4, 1]]
    ).check
    with torch.no_grad():  # whether gradients are recorded has to be asked apart
        assert required(leaf) and not check(leaf)
    with torch.inference_mode():
        assert not check(x)


def test_the_older_vmap_can_be_taken_apart() -> None:
    """is_grads_batched and gradcheck still use it; it knows no lists of tensors."""
    levels: list[int] = []

    def f(x: Tensor, y: Tensor) -> Tensor:
        levels.append(torch._C._vmapmode_increment_nesting() - 1)
        torch._C._vmapmode_decrement_nesting()
        batched = torch._remove_batch_dim(x, levels[0], 1, 0)
        alone = torch._remove_batch_dim(y, levels[0], 1, 0)
        assert batched.shape == (5, 3) and alone.shape == (1, 3)
        return torch._add_batch_dim(batched + alone, 0, levels[0])

    x, y = torch.rand(5, 3), torch.rand(3)
    found = torch._vmap_internals._vmap(f, (0, None))(x, y)
    assert levels == [1]
    assert_close(found, x + y)


def test_tensors_on_the_cpu_can_be_made_in_half_the_time() -> None:
    """torch.empty_strided takes as long as the rest of a small call."""
    from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

    for dtype in (torch.bool, torch.bfloat16, torch.complex128):
        made = _empty_strided_cpu((2, 3), (1, 2), dtype)
        assert (made.shape, made.stride(), made.dtype) == ((2, 3), (1, 2), dtype)
    with torch.inference_mode():
        assert _empty_strided_cpu((2,), (1,), torch.float32).is_inference()


def test_meta_strides_are_those_of_the_kernels() -> None:
    """The layout of results follows PyTorch's own rule."""
    from torch._prims_common import compute_elementwise_output_strides

    x, y = torch.rand(4, 3).t(), torch.rand(3, 1)
    expected = torch.add(x, y).stride()
    assert tuple(compute_elementwise_output_strides(x, y.expand(3, 4))) == expected


def test_the_level_that_a_kernel_is_called_for_can_be_asked_for() -> None:
    """At a level of jvp the kernel on the Autograd key has both parts of its dual
    tensors at hand; the further levels of either are inside of it."""
    from torch._C import _functorch as functorch

    seen: list[Any] = []

    def f(x: Tensor) -> Tensor:
        interpreter = functorch.peek_interpreter_stack()
        assert interpreter is not None
        value, tangent = forward_ad.unpack_dual(x)
        assert tangent is not None
        for tensor in (value, tangent):
            wrapped = functorch.is_functorch_wrapped_tensor(tensor)
            inner = functorch.get_unwrapped(tensor)
            batched = functorch.is_batchedtensor(inner)
            seen.append((interpreter.key(), wrapped, batched))
        level = functorch.maybe_get_level(functorch.get_unwrapped(tangent))
        assert level < interpreter.level() == functorch.maybe_get_level(tangent)
        assert not functorch.is_functorch_wrapped_tensor(plain)
        return x * 2

    plain = torch.rand(3)
    func.jacfwd(f)(plain)
    jvp = functorch.TransformType.Jvp
    assert seen == [(jvp, True, False), (jvp, True, True)]
    assert torch._C._is_fwd_grad_enabled()
