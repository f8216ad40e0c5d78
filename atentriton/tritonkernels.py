"""Compiled Triton kernels: made from a `Kernel`, launched on tensors.

Comes in: kernels from the scheduler. Goes out: `TritonKernel`, which launches one, and
`compile_only`, which compiles one for a machine that need not be there. The source is a
module in the cache folder, where debuggers and profilers find it; what Triton makes of
it lies in the same folder unless TRITON_CACHE_DIR says otherwise.

An integer division by zero gives an unspecified number, as it does on PyTorch's GPUs.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from atentriton.cache import default_cache
from atentriton.interpreting import corrections, is_interpreting, libdevice, number
from atentriton.tiles import Cut, cut
from fuser import targets
from fuser.dtypes import DType, int64
from fuser.ir import Number
from fuser.kernel import Kernel
from fuser.pressure import live_words
from fuser.render import render
from fuser.targets._triton_index import shape_parameters
from fuser.targets.triton import constant_names, function_name

WARPS = 4
"""Warps of a program; a thread works on one element or on up to `MOST_ELEMENTS`."""
MOST_ELEMENTS = 8
WORDS = 80
"""The 32-bit words that the elements of a thread may have alive together."""
INTERPRETED_BLOCK = 65536
"""Elements of a program in the interpreter, which pays for programs, not elements."""


class TritonKernel:
    """A kernel that has been printed and imported; Triton compiles it when launched."""

    def __init__(self, kernel: Kernel, contract: bool = True) -> None:
        """Print and import the kernel; `contract` allows fused multiply-add."""
        self.kernel = kernel
        self.contract = contract
        self.source = render(kernel, targets.target("triton"))
        self.path = default_cache().text(self.source, ".py")
        self.function = _function(self.path, function_name(kernel))
        self.block = INTERPRETED_BLOCK if is_interpreting() else block_size(kernel)
        self._shape = shape_parameters(kernel)
        self._compiled: set[tuple[object, ...]] = set()

    def __call__(
        self,
        tensors: Sequence[Tensor],
        numbers: Sequence[Number] = (),
        sizes: Sequence[int] = (),
        strides: Sequence[int] = (),
    ) -> None:
        """Compute every element and write the outputs, on the tensors' device.

        `tensors` are the operands in order, outputs last; `numbers` the arguments, of
        a complex one the real and the imaginary part. `sizes` are the extents of the
        index space, outermost first; `strides`, which a flat kernel does not look at,
        has as many numbers for each operand, in elements. Without elements nothing is
        launched. ValueError for a wrong count.
        """
        self._check(tensors, numbers, sizes, strides)
        if 0 in sizes:
            return
        fitting = self.fitting(sizes, strides)
        if fitting is not self:
            fitting(tensors, numbers, sizes, strides)
            return
        data = [torch.view_as_real(t) if t.is_complex() else t for t in tensors]
        rank = self.kernel.layout.rank
        shape = [
            sizes[p.dim] if p.operand is None else strides[p.operand * rank + p.dim]
            for p in self._shape
        ]
        found = self.cut(sizes)
        numbers = [*numbers, *shape]
        if is_interpreting():
            self._interpret(found, data, numbers)
        else:
            self._launch(found, data, numbers)

    def cut(self, sizes: Sequence[int]) -> Cut:
        """How its programs share a space of these sizes."""
        return cut(self.kernel.layout, sizes, self.block)

    def fitting(self, sizes: Sequence[int], strides: Sequence[int]) -> TritonKernel:
        """The kernel itself, or the one with offsets that are wide enough."""
        far = needs_int64(self.kernel, sizes, strides, self.block)
        return self.wide if far else self

    def constants(self, columns: int) -> dict[str, int]:
        """What it is compiled for; `columns` are those of a tile, if it has tiles."""
        values = (self.block, columns)
        return dict(zip(constant_names(self.kernel), values, strict=False))

    def _check(
        self,
        tensors: Sequence[Tensor],
        numbers: Sequence[Number],
        sizes: Sequence[int],
        strides: Sequence[int],
    ) -> None:
        kernel, layout = self.kernel, self.kernel.layout
        strided = 0 if layout.flat else len(kernel.operands) * layout.rank
        for what, wanted, given in (
            ("tensors", len(kernel.operands), len(tensors)),
            ("numbers", len(kernel.arguments), len(numbers)),
            ("sizes", layout.rank, len(sizes)),
            ("strides", strided, len(strides) if strided else 0),
        ):
            if wanted != given:
                raise ValueError(f"{kernel.name} takes {wanted} {what}, got {given}")

    @cached_property
    def wide(self) -> TritonKernel:
        """The same kernel with 64-bit offsets."""
        layout = replace(self.kernel.layout, index=int64)
        return TritonKernel(replace(self.kernel, layout=layout), self.contract)

    def _interpret(
        self, found: Cut, data: Sequence[Tensor], numbers: Sequence[Number]
    ) -> None:
        index = self.kernel.layout.index
        dtypes = [argument.dtype for argument in self.kernel.arguments]
        dtypes += [index] * (len(numbers) - len(dtypes))
        typed = [number(v, dtype) for v, dtype in zip(numbers, dtypes, strict=True)]
        constants = self.constants(found.columns)
        with corrections():
            self.function[(found.programs,)](*data, *typed, **constants)

    def _launch(
        self, found: Cut, data: Sequence[Tensor], numbers: Sequence[Number]
    ) -> None:
        device = data[0].device
        options = {**self.constants(found.columns), **_options_here(self.contract)}
        # What Triton compiles anew for; only then does it look for its cache.
        aligned = [t.data_ptr() % 16 == 0 for t in data]
        first: Any = numbers[len(self.kernel.arguments)]
        variant = (device, *aligned, found.columns, first % 16 == 0, first == 1)
        with torch.cuda.device(device):
            if variant in self._compiled:
                self.function[(found.programs,)](*data, *numbers, **options)
                return
            with _triton_cache():
                self.function[(found.programs,)](*data, *numbers, **options)
        self._compiled.add(variant)


def needs_int64(
    kernel: Kernel, sizes: Sequence[int], strides: Sequence[int], block: int
) -> bool:
    """Whether an offset would not fit into the 32 bits that the layout found enough.

    The last program's offsets go past the last element, up to a whole block, and in
    memory a complex element is two.
    """
    layout = kernel.layout
    if layout.index == int64:
        return False
    if math.prod(sizes) > 2**31 - block:
        return True
    for position, operand in enumerate(kernel.operands):
        if operand.dtype.is_complex:
            first = position * layout.rank
            steps = [1] if layout.flat else strides[first : first + layout.rank]
            last = sum((n - 1) * step for n, step in zip(sizes, steps, strict=True))
            if 2 * last + 2 > 2**31:
                return True
    return False


def block_size(kernel: Kernel) -> int:
    """How many elements a program works on: fewer of a kernel with many values."""
    elements = MOST_ELEMENTS
    while elements > 1 and elements * live_words(kernel) > WORDS:
        elements //= 2
    return elements * WARPS * 32


def load(kernel: Kernel, *, contract: bool = True) -> TritonKernel:
    """The kernel, ready to be launched; `contract` allows fused multiply-add."""
    return TritonKernel(kernel, contract)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What Triton made of a kernel for `target`.

    `asm` holds every stage by name (`ttir`, `ptx`, `cubin`, `amdgcn`, ...), `signature`
    the type of each argument as Triton spells it. `shared` is in bytes a program.
    """

    target: str
    asm: Mapping[str, Any]
    signature: Mapping[str, str]
    shared: int

    @property
    def text(self) -> str:
        """The assembly: PTX, or that of AMD's GPUs."""
        return self.asm["ptx"] if "ptx" in self.asm else self.asm["amdgcn"]

    def resources(self) -> Resources:
        """Registers and stack of a thread; RuntimeError without NVIDIA's cuobjdump."""
        if "ptx" not in self.asm:
            names = ("vgpr_count", "private_segment_fixed_size")
            found = [re.search(rf"\.{name}:\s+(\d+)", self.text) for name in names]
            return Resources(*(int(match[1]) for match in found if match))
        found = re.search(r"REG:(\d+) STACK:(\d+)", _res_usage(self.asm["cubin"]))
        if found is None:
            raise RuntimeError("cuobjdump said nothing of registers")
        return Resources(*map(int, found.groups()))


