"""Memory: the shape and strides of results, and the walk of a kernel through it.

Comes in: shapes and strides. Goes out: PyTorch's broadcast shape and output strides,
and a `Walk`: the collapsed index space of one kernel with the `Layout` that its code
depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import compute_elementwise_output_strides

from fuser.dtypes import int32, int64
from fuser.memory import Access, Layout, Tile

Shape = tuple[int, ...]
Strides = tuple[int, ...]

INT32_MAX = 2**31 - 1

# PyTorch lays a result out like the tensors of the call, those first that come first.
# Of these operators it is like those named here alone, and where none is, contiguous.
LIKE: dict[str, tuple[str, ...]] = {
    "_prelu_kernel_backward": ("self", "weight", "grad_output"),
    "binary_cross_entropy_backward": ("self",),
    "binary_cross_entropy_with_logits": ("target",),
    "hinge_embedding_loss": ("target", "self"),
    "huber_loss_backward": (),
    "kl_div": ("target", "self"),
    "margin_ranking_loss": ("target", "input1", "input2"),
    "masked_fill.Scalar": (),
    "masked_fill.Tensor": (),
    "mse_loss_backward": (),
    "mvlgamma": (),
    "pow.Scalar": (),
    "rsub.Tensor": ("other", "self"),
    "smooth_l1_loss_backward": (),
    "soft_margin_loss_backward": ("target", "self"),
    "special_multigammaln": (),
    "threshold_backward": ("self", "grad_output"),
}

# Operators that PyTorch has write into a tensor of the shape that these of their
# tensors have together: the others must not be any larger.
INTO: dict[str, tuple[str, ...]] = {
    "binary_cross_entropy": ("self",),
    "binary_cross_entropy_backward": ("self",),
    "binary_cross_entropy_with_logits": ("target",),
    "soft_margin_loss": ("self",),
    "soft_margin_loss_backward": ("self", "target"),
}


def broadcast(shapes: Sequence[Sequence[int]]) -> Shape:
    """The shape that the shapes broadcast to; RuntimeError in PyTorch's words."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return tuple(first)
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for position, size in enumerate(shape, offset):
            known = result[position]
            if size == known or size == 1:
                continue
            if known != 1:
                raise RuntimeError(
                    f"The size of tensor a ({known}) must match the size of tensor b "
                    f"({size}) at non-singleton dimension {position}"
                )
            result[position] = size
    return tuple(result)


def check_fit(shape: Sequence[int], shapes: Sequence[Sequence[int]]) -> None:
    """RuntimeError in PyTorch's words where those shapes broadcast to another one."""
    whole = broadcast(shapes)
    if whole != tuple(shape):
        raise RuntimeError(
            f"output with shape {list(shape)} doesn't match the broadcast shape "
            f"{list(whole)}"
        )


def contiguous_strides(shape: Sequence[int]) -> Strides:
    """The strides, in elements, of a new contiguous tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def output_strides(shape: Shape, tensors: Sequence[Tensor]) -> Strides:
    """The strides that PyTorch gives a new result of these operands, of shape `shape`.

    A permuted or channels-last layout is kept, and gaps are closed. Without operands
    the result is contiguous.
    """
    if len(shape) < 2 or 0 in shape:
        return contiguous_strides(shape)
    if all(t.is_contiguous() and t.shape == shape for t in tensors):
        return contiguous_strides(shape)
    return tuple(
        compute_elementwise_output_strides(*(t.expand(shape) for t in tensors))
    )


@dataclass(frozen=True, slots=True)
class Like:
    """Whose layout results take, where it is not that of all operands in order.

    `followed` are the numbers of the operands that decide it: those of inputs, and
    after them of `steps`, which are results on the way. A step has the inputs that make
    up its shape, and what it is laid out like.
    """

    followed: tuple[int, ...]
    steps: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()

    def strides(self, shape: Shape, tensors: Sequence[Tensor]) -> Strides:
        """The strides of results of shape `shape`, for those inputs."""
        laid = list(tensors)
        for inputs, followed in self.steps:
            whole = broadcast([tensors[i].shape for i in inputs])
            strides = output_strides(whole, [laid[i] for i in followed])
            laid.append(torch.empty_strided(whole, strides, device="meta"))
        return output_strides(shape, [laid[i] for i in self.followed])

    def among(self, places: Sequence[int], count: int) -> Like:
        """The same where the inputs stand at those places among `count`."""
        new = [*places, *range(count, count + len(self.steps))]
        steps = tuple(
            (tuple(new[i] for i in inputs), tuple(new[i] for i in followed))
            for inputs, followed in self.steps
        )
        return Like(tuple(new[i] for i in self.followed), steps)


def like_of(operator: str, names: Sequence[str]) -> Like | None:
    """Whose layout the operator's results take, by the names of its tensors."""
    followed = LIKE.get(operator)
    if followed is None:
        return None
    return Like(tuple(names.index(name) for name in followed if name in names))


def expanded_strides(
    shape: Shape, size: Sequence[int], stride: Sequence[int]
) -> Strides:
    """The strides of a tensor of size `size` when it is expanded to `shape`."""
    missing = len(shape) - len(size)
    kept = tuple(0 if n == 1 else s for n, s in zip(size, stride, strict=True))
    return (0,) * missing + kept


@dataclass(frozen=True, slots=True)
class Walk:
    """How one kernel goes through memory: `sizes`, and `strides[operand]`, in elements.

    The last dimension is the innermost. Dimensions of size 1 are gone and those that
    are one stretch of memory for every operand are merged.
    """

    layout: Layout
    sizes: tuple[int, ...]
    strides: tuple[Strides, ...]

    @property
    def sums(self) -> list[tuple[Strides, bool]]:
        """The strides of each output, and whether it is a sum, where some are."""
        summed = self.layout.summed
        outputs = self.strides[len(self.strides) - len(summed) :]
        return list(zip(outputs, summed, strict=True))


def walk(shape: Shape, strides: Sequence[Strides], summed: Sequence[bool] = ()) -> Walk:
    """The collapsed index space of operands that have all been expanded to `shape`.

    `strides` has one entry an operand, the results last; the order of the dimensions is
    that of the last result, which is written once and in order. `summed` marks results
    that are sums; where all are, the order is that of the operand with most dimensions.
    """
    lead = strides[-1]
    if any(summed):
        results = zip(strides[-len(summed) :], summed, strict=True)
        whole = [steps for steps, sum_ in results if not sum_]
        lead = whole[-1] if whole else max(strides, key=lambda s: len(s) - s.count(0))
    dims = [d for d in range(len(shape)) if shape[d] != 1]
    dims.sort(key=lambda d: (-lead[d], d))
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for d in dims:
        if sizes and all(
            s[-1] == given[d] * shape[d]
            for s, given in zip(steps, strides, strict=True)
        ):
            sizes[-1] *= shape[d]
            for s, given in zip(steps, strides, strict=True):
                s[-1] = given[d]
            continue
        sizes.append(shape[d])
        for s, given in zip(steps, strides, strict=True):
            s.append(given[d])
    if not sizes:  # one element: any stride will do, and 1 is what the flat loop has
        sizes, steps = [1], [[1] for _ in strides]
    access = tuple(_access(s[-1]) for s in steps)
    index = int64 if _is_far(sizes, steps) else int32
    layout = Layout(len(sizes), access, index, tuple(summed))
    return Walk(layout, tuple(sizes), tuple(map(tuple, steps)))


def tiled(space: Walk) -> Walk | None:
    """A walk with sums as one by tiles; None where a tile could add nothing up.

    The dimensions between the batches and the innermost one are the rows of a tile. A
    sum that keeps the innermost dimension is over all of the rows: such a one decides
    which dimensions these are. If none does, all are.
    """
    outer = range(len(space.sizes) - 1)
    keeping = [
        {d for d in outer if s[d] == 0} for s, sum_ in space.sums if sum_ and s[-1]
    ]
    rows = keeping[0] if keeping else set(outer)
    if (keeping and not rows) or not all(rows <= gone for gone in keeping):
        return None
    order = [*(d for d in outer if d not in rows), *(d for d in outer if d in rows)]
    order.append(len(space.sizes) - 1)
    down = tuple(all(s[d] == 0 for d in rows) for s, _ in space.sums)
    layout = replace(space.layout, tile=Tile(len(rows), down))
    strides = tuple(tuple(s[d] for d in order) for s in space.strides)
    return Walk(layout, tuple(space.sizes[d] for d in order), strides)


def _access(stride: int) -> Access:
    if stride == 0:
        return Access.UNIFORM
    return Access.LINEAR if stride == 1 else Access.STRIDED


def _is_far(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> bool:
    """Whether an offset, or the number of elements, can pass 2**31 - 1."""
    count = 1
    for size in sizes:
        count *= size
    if count > INT32_MAX:
        return True
    return any(
        sum((size - 1) * step for size, step in zip(sizes, s, strict=True)) > INT32_MAX
        for s in strides
    )


def overlaps(tensor: Tensor) -> bool:
    """Whether two elements of the tensor share memory because it has been expanded."""
    return any(
        size > 1 and step == 0
        for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


def check_one_device(tensors: Sequence[Tensor]) -> torch.device:
    """The device of the call: that of the tensors that have dimensions.

    A CPU tensor without dimensions may stand beside tensors of another device. Raises
    RuntimeError in PyTorch's words where devices are mixed otherwise.
    """
    device: Any = None
    for t in tensors:
        if t.device.type == "cpu" and t.dim() == 0:
            continue
        if device is None:
            device = t.device
        elif t.device != device:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two "
                f"devices, {device} and {t.device}!"
            )
    if device is not None:
        return device
    others = [t.device for t in tensors if t.device.type != "cpu"]
    return others[0] if others else torch.device("cpu")
