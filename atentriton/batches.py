"""Batch dimensions: where vmap, or the older one of is_grads_batched, has put them.

Comes in: batched tensors. Goes out: tensors that broadcast as the unbatched ones did,
each batch being a dimension in front.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, _add_batch_dim, _remove_batch_dim  # type: ignore[attr-defined]


def aligned(pairs: Sequence[tuple[Tensor, int | None]]) -> list[Tensor]:
    """The tensors with their batch dimensions first, and as far from the right as each
    other's: they broadcast as the unbatched ones did."""
    rank = max(t.dim() - (d is not None) for t, d in pairs)
    moved: list[Tensor] = []
    for tensor, dim in pairs:
        if dim is not None:
            tensor = tensor.movedim(dim, 0)
            missing = rank - (tensor.dim() - 1)
            if missing:
                tensor = tensor.reshape(
                    tensor.shape[0], *(1,) * missing, *tensor.shape[1:]
                )
        moved.append(tensor)
    return moved


def unbatched(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that the older vmap has batched, at any of its levels.

    Each level becomes a dimension in front: of size 1 where a tensor is not batched at
    it, so that the tensors broadcast.
    """
    levels = _levels()
    rank = max(t.dim() for t in inputs)
    found: list[Tensor] = []
    for tensor in inputs:
        missing = rank - tensor.dim()
        for level in reversed(levels):
            tensor = _remove_batch_dim(tensor, level, 1, 0)
        outer, inner = tensor.shape[: len(levels)], tensor.shape[len(levels) :]
        found.append(tensor.reshape(*outer, *(1,) * missing, *inner))
    return found


def rebatched(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The same batched again: the dimensions in front belong to the levels."""
    found: list[Tensor] = []
    for output in outputs:
        for level in _levels():
            if output.shape[0] == 1:
                output = output.squeeze(0)
            else:
                output = _add_batch_dim(output, 0, level)
        found.append(output)
    return found


def _levels() -> range:
    """The levels of the older vmap, outermost first."""
    above = torch._C._vmapmode_increment_nesting()
    torch._C._vmapmode_decrement_nesting()
    return range(1, above)