@dataclass(frozen=True, slots=True)
class Resources:
    """What a thread takes: vector registers, and bytes of memory they spill to."""

    registers: int
    stack: int


def compile_only(
    kernel: Kernel,
    target: str,
    *,
    contract: bool = True,
    block: int | None = None,
    columns: int = 32,
) -> Compiled:
    """Compile for `target` (`sm_80`, `sm_90`, `gfx942`, ...); no GPU is needed.

    Pointers are taken to be aligned and the number of elements to be a multiple of 16,
    as they mostly are; `block` is the number of elements of a program and `columns`
    that of the columns of a tile, both powers of 2.
    RuntimeError where Triton interprets.
    """
    if is_interpreting():
        raise RuntimeError("TRITON_INTERPRET=1 is set: nothing can be compiled")
    machine = _machine(target)
    made = TritonKernel(kernel, contract)
    signature = _signature(kernel, made.function)
    names = list(signature)
    aligned = [o.pointer for o in kernel.operands] + [n for n in names if n == "n"]
    source = ASTSource(
        made.function,
        signature,
        made.constants(columns) | ({"BLOCK": block} if block else {}),
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    with _triton_cache():
        compiled = triton.compile(
            source, target=machine, options=_options(machine, contract)
        )
    shared: int = compiled.metadata.shared
    return Compiled(target, compiled.asm, signature, shared)


def _signature(kernel: Kernel, function: Any) -> dict[str, str]:
    """Triton's type of every parameter: declared, or for pointers the operand's."""
    pointers = {o.pointer: f"*{_pointee(o.dtype)}" for o in kernel.operands}
    signature: dict[str, str] = {}
    for p in function.params:
        declared = "constexpr" if p.is_constexpr else str(p.annotation)
        signature[p.name] = pointers.get(p.name, declared)
    return signature


def _pointee(dtype: DType) -> str:
    names = {"float": "fp", "bool": "i", "int": "i" if dtype.signed else "u"}
    if dtype.name == "bfloat16":
        return "bf16"
    bits = 1 if dtype.kind == "bool" else dtype.real.bits
    return f"{names[dtype.real.kind]}{bits}"


def _machine(target: str) -> GPUTarget:
    if found := re.fullmatch(r"sm_(\d+)", target):
        return GPUTarget("cuda", int(found[1]), 32)
    if re.fullmatch(r"gfx[0-9a-f]+", target):
        return GPUTarget("hip", target, 64 if target.startswith("gfx9") else 32)
    raise ValueError(f'expected a machine such as "sm_90" or "gfx942", got "{target}"')


def _options(machine: Any, contract: bool) -> dict[str, Any]:
    """Options of the compiler; as PyTorch's, it keeps subnormal numbers."""
    wanted = {
        "num_warps": WARPS,
        "enable_fp_fusion": contract,
        "enable_reflect_ftz": False,
    }
    known = make_backend(machine).parse_options({})
    return {name: value for name, value in wanted.items() if hasattr(known, name)}


@cache
def _options_here(contract: bool) -> dict[str, Any]:
    return _options(triton.runtime.driver.active.get_current_target(), contract)


@cache
def _function(path: Path, name: str) -> Any:
    """The function `name` of the module at `path`."""
    spec = importlib.util.spec_from_file_location(f"atentriton_{path.stem[:16]}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if is_interpreting() and hasattr(module, "libdevice"):
        vars(module)["libdevice"] = libdevice
    return getattr(module, name)


@contextmanager
def _triton_cache() -> Iterator[None]:
    """While this lasts Triton's cache is in ours, unless the user has moved it."""
    if "TRITON_CACHE_DIR" in os.environ:
        yield
        return
    with knobs.cache.scope():
        knobs.cache.dir = str(default_cache().root / "triton")
        yield


def _res_usage(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        return subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout
