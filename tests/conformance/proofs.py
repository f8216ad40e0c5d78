"""The operators that every mechanism is proved on: how to call them here and in torch.

In: nothing. Out: `PROOFS`. An operator of each sort: one, two and three tensors,
numbers, a rounding mode, an int that shapes the code, a loop, in place, a view, and
products of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atentriton import ops

Domain = tuple[float, float]


@dataclass(frozen=True)
class Proof:
    """`ours` and `torch` take the same tensors; `domains` has an interval for each.

    `kinds` are the dtype kinds it takes, `shapes` the only ones it takes, and
    `torch_error` is how far torch's own float64 value may be from the right one.
    """

    name: str
    ours: Callable[..., Tensor]
    torch: Callable[..., Tensor]
    domains: tuple[Domain, ...]
    kinds: str = "float"
    shapes: tuple[tuple[int, ...], ...] | None = None
    torch_error: float = 1e-12

    def sample(
        self,
        dtype: torch.dtype = torch.float64,
        shape: Sequence[int] = (3, 4),
        seed: int = 0,
        requires_grad: bool = False,
    ) -> list[Tensor]:
        """Tensors inside the domains, the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        tensors: list[Tensor] = []
        for i, (low, high) in enumerate(self.domains):
            size = self.shapes[i] if self.shapes else shape
            unit = torch.rand(size, generator=generator, dtype=torch.float64)
            value = low + (high - low) * unit
            # Two decimals and an offset of the argument: exact in short types, no ties.
            value = (value * 8).round() / 8 + (i + 1) / 64
            tensor = value.to(dtype)
            tensors.append(tensor.requires_grad_(requires_grad))
        return tensors


def _mask(like: Tensor) -> Tensor:
    """A fixed pattern of the tensor's shape: every third element."""
    return (torch.arange(like.numel()).reshape(like.shape) % 3) == 0


def _ours_masked_fill(x: Tensor) -> Tensor:
    return ops.masked_fill_(x.clone(), _mask(x), 0.5)


def _torch_masked_fill(x: Tensor) -> Tensor:
    return x.clone().masked_fill_(_mask(x), 0.5)


def _mode(mode: str | None, function: Any) -> Callable[..., Tensor]:
    return lambda x, y: function(x, y, rounding_mode=mode)


ANY: Domain = (-3.0, 3.0)
SQUARE = ((3, 4), (4, 2))

PROOFS: tuple[Proof, ...] = (
    Proof("acosh", ops.acosh, torch.acosh, ((1.25, 5.0),)),
    Proof("exp", ops.exp, torch.exp, (ANY,)),
    Proof("abs", ops.abs, torch.abs, (ANY,), "int float"),
    Proof("add.Tensor", ops.add, torch.add, (ANY, ANY), "int float"),
    Proof(
        "add.Tensor alpha",
        lambda x, y: ops.add(x, y, alpha=2),
        lambda x, y: torch.add(x, y, alpha=2),
        (ANY, ANY),
        "int float",
    ),
    Proof("mul.Tensor", ops.mul, torch.mul, (ANY, ANY), "int float"),
    Proof(
        "div.Tensor_mode None",
        _mode(None, ops.div.Tensor_mode),
        _mode(None, torch.div),
        (ANY, (0.5, 3.0)),
        "int float",
    ),
    Proof(
        "div.Tensor_mode trunc",
        _mode("trunc", ops.div.Tensor_mode),
        _mode("trunc", torch.div),
        (ANY, (1.0, 3.0)),
        "int float",
    ),
    Proof(
        "div.Tensor_mode floor",
        _mode("floor", ops.div.Tensor_mode),
        _mode("floor", torch.div),
        (ANY, (1.0, 3.0)),
        "int float",
    ),
    Proof(
        "addcmul",
        lambda x, y, z: ops.addcmul(x, y, z, value=3),
        lambda x, y, z: torch.addcmul(x, y, z, value=3),
        (ANY, ANY, ANY),
        "int float",
    ),
    Proof(
        "clamp",
        lambda x: ops.clamp(x, -1, 2),
        lambda x: torch.clamp(x, -1, 2),
        (ANY,),
        "int float",
    ),
    Proof(
        "clamp max",
        lambda x: ops.clamp(x, max=0.55),
        lambda x: torch.clamp(x, max=0.55),
        (ANY,),
    ),
    Proof("logaddexp", ops.logaddexp, torch.logaddexp, (ANY, ANY)),
    Proof("atan2", ops.atan2, torch.atan2, (ANY, (0.5, 3.0))),
    Proof("maximum", ops.maximum, torch.maximum, (ANY, ANY), "int float"),
    Proof("xlogy.Tensor", ops.xlogy, torch.xlogy, ((0.5, 3.0), (0.25, 3.0))),
    Proof(
        "polygamma 1",
        lambda x: ops.polygamma(1, x),
        lambda x: torch.polygamma(1, x),
        ((0.5, 6.0),),
        torch_error=1e-8,  # its trigamma stops after six terms
    ),
    Proof(
        "polygamma 3",
        lambda x: ops.polygamma(3, x),
        lambda x: torch.polygamma(3, x),
        ((0.5, 6.0),),
    ),
    Proof("masked_fill_.Scalar", _ours_masked_fill, _torch_masked_fill, (ANY,)),
    Proof("copysign.Tensor", ops.copysign, torch.copysign, (ANY, ANY)),
    Proof("alias", ops.alias, torch.ops.aten.alias, (ANY,), "int float"),
    Proof("mm", ops.mm, torch.mm, (ANY, ANY), "float", SQUARE),
    Proof(
        "addmm",
        lambda x, y, z: ops.addmm(x, y, z, beta=0.5, alpha=2),
        lambda x, y, z: torch.addmm(x, y, z, beta=0.5, alpha=2),
        (ANY, ANY, ANY),
        "float",
        ((3, 2), *SQUARE),
    ),
)
POINTWISE = tuple(p for p in PROOFS if p.shapes is None)
