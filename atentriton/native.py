"""Kernels in C: compiled, loaded and called.

Comes in: a `fuser.kernel.Kernel`. Goes out: a `NativeKernel`, which takes addresses and
numbers. Nothing here looks at tensors; the launcher has checked them before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import get_num_threads

from atentriton.cache import default_cache
from atentriton.toolchain import toolchain
from fuser.kernel import Argument, Kernel
from fuser.render import render
from fuser.targets import target

DIVISION_BY_ZERO = 1

# Whether multiplications and additions may be fused, as PyTorch's own kernels are
# compiled. Off, results are those of the operations done one after the other.
contract = True

_NUMBERS = {
    "bool": ctypes.c_bool,
    "int64": ctypes.c_int64,
    "float64": ctypes.c_double,
}


@dataclass(frozen=True, slots=True, eq=False)
class NativeKernel:
    """A compiled kernel; `source` is its C, `path` the library it was loaded from."""

    kernel: Kernel
    source: str
    path: Path
    function: Callable[..., int]

    def __call__(
        self,
        pointers: Sequence[int],
        numbers: Sequence[bool | int | float],
        sizes: Sequence[int],
        strides: Sequence[Sequence[int]] = (),
    ) -> int:
        """Run the kernel; 0, or DIVISION_BY_ZERO.

        `pointers` are addresses in the order of the operands, `numbers` go with the
        kernel's arguments. `sizes` has `rank` numbers; `strides` has as many for each
        operand, in elements, and is not looked at where the layout is flat. All of what
        the pointers point to must stay alive, and be of the right type and size.
        """
        threads = get_num_threads()
        if self.kernel.layout.flat:
            return self.function(sizes[0], *pointers, *numbers, threads)
        shape = self.shape(sizes, strides)
        at = ctypes.addressof(shape)
        return self.function(at, at + 8 * len(sizes), *pointers, *numbers, threads)

    def shape(
        self, sizes: Sequence[int], strides: Sequence[Sequence[int]]
    ) -> ctypes.Array[ctypes.c_int64]:
        """The sizes and then the strides in one array, as the function reads them."""
        flat = [*sizes, *(stride for operand in strides for stride in operand)]
        return (ctypes.c_int64 * len(flat))(*flat)


_loaded: dict[tuple[str, bool], NativeKernel] = {}


def load(kernel: Kernel) -> NativeKernel:
    """The kernel, compiled if neither this process nor the cache has it yet.

    NoCompilerError where there is no compiler, CompileError if it refuses the source.
    """
    source = render(kernel, target("native"))
    key = (source, contract)
    found = _loaded.get(key)
    if found is None:
        made = _open(kernel, source)
        found = _loaded.setdefault(key, made)
    return found


def _open(kernel: Kernel, source: str) -> NativeKernel:
    tools = toolchain()
    path = tools.library(source, contract=contract)
    try:
        library = ctypes.CDLL(str(path))
    except OSError:  # damaged: made anew, once
        default_cache().discard(path)
        path = tools.library(source, contract=contract)
        library = ctypes.CDLL(str(path))
    function = library[f"{kernel.name}_kernel"]
    function.restype = ctypes.c_int32
    function.argtypes = argument_types(kernel)
    return NativeKernel(kernel, source, path, function)


def argument_types(kernel: Kernel) -> list[type]:
    """What ctypes converts the arguments of the kernel's function to."""
    shape = [ctypes.c_int64] if kernel.layout.flat else [ctypes.c_void_p] * 2
    pointers = [ctypes.c_void_p for _ in kernel.operands]
    numbers = [number_type(a) for a in kernel.arguments]
    return [*shape, *pointers, *numbers, ctypes.c_int32]


def number_type(argument: Argument) -> type:
    return _NUMBERS[argument.dtype.name]
