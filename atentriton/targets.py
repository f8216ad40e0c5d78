"""Where kernels run: which target a device has, and one launch of one kernel.

Comes in: a program that is one kernel, how it walks memory, and a device. Goes out:
`Launch`, which runs it on the tensors of a call. CPU tensors go to compiled C, GPU
tensors to Triton, and CPU tensors to Triton's interpreter where TRITON_INTERPRET=1 is
set. Where there is no compiler the reference runs, and says so once.
"""

from __future__ import annotations

import ctypes
import math
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from atentriton.decisions import fell_back
from atentriton.layouts import Walk
from atentriton.pieces import Piece
from atentriton.settings import chosen

if TYPE_CHECKING:
    from atentriton.tiles import Cut

Slots = Sequence[Tensor]
Run = Callable[[Slots, Sequence[Any]], Any]

# Below so many elements a kernel runs in one thread: PyTorch's own grain size.
FEW_ELEMENTS = 32768

_PYTHON: dict[str, type] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
}


class Launch(Protocol):
    """One kernel launch; `slots` are the tensors of the call, `numbers` its numbers."""

    target: str

    def __call__(self, slots: Slots, numbers: Sequence[Any]) -> None: ...


Target = Callable[[Piece, Walk], Launch]


class ReferenceLaunch:
    """The graph evaluated with PyTorch's operators."""

    target = "reference"

    def __init__(self, piece: Piece, walk: Walk) -> None:
        self.program = piece.program
        self.inputs = piece.reads
        self.outputs = piece.writes
        self.numbers = piece.numbers

    def __call__(self, slots: Slots, numbers: Sequence[Any]) -> None:
        from atentriton.reference import evaluate

        tensors = [slots[i].detach() for i in self.inputs]
        found = evaluate(self.program, tensors, [numbers[i] for i in self.numbers])
        for slot, value in zip(self.outputs, found, strict=True):
            slots[slot].detach().copy_(value)


