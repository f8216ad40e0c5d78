"""A small program for every row of the op table and every dtype it takes.

Comes in: the op table. Goes out: `CASES`, `program`, `samples` and `run`, for the tests
that hold Triton's kernels against the reference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from atentriton.layouts import walk
from atentriton.specs import TO_TORCH
from fuser import dtypes, ir
from fuser.dtypes import DType
from fuser.ir import Node, Number
from fuser.kernel import Kernel
from fuser.optable import PRIMITIVES, Primitive
from fuser.program import Output, Program
from fuser.schedule import schedule

Case = tuple[Primitive, DType]

# A row, and the dtype of its arguments (of the last one, where they differ).
CASES: list[Case] = [
    (row, dtype)
    for row in PRIMITIVES.values()
    for dtype in dtypes.DTYPES.values()
    if dtype.kind in row.kinds and not dtype.is_complex and row.rule != "complex"
]
COMPLEX_CASES: list[Case] = [
    (row, dtype)
    for row in PRIMITIVES.values()
    for dtype in (dtypes.complex64, dtypes.complex128)
    if "complex" in row.kinds
]

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -3.5, math.inf, -math.inf, math.nan, 1e-39, 1e30]


def name(case: Case) -> str:
    """What a test of the case is called."""
    return f"{case[0].name}-{case[1]}"


def program(row: Primitive, dtype: DType) -> Program:
    """result = row(a, b, ...), computed in the opmath type and stored as `dtype`."""
    kinds = [dtype] * row.arity
    if row.rule == "select":
        kinds[0] = dtypes.bool_
    inputs = tuple(ir.input_("abc"[i], kind) for i, kind in enumerate(kinds))
    args = [ir.cast(node, node.dtype.opmath) for node in inputs]
    made = {
        "same": dtype.opmath,
        "select": dtype.opmath,
        "bool": dtypes.bool_,
        "logical": dtypes.bool_,
        "real": dtype.opmath.real,
        "complex": dtype.opmath.complex,
    }[row.rule]
    stored = dtype if made == dtype.opmath else made
    output = Output("result", ir.make(row.name, made, args), stored)
    return Program(row.name, inputs, (), (output,), (f"result: {row.aten}",))


def of(result: Node, stored: DType | None = None) -> Program:
    """The program that stores the node as `result`."""
    inputs = tuple(ir.leaves([result], "input"))
    scalars = tuple(ir.leaves([result], "scalar"))
    output = Output("result", result, stored or result.dtype)
    return Program("program", inputs, scalars, (output,))


def samples(row: Primitive, dtype: DType, *shape: int) -> list[Tensor]:
    """Values of the row's domain and, for half of the elements, all that is odd.

    A divisor of integers is never 0, nor -1, by which the least one cannot be divided;
    one of floats is not subnormal, of which PyTorch's own fmod sometimes makes a NaN.
    """
    found = [_values(row, dtype, math.prod(shape)) for _ in range(row.arity)]
    if row.rule == "select":
        found[0] = torch.randint(0, 2, (math.prod(shape),), dtype=torch.bool)
    if row.name in ("idiv", "imod"):
        divisor = found[1]
        found[1] = torch.where((divisor == 0) | (divisor == -1), 3, divisor)
    if row.name == "fmod":
        found[1][found[1].abs() < 1e-37] = 0.75
    return [values.reshape(shape) for values in found]


def domain(row: Primitive, dtype: DType, count: int) -> list[Tensor]:
    """Values of the row's domain alone."""
    return [_in_domain(row, dtype, count) for _ in range(row.arity)]


def _values(row: Primitive, dtype: DType, count: int) -> Tensor:
    values = _in_domain(row, dtype, count)
    odd = torch.rand(count) < 0.5
    if dtype.kind == "int":
        info = torch.iinfo(TO_TORCH[dtype])
        edges = torch.tensor([info.min, info.max, info.min + 1, 0, 1])
    elif dtype.kind == "float":
        edges = torch.tensor(SPECIAL, dtype=torch.float64)
    else:
        return values
    chosen = edges[torch.randint(len(edges), (count,))].to(values.dtype)
    return torch.where(odd, chosen, values)


def _in_domain(row: Primitive, dtype: DType, count: int) -> Tensor:
    kind = TO_TORCH[dtype]
    if dtype.kind == "bool":
        return torch.randint(0, 2, (count,), dtype=kind)
    low, high = row.domain
    if dtype.kind == "int":
        return torch.randint(int(low) if dtype.signed else 1, 9, (count,), dtype=kind)
    values = torch.rand(count, dtype=torch.float64) * (high - low) + low
    if dtype.is_complex:
        values = torch.complex(values, torch.rand(count, dtype=torch.float64) - 0.5)
    return values.to(kind)


def run(
    program: Program,
    tensors: Sequence[Tensor],
    numbers: Sequence[Number] = (),
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """The program's outputs, computed by its Triton kernel.

    `tensors` broadcast together; the outputs are new, or `out`, which may have any
    strides. Complex numbers are given as two.
    """
    from atentriton import tritonkernels

    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    if out is None:
        out = [
            torch.empty(shape, dtype=TO_TORCH[o.dtype], device=tensors[0].device)
            for o in program.outputs
        ]
    operands = [t.expand(shape) for t in (*tensors, *out)]
    space = walk(tuple(shape), [t.stride() for t in operands])
    kernel = tritonkernels.load(schedule(program, space.layout))
    kernel(
        operands, numbers, space.sizes, [s for steps in space.strides for s in steps]
    )
    return list(out)


def dense(program: Program, index: DType = dtypes.int32) -> Kernel:
    """The program's kernel for operands that are all dense."""
    from fuser.kernel import Access, Layout

    count = len(program.inputs) + len(program.outputs)
    return schedule(program, Layout(1, (Access.LINEAR,) * count, index))
