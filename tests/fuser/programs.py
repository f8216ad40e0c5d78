"""Programs run by the reference, beside PyTorch's own autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from atentriton.reference import evaluate
from atentriton.specs import TO_TORCH
from fuser import dtypes
from fuser.ir import Static
from fuser.pipeline import Compiler, Derived, default_compiler
from fuser.program import Program
from fuser.specs import ScalarSpec, TensorSpec
from fuser.verify import verify

F16, F32, F64 = dtypes.float16, dtypes.float32, dtypes.float64
I64, BOOL, C64 = dtypes.int64, dtypes.bool_, dtypes.complex64
X, D, H = TensorSpec(F32), TensorSpec(F64), TensorSpec(F16)
I, B, Z = TensorSpec(I64), TensorSpec(BOOL), TensorSpec(C64)  # noqa: E741
REAL, WHOLE = ScalarSpec("float"), ScalarSpec("int")
NONE = Static(None)


def vjp(
    compiler: Compiler,
    program: Program,
    wanted: Sequence[bool] | None = None,
    defined: Sequence[bool] | None = None,
) -> Derived:
    """The gradients of everything that can have one, unless it is said otherwise."""
    if wanted is None:
        wanted = [n.dtype.is_differentiable for n in program.inputs]
    if defined is None:
        defined = [o.dtype.is_differentiable for o in program.outputs]
    derived = compiler.vjp(program, wanted, defined)
    verify(derived.program.roots)
    return derived


def run(
    program: Program,
    tensors: Sequence[Tensor],
    numbers: Sequence[Any] = (),
) -> list[Tensor]:
    return evaluate(default_compiler().expand(program), tensors, numbers)


def pick(derived: Derived, **known: Sequence[Tensor]) -> list[Tensor]:
    """The tensors for the derived program, by what they are to the old one."""
    return [known[kind][i] for kind, i in derived.sources]


def eager(
    function: Callable[..., Tensor], tensors: Sequence[Tensor], weight: Tensor
) -> list[Tensor]:
    leaves = [
        t.clone().requires_grad_(t.is_floating_point() or t.is_complex())
        for t in tensors
    ]
    result = function(*leaves)
    wanted = [t for t in leaves if t.requires_grad]
    return list(torch.autograd.grad(result, wanted, weight.to(result.dtype)))


def draw(spec: TensorSpec, name: str) -> Tensor:
    dtype = TO_TORCH[spec.dtype]
    if spec.dtype == BOOL:
        return torch.rand(6) < 0.5
    if spec.dtype.is_integral:
        return torch.randint(1, 5, (6,), dtype=dtype)
    values = torch.rand(6, dtype=torch.float64) + 0.1
    if name.startswith("pow"):
        return values.to(dtype)
    return (torch.randn(6, dtype=dtype) + values).to(dtype)


def carries(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def close(mine: Tensor, theirs: Tensor, coarse: Sequence[Tensor] = ()) -> None:
    """Within a few roundings of the coarsest dtype: PyTorch's steps have that of their
    arguments, where ours are float32."""
    dtypes_ = [t.dtype for t in (theirs, *coarse) if carries(t)]
    eps = max((torch.finfo(d).eps for d in dtypes_), default=1e-6)
    mine = mine.broadcast_to(theirs.shape)  # a constant has no dimensions
    torch.testing.assert_close(mine, theirs, rtol=4 * eps, atol=4 * eps)
