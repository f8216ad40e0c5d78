"""The functions of zoo.yaml as calls to measure.

Comes in: zoo.yaml. Goes out: each `Entry`, tensors to call it with, and calls without
arguments for each of the MODES. Tensors are float32, of complex arguments complex64.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Any

import _common
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor
from torch.autograd import forward_ad, grad

Function = Callable[..., Tensor]

MODES = {
    "forward": "forward",
    "backward": "forward + backward",
    "second": "double backward",
    "jvp": "jvp",
}
QUICK = ["quick_gelu", "swiglu", "huber", "lennard_jones", "modrelu", "kan_rbf"]


class NoDerivative(Exception):
    """PyTorch has nothing to compute in that mode: all of it is zero."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A function of the file; `inputs` says for each argument what is drawn for it."""

    name: str
    group: str
    expr: str
    inputs: dict[str, Any]
    numbers: dict[str, float] = field(default_factory=dict)

    def function(self) -> Function:
        """The function, made anew: compilers keep what they know by function."""
        names = {"torch": torch, "F": F, "math": math, **self.numbers}
        made = eval(f"lambda {', '.join(self.inputs)}: {self.expr}", names)
        made.__name__ = made.__qualname__ = self.name
        return made

    def arguments(self, elements: int, device: str = "cpu") -> list[Tensor]:
        """Tensors to call it with; those that may get a gradient ask for it."""
        generator = torch.Generator().manual_seed(0)
        return [_drawn(v, elements, generator, device) for v in self.inputs.values()]


def _drawn(
    given: Any, elements: int, generator: torch.Generator, device: str
) -> Tensor:
    def uniform(low: float, high: float) -> Tensor:
        drawn = torch.rand(elements, generator=generator)
        return (low + (high - low) * drawn).to(device)

    if isinstance(given, list):
        return uniform(*given).requires_grad_()
    if "mask" in given:
        return (uniform(0, 1) < given["mask"]).float()
    if "noise" in given:
        return uniform(*given["noise"])
    parts = [uniform(*given["complex"]) for _ in range(2)]
    return torch.complex(*parts).requires_grad_()


def load(only: Sequence[str] = ()) -> list[Entry]:
    """The entries of the file, or those named; SystemExit for a name not there."""
    text = (_common.ROOT / "perf" / "zoo.yaml").read_text(encoding="utf-8")
    keys = Entry.__dataclass_fields__
    found = [
        Entry(**{k: v for k, v in entry.items() if k in keys})
        for entry in yaml.safe_load(text)
    ]
    if not only:
        return found
    by_name = {e.name: e for e in found}
    for name in only:
        if name not in by_name:
            from fuser.errors import nearest

            guess = nearest(name, by_name)
            hint = f'did you mean "{guess}"?' if guess else f"see {', '.join(by_name)}"
            raise SystemExit(f'zoo.yaml has no function "{name}"; {hint}')
    return [by_name[name] for name in only]


def add_choice(parser: argparse.ArgumentParser) -> None:
    """The options that say which functions, and how large."""
    parser.add_argument("--quick", action="store_true", help="few functions, shorter")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="only these")
    parser.add_argument("--elements", type=int, default=1 << 20)
    parser.add_argument("--device", default="cpu")


def chosen(args: argparse.Namespace) -> list[Entry]:
    """The entries that the options ask for."""
    return load(args.only or (QUICK if args.quick else ()))


def call(function: Function, given: Sequence[Tensor], mode: str) -> Callable[[], Any]:
    """A call without arguments, on leaves of its own; NoDerivative as it says.

    `second` is the gradient of the gradients, against given cotangents, with the
    forward and the backward that it needs; `jvp` gives value and tangent.
    """
    wanted = [t.requires_grad for t in given]
    plain = [t.detach() for t in given]
    if mode == "forward":
        return lambda: function(*plain)
    if mode == "jvp":
        return _tangents(function, plain, wanted)
    pairs = zip(plain, wanted, strict=True)
    taken = [t.clone().requires_grad_() if w else t for t, w in pairs]
    leaves = [t for t in taken if t.requires_grad]
    value = function(*taken)
    if not value.requires_grad:
        raise NoDerivative
    weight = torch.ones_like(value.detach())
    again = [torch.ones_like(leaf.detach()) for leaf in leaves]
    del value

    def backward() -> Sequence[Tensor]:
        result = function(*taken)
        return grad(result, leaves, weight, create_graph=mode == "second")

    def second() -> Sequence[Tensor | None]:
        found = zip(backward(), again, strict=True)
        asked = [(g, w) for g, w in found if g.requires_grad]
        if not asked:
            raise NoDerivative
        gradients, weights = zip(*asked, strict=True)
        return grad(gradients, leaves, weights, allow_unused=True)

    return backward if mode == "backward" else second


def _tangents(
    function: Function, given: Sequence[Tensor], wanted: Sequence[bool]
) -> Callable[[], Any]:
    tangents = [torch.ones_like(t) for t in given]

    def jvp() -> Any:
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(t, v) if w else t
                for t, v, w in zip(given, tangents, wanted, strict=True)
            ]
            return forward_ad.unpack_dual(function(*duals))

    return jvp


def compiled(
    function: Function, given: Sequence[Tensor], mode: str
) -> Callable[[], Any]:
    """The same by Inductor: for the jvp, with the jvp inside what it compiles."""
    if mode != "jvp":
        return call(torch.compile(function, fullgraph=True), given, mode)
    places = [i for i, t in enumerate(given) if t.requires_grad]
    plain = [t.detach() for t in given]
    tangents = [torch.ones_like(plain[i]) for i in places]

    def whole(values: list[Tensor], along: list[Tensor]) -> Any:
        def some(*active: Tensor) -> Tensor:
            all_of_them = list(values)
            for i, tensor in zip(places, active, strict=True):
                all_of_them[i] = tensor
            return function(*all_of_them)

        return torch.func.jvp(some, tuple(values[i] for i in places), tuple(along))

    made = torch.compile(whole, fullgraph=True)
    return lambda: made(plain, tangents)


def mean(ratios: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing."""
    return geometric_mean(ratios) if ratios else None


def shown(ratio: float | None, style: str = "5.2f") -> str:
    """A ratio for a table: green where we are no slower."""
    if ratio is None:
        return "-"
    colour = "green" if ratio >= 1 else "red"
    return f"[{colour}]{ratio:{style}}x[/{colour}]"