def interpreted() -> bool:
    """Whether Triton kernels run in Triton's interpreter, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def of_device(device: torch.device) -> Target:
    """What runs kernels for tensors of that device, by the backend that is chosen.

    RuntimeError where that backend does not know the device.
    """
    backend = chosen.backend
    if backend == "auto":
        if device.type == "cpu" and not interpreted():
            return _unless(_compiler_missing(), NativeLaunch)
        if device.type in ("cpu", "cuda"):
            return _unless(_triton_missing(), TritonLaunch)
        return ReferenceLaunch
    if backend == "reference":
        return ReferenceLaunch
    if backend == "native" and device.type == "cpu":
        return _unless(_compiler_missing(), NativeLaunch)
    if backend == "triton" and (device.type == "cuda" or interpreted()):
        return _unless(_triton_missing(), TritonLaunch)
    takes = "tensors on a GPU (and with TRITON_INTERPRET=1 on the CPU)"
    if backend == "native":
        takes = "tensors on the CPU"
    raise RuntimeError(f"the backend {backend!r} takes {takes}, not on {device}")


class NativeLaunch:
    """A compiled C kernel, its sizes and strides laid out for it once."""

    target = "native"

    def __init__(self, piece: Piece, walk: Walk) -> None:
        from atentriton import native

        kernel = native.of_piece(piece, walk.layout)
        self.kernel = kernel
        self.function = kernel.function
        self.operands = piece.operands
        self.flatten = flattener(piece)
        self.single_threaded = math.prod(walk.sizes) < FEW_ELEMENTS
        self.shape: tuple[int, ...] = (walk.sizes[0],)
        if not walk.layout.flat:
            self.table = kernel.shape(walk.sizes, [*walk.strides, _spans(walk)])
            at = ctypes.addressof(self.table)
            self.shape = (at, at + 8 * len(walk.sizes))

    def __call__(self, slots: Slots, numbers: Sequence[Any]) -> None:
        given = self.flatten(numbers) if self.flatten is not None else ()
        pointers = [slots[i].data_ptr() for i in self.operands]
        if self.function(*self.shape, *pointers, *given, self.threads()):
            raise RuntimeError("ZeroDivisionError")

    def threads(self) -> int:
        """How many threads there are at most; where outputs are sums, each thread has
        sums of its own, one after the other."""
        return 1 if self.single_threaded else torch.get_num_threads()

    def quick(self, allocate: Sequence[Callable[[], Tensor]], otherwise: Run) -> Run:
        """The launch as one step, where the call's tensors are the kernel's in order.

        `allocate` makes the outputs, one each; of a single output, that alone is given.
        `otherwise` does the same by the longer way.
        """
        if self.operands != tuple(range(len(self.operands))):
            return otherwise
        if not self.single_threaded:
            return otherwise
        function, shape, flatten = self.function, self.shape, self.flatten
        if len(allocate) > 1:
            return self._several(allocate)
        (make,) = allocate
        if flatten is None and len(self.operands) == 2:

            def one(tensors: Slots, numbers: Sequence[Any]) -> Tensor:
                (tensor,) = tensors
                out = make()
                if function(*shape, tensor.data_ptr(), out.data_ptr(), 1):
                    raise RuntimeError("ZeroDivisionError")
                return out

            return one

        def many(tensors: Slots, numbers: Sequence[Any]) -> Tensor:
            out = make()
            given = () if flatten is None else flatten(numbers)
            pointers = [t.data_ptr() for t in tensors]
            if function(*shape, *pointers, out.data_ptr(), *given, 1):
                raise RuntimeError("ZeroDivisionError")
            return out

        return many

    def _several(self, allocate: Sequence[Callable[[], Tensor]]) -> Run:
        function, shape, flatten = self.function, self.shape, self.flatten

        def several(tensors: Slots, numbers: Sequence[Any]) -> tuple[Tensor, ...]:
            outs = [make() for make in allocate]
            given = () if flatten is None else flatten(numbers)
            pointers = [t.data_ptr() for t in (*tensors, *outs)]
            if function(*shape, *pointers, *given, 1):
                raise RuntimeError("ZeroDivisionError")
            return tuple(outs)

        return several


def _spans(walk: Walk) -> list[int]:
    """The elements of each output that is a sum, without what it is expanded to."""
    return [
        math.prod(n for n, s in zip(walk.sizes, strides, strict=True) if s)
        for strides, sum_ in walk.sums
        if sum_
    ]


class TritonLaunch:
    """A Triton kernel, for a GPU or in the interpreter."""

    target = "triton"

    def __init__(self, piece: Piece, walk: Walk) -> None:
        from atentriton import tritonkernels
        from fuser.schedule import schedule

        self.kernel = tritonkernels.load(schedule(piece.program, walk.layout))
        self.operands = piece.operands
        self.flatten = flattener(piece)
        self.sizes = walk.sizes
        self.strides = [step for strides in walk.strides for step in strides]

    def cut(self) -> Cut:
        """How the programs of its kernel share the index space."""
        return self.kernel.fitting(self.sizes, self.strides).cut(self.sizes)

    def __call__(self, slots: Slots, numbers: Sequence[Any]) -> None:
        given = self.flatten(numbers) if self.flatten is not None else ()
        tensors = [slots[i].detach() for i in self.operands]
        self.kernel(tensors, given, self.sizes, self.strides)


Flatten = Callable[[Sequence[Any]], list[Any]]


def flattener(piece: Piece) -> Flatten | None:
    """How the numbers of a call become a kernel's: its own, a complex one as two."""
    numbers = piece.numbers
    if not numbers:
        return None
    dtypes = [dtype for _, dtype in piece.outline.scalars]
    complex_ = tuple(dtype.is_complex for dtype in dtypes)
    kinds = tuple(_PYTHON[dtype.kind] for dtype in dtypes)

    def flatten(given: Sequence[Any]) -> list[Any]:
        flat: list[Any] = []
        for i, kind, pair in zip(numbers, kinds, complex_, strict=True):
            value = kind(given[i])
            flat += (value.real, value.imag) if pair else (value,)
        return flat

    return flatten


@cache
def _compiler_missing() -> str:
    """Why there are no kernels in C; nothing where there are."""
    from atentriton import toolchain

    try:
        toolchain.toolchain()
    except toolchain.NoCompilerError as error:
        return str(error)
    return ""


@cache
def _triton_missing() -> str:
    try:
        import triton  # noqa: F401
    except ImportError as error:
        return str(error)
    return ""


def _unless(missing: str, target: Target) -> Target:
    """The target, or the reference where something is missing, which is said once."""
    if not missing:
        return target
    fell_back("every operator", f"no kernels can be built ({missing})")
    _warn(missing)
    return ReferenceLaunch


@cache
def _warn(reason: str) -> None:
    warnings.warn(
        f"no kernels can be built ({reason}): PyTorch's own operators are used "
        "instead, one for each step of a formula",
        RuntimeWarning,
        stacklevel=2,
    )
