"""A transformer block with a SwiGLU, trained to compare a sequence with its reverse.

    python examples/swiglu_transformer.py [--steps N] [--eager | --compare]
        [--plot FILE]

For symbols s[0], ..., s[n-1] it is to give max(s[i], s[n-1-i]): attention has to fetch
the symbol on the other side, and the gated layer has to compare. The gate and the
scaling of the norms are fused; with --way backend, what torch.compile finds to be.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from _common import Problem, Setting, main
from torch import Tensor, nn

SYMBOLS = 16
LENGTH = 32
HEADS = 4


def swiglu(gate: Tensor, value: Tensor) -> Tensor:
    return F.silu(gate) * value


def scaled(x: Tensor, mean_square: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(mean_square + 1e-6) * weight


class Norm(nn.Module):
    """By the root of the mean square."""

    def __init__(self, width: int, setting: Setting) -> None:
        super().__init__()
        self.scaled = setting.way.function(scaled)
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(x, x.square().mean(-1, keepdim=True), self.weight)


class Block(nn.Module):
    """Attention, then a gated layer, each added to what comes in."""

    def __init__(self, width: int, setting: Setting) -> None:
        super().__init__()
        self.swiglu = setting.way.function(swiglu)  # the switch: fused, or as it is
        hidden = 8 * width // 3
        self.norms = nn.ModuleList(Norm(width, setting) for _ in range(2))
        self.queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.mixed = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.value = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values: (batch, heads, length, width of a head)."""
        parts = self.queries_keys_values(self.norms[0](x)).chunk(3, -1)
        return tuple(p.unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in parts)

    def forward(self, x: Tensor) -> Tensor:
        attended = F.scaled_dot_product_attention(*self.heads(x))
        x = x + self.mixed(attended.transpose(1, 2).flatten(-2))
        h = self.norms[1](x)
        return x + self.down(self.swiglu(self.gate(h), self.value(h)))


class Model(nn.Module):
    """The scores of each symbol at each place: (batch, length, SYMBOLS)."""

    def __init__(self, width: int, setting: Setting) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, width)
        self.places = nn.Embedding(LENGTH, width)
        self.block = Block(width, setting)
        self.norm = Norm(width, setting)
        self.scores = nn.Linear(width, SYMBOLS, bias=False)

    def embedded(self, symbols: Tensor) -> Tensor:
        return self.symbols(symbols) + self.places.weight

    def forward(self, symbols: Tensor) -> Tensor:
        return self.scores(self.norm(self.block(self.embedded(symbols))))


def build(setting: Setting) -> Problem:
    size = setting.size or 64
    model = Model(setting.width or 128, setting).to(**setting.place)
    source = torch.Generator().manual_seed(setting.seed)

    def batch() -> Tensor:
        shape = (size, LENGTH)
        return torch.randint(SYMBOLS, shape, generator=source).to(setting.device)

    def loss(symbols: Tensor) -> Tensor:
        wanted = torch.maximum(symbols, symbols.flip(-1))
        return F.cross_entropy(model(symbols).flatten(0, 1), wanted.flatten())

    run = setting.way.loss(loss)

    def draw(axes: Any) -> None:
        with torch.no_grad():
            queries, keys, _ = model.block.heads(model.embedded(batch()))
            scores = queries @ keys.mT / queries.shape[-1] ** 0.5
            shown = scores.softmax(-1).mean((0, 1)).float().cpu().numpy()
        axes.imshow(shown, cmap="magma")
        axes.set(title="attention, mean of heads", xlabel="to", ylabel="from")

    return Problem(list(model.parameters()), lambda: run(batch()), draw)


if __name__ == "__main__":
    raise SystemExit(main(build, __doc__))
