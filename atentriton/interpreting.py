"""Triton's interpreter, mended where a kernel would see that it is not a GPU.

Comes in: numbers, and the interpreter's values. Goes out: `libdevice`, the functions
that kernels call by that name, computed by PyTorch; `number`, an argument that has the
type which the kernel declares; and `corrections()`, a block in which the interpreter
rounds to bfloat16 and takes maxima as a GPU does.

The interpreter runs where TRITON_INTERPRET=1 was set before triton was imported. By
itself its `libdevice` functions return None, it makes a bfloat16 of a float32 by
cutting bits off, a NaN wins in every maximum, a comparison of scalars has the type of
what it compares, and the only numbers it knows are Python's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.runtime import interpreter
from triton.runtime.interpreter import (
    TensorHandle,
    interpreter_builder,
    interpreter_semantic,
)

from fuser.dtypes import DType
from fuser.ir import Number
from fuser.optable import PRIMITIVES


def is_interpreting() -> bool:
    """Whether `triton.jit` makes functions for the interpreter in this process."""
    return bool(knobs.runtime.interpret)


def number(value: Number, dtype: DType) -> tl.tensor:
    """A scalar argument of that dtype, exactly."""
    kind = tl.int1 if dtype.kind == "bool" else getattr(tl, dtype.name)
    data = np.array([value], dtype=interpreter._get_np_dtype(kind))
    return tl.tensor(TensorHandle(data, kind), kind)


@contextmanager
def corrections() -> Iterator[None]:
    """While this lasts, the interpreter's operations give what compiled ones give."""
    # Attributes of the one instance hide those of its class, until they are deleted.
    for name, function in _REPLACED.items():
        setattr(interpreter_builder, name, function)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        for name in _REPLACED:
            delattr(interpreter_builder, name)


Operation = Callable[[TensorHandle, TensorHandle], TensorHandle]


def _comparison(compare: Operation) -> Operation:
    """The comparison with a result that is known to be bool, as a scalar as well."""
    return lambda a, b: TensorHandle(compare(a, b).data, tl.int1)


def _extremum(function: np.ufunc) -> Operation:
    return lambda a, b: interpreter_builder.binary_op(a, b, function)


def _cast(source: TensorHandle, target: tl.dtype) -> TensorHandle:
    """Any conversion; those of bfloat16, which numpy lacks, by PyTorch."""
    before, after = source.dtype.scalar, target.scalar
    kind = interpreter._get_np_dtype(after)
    if tl.bfloat16 not in (before, after):
        return TensorHandle(source.data.astype(kind), after)
    values = torch.from_numpy(np.array(source.data))
    if before == tl.bfloat16:
        values = values.view(torch.bfloat16)
    if after == tl.bfloat16:
        data = values.to(torch.bfloat16).view(torch.uint16).numpy()
    else:
        data = values.to(torch.float32).numpy().astype(kind)
    return TensorHandle(data, after)


def _all_ones(kind: tl.dtype) -> TensorHandle:
    """The value with every bit set, also of an unsigned type."""
    bits = np.array([-1]).astype(interpreter._get_np_dtype(kind.scalar))
    return TensorHandle(bits, kind.scalar)


_REPLACED: dict[str, Any] = {
    "create_maxnumf": _extremum(np.fmax),
    "create_minnumf": _extremum(np.fmin),
    "cast_impl": _cast,
    "get_all_ones_value": _all_ones,
} | {
    name: _comparison(getattr(interpreter_builder, name))
    for name in dir(interpreter_builder)
    if name.startswith(("create_icmp", "create_fcmp"))
}


def _elementwise(function: Callable[..., Tensor]) -> Callable[..., tl.tensor]:
    """The function of tensors as one of the interpreter's values, all of one dtype."""

    def apply(*given: Any) -> tl.tensor:
        args: list[Any] = [interpreter_semantic.to_tensor(a) for a in given]
        arrays = np.broadcast_arrays(*(a.handle.data for a in args))
        result = function(*(torch.from_numpy(np.array(a)) for a in arrays))
        dtype = args[0].dtype.scalar
        if result.dtype == torch.bool:  # C has int
            result, dtype = result.to(torch.int32), tl.int32
        blocks = [a.type for a in args if a.type.is_block()]
        kind = tl.block_type(dtype, blocks[0].shape) if blocks else dtype
        return tl.tensor(TensorHandle(result.numpy(), dtype), kind)

    return apply


def _sqrt(tensor: Tensor) -> Tensor:
    """The nearest number, as on a GPU and in C; PyTorch's vectors are a bit off."""
    return torch.from_numpy(np.sqrt(tensor.numpy()))


def _library() -> SimpleNamespace:
    """Every function of libdevice that the op table spells, by its row's reference."""
    functions = {
        name: _elementwise(_sqrt if name == "sqrt" else getattr(torch, row.torch))
        for row in PRIMITIVES.values()
        for name in re.findall(r"libdevice\.(\w+)", str(row.triton))
    }
    return SimpleNamespace(**functions)


libdevice = _library()
"""Stands for `triton.language.extra.libdevice` in a module that is interpreted."""
