"""Networks train under `use` as they do without: the same losses, step by step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from atentriton import use
from atentriton.decisions import Decision, watched

STEPS = 20


class Residual(nn.Module):
    """Two convolutions with normalisation, beside a way that skips them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.first(x)), inplace=True)
        y = self.norm2(self.second(y))
        y += x
        return F.hardswish(y)


def cnn() -> nn.Module:
    """A small network as torchvision builds them, with an attention over channels."""

    class Squeeze(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

        def forward(self, x: Tensor) -> Tensor:
            scale = F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))
            return x * F.hardsigmoid(self.up(scale))

    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        Residual(8),
        Squeeze(),
        nn.MaxPool2d(2),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 5),
    )


class Block(nn.Module):
    """A transformer's block, with its products and its norm written out."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.gate = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = (p.flatten(0, 1) for p in parts.permute(2, 0, 3, 1, 4))
        scores = torch.bmm(q, k.transpose(1, 2)) * (width // self.heads) ** -0.5
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        mixed = torch.bmm(weights, v).view(batch, self.heads, length, -1)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        y = self.down(F.gelu(self.up(y)) * self.gate(y).sigmoid())
        x = x + y
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


def mlp() -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.ELU(), nn.Mish()),
        *(nn.Linear(16, 16), nn.Softplus(), nn.LeakyReLU(), nn.Linear(16, 3)),
    )


Problem = tuple[nn.Module, Tensor, Tensor, Callable[[Tensor, Tensor], Tensor]]


def problem(name: str, dtype: torch.dtype) -> Problem:
    """A network with a batch, what it is to give, and the loss."""
    torch.manual_seed(1)
    if name == "cnn":
        made, x = cnn(), torch.randn(6, 3, 16, 16)
        return made.to(dtype), x.to(dtype), torch.arange(6) % 5, F.cross_entropy
    if name == "transformer":
        made = nn.Sequential(Block(), Block())
        x, y = torch.randn(2, 2, 7, 16).to(dtype)
        return made.to(dtype), x, y, F.smooth_l1_loss
    x = torch.randn(12, 6).to(dtype)
    y = (torch.randn(12, 3) > 0).to(dtype)
    return mlp().to(dtype), x, y, F.binary_cross_entropy_with_logits


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=False),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
}


def losses(
    name: str, dtype: torch.dtype, optimizer: str, steps: int = STEPS
) -> list[float]:
    network, x, y, loss = problem(name, dtype)
    made = OPTIMIZERS[optimizer](network.parameters())
    found: list[float] = []
    for _ in range(steps):
        made.zero_grad()
        error = loss(network(x), y)
        error.backward()
        made.step()
        found.append(error.item())
    return found


@pytest.mark.parametrize(
    ("dtype", "optimizer", "tolerance"),
    [
        (torch.float64, "SGD", 1e-9),
        (torch.float32, "SGD", 1e-4),
        (torch.float32, "AdamW", 1e-4),
    ],
    ids=["float64", "float32", "AdamW"],
)
@pytest.mark.parametrize("name", ["cnn", "transformer", "mlp"])
def test_the_losses_are_those_of_eager(
    name: str, dtype: torch.dtype, optimizer: str, tolerance: float
) -> None:
    expected = losses(name, dtype, optimizer)
    with use():
        found = losses(name, dtype, optimizer)
        with watched() as events:
            losses(name, dtype, optimizer, steps=1)
    ran = [e for e in events if isinstance(e, Decision)]
    assert sum(e.ran != "torch" for e in ran) > 5
    assert expected[-1] < 0.98 * expected[0]
    assert found == pytest.approx(expected, rel=tolerance, abs=tolerance)


def test_accumulated_and_clipped_gradients() -> None:
    results: list[list[Tensor]] = []
    for on in (False, True):
        network, x, y, loss = problem("mlp", torch.float64)
        with use() if on else nullcontext():
            for half in (slice(0, 6), slice(6, 12)):
                loss(network(x[half]), y[half]).backward()
            norm = nn.utils.clip_grad_norm_(network.parameters(), 0.1, foreach=False)
        results.append([norm, *(p.grad for p in network.parameters())])
    torch.testing.assert_close(results[1], results[0])


def test_trained_weights_are_saved_and_loaded_without_us(tmp_path: Any) -> None:
    network, x, y, loss = problem("mlp", torch.float32)
    with use():
        loss(network(x), y).backward()
        OPTIMIZERS["SGD"](network.parameters()).step()
        torch.save(network.state_dict(), tmp_path / "weights")
    other, *_ = problem("mlp", torch.float32)
    other.load_state_dict(torch.load(tmp_path / "weights"))
    torch.testing.assert_close(other(x), network(x))
