"""Kernels in C: compiled, loaded and called.

Comes in: a `fuser.kernel.Kernel`, or a piece that may have a record from which its
kernel is loaded as it is. Goes out: a `NativeKernel`, which takes addresses and
numbers. Nothing here looks at tensors; the launcher has checked them before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import get_num_threads

from atentriton import records
from atentriton.cache import default_cache
from atentriton.pieces import Piece
from atentriton.toolchain import toolchain
from fuser.memory import Layout

if TYPE_CHECKING:
    from fuser.kernel import Kernel

DIVISION_BY_ZERO = 1

# Whether multiplications and additions may be fused, as PyTorch's own kernels are
# compiled. Off, results are those of the operations done one after the other.
contract = True

_NUMBERS = {
    "bool": ctypes.c_bool,
    "int64": ctypes.c_int64,
    "float64": ctypes.c_double,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What calling a compiled function takes: the names of its numbers' types, how many
    pointers, and whether its loop is the flat one."""

    symbol: str
    flat: bool
    pointers: int
    numbers: tuple[str, ...]

    @property
    def types(self) -> list[type]:
        """What ctypes converts the arguments to."""
        shape = [ctypes.c_int64] if self.flat else [ctypes.c_void_p] * 2
        pointers = [ctypes.c_void_p] * self.pointers
        numbers = [_NUMBERS[name] for name in self.numbers]
        return [*shape, *pointers, *numbers, ctypes.c_int32]


@dataclass(frozen=True, slots=True, eq=False)
class NativeKernel:
    """A compiled kernel; `path` is the library it was loaded from."""

    call: Shape
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
        if self.call.flat:
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
    from fuser.render import render
    from fuser.targets import target

    source = render(kernel, target("native"))
    key = (source, contract)
    found = _loaded.get(key)
    if found is None:
        found = _loaded.setdefault(key, _compiled(kernel, source))
    return found


def of_piece(piece: Piece, layout: Layout) -> NativeKernel:
    """The kernel of the piece for that layout; errors as for `load`.

    Where a process before has left its library and a record of it, nothing is compiled,
    and not even the piece's program made.
    """
    if piece.name is None:
        return load(_scheduled(piece, layout))
    tools = toolchain()
    access = " ".join(a.value for a in layout.access)
    space = f"{layout.rank} {access} {layout.index} {layout.summed}"
    key = f"kernel {piece.name}\n{space}\n{contract}\n{tools.key}"
    found = records.recall(key, _opened)
    if found is None:
        with records.uncollected():
            found = load(_scheduled(piece, layout))
        call = found.call
        facts = [call.symbol, call.flat, call.pointers, call.numbers]
        records.keep(key, [found.path.name, *facts])
    return found


def _scheduled(piece: Piece, layout: Layout) -> Kernel:
    from fuser.schedule import schedule

    return schedule(piece.program, layout)


def _compiled(kernel: Kernel, source: str) -> NativeKernel:
    build = partial(toolchain().library, source, contract=contract)
    numbers = tuple(a.dtype.name for a in kernel.arguments)
    symbol = f"{kernel.name}_kernel"
    call = Shape(symbol, kernel.layout.flat, len(kernel.operands), numbers)
    path = build()
    try:
        return _open(path, call)
    except OSError:  # damaged: made anew, once
        default_cache().discard(path)
        return _open(build(), call)


def _opened(found: Any) -> NativeKernel:
    """The kernel of a record; LookupError, OSError or the like where it is gone."""
    name, symbol, flat, pointers, numbers = found
    call = Shape(str(symbol), bool(flat), int(pointers), tuple(map(str, numbers)))
    return _open(default_cache().named(str(name)), call)


def _open(path: Path, call: Shape) -> NativeKernel:
    function = ctypes.CDLL(str(path))[call.symbol]
    function.restype = ctypes.c_int32
    function.argtypes = call.types
    return NativeKernel(call, path, function)
