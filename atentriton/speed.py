"""Operators against PyTorch's eager ones: forward, with backward, twice backward.

Comes in: names of operators and a number of elements. Goes out: a `Row` for each way to
call them, timed in turns with PyTorch's. In the mode "into" both write to a buffer that
is given; in all others outputs are made anew, as they mostly are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import grad

from atentriton import catalogue, launch, operators, samples
from atentriton.programs import compiler
from atentriton.samples import Arrangement
from atentriton.specs import split
from atentriton.timing import Call, Timing, interleaved
from fuser.signatures import Signature

Mode = Literal["into", "forward", "backward", "second"]
MODES: dict[Mode, str] = {
    "into": "into a buffer",
    "forward": "forward",
    "backward": "forward + backward",
    "second": "double backward",
}
FRESH: tuple[Mode, ...] = ("forward", "backward", "second")


@dataclass(frozen=True, slots=True)
class Row:
    """An operator in one mode; `moved` is what the forward reads and writes, in bytes.

    `compiled` is torch.compile's, which has no second derivatives; `copy` is the time
    in which a buffer of `copied` bytes is read and another one written, in the mode
    "into". `passed_on` says that its gradients are the cotangent, or zero: there is
    nothing to compute, and a copy is all that can be lost.
    """

    name: str
    mode: Mode
    elements: int
    moved: int
    ours: Timing
    eager: Timing
    compiled: Timing | None = None
    copy: Timing | None = None
    copied: int = 0
    passed_on: bool = False

    @property
    def of_copy(self) -> float | None:
        """The bytes moved a second, as a part of what a copy moves."""
        if self.copy is None:
            return None
        return self.ours.faster_than(self.copy) * self.moved / (2 * self.copied)

    @property
    def ratio(self) -> float:
        """How many times faster than eager ours is."""
        return self.ours.faster_than(self.eager)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "mode": self.mode,
            "elements": self.elements,
            "bytes": self.moved,
            "ours": self.ours.median,
            "eager": self.eager.median,
            "ratio": self.ratio,
            "compiled": None if self.compiled is None else self.compiled.median,
            "of_copy": self.of_copy,
            "passed_on": self.passed_on,
        }


@dataclass(frozen=True, slots=True)
class Subject:
    """An operator with one value for each argument."""

    signature: Signature
    values: tuple[Any, ...]

    def arguments(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The values as they are given in a call."""
        pairs = list(zip(self.signature.arguments, values, strict=True))
        plain = [v for a, v in pairs if not a.kwarg_only]
        return plain, {a.name: v for a, v in pairs if a.kwarg_only}

    def call(self, operator: Callable[..., Any], mode: Mode) -> Call:
        """A call without arguments that does what the mode says."""
        leaves = [v.detach() for v in self.values if _is_leaf(v)]
        if mode == "forward":
            args, named = self.arguments(self.values)
            return lambda: operator(*args, **named)
        items = iter(x.requires_grad_() for x in leaves)
        args, named = self.arguments(
            [next(items) if _is_leaf(v) else v for v in self.values]
        )
        found = _recorded(operator(*args, **named))
        weights = [torch.ones_like(result.detach()) for result in found]
        again = [torch.ones_like(leaf) for leaf in leaves]

        def backward() -> Sequence[Tensor]:
            results = _recorded(operator(*args, **named))
            second = mode == "second"
            return grad(results, leaves, weights, create_graph=second)

        def second() -> object:
            found = zip(backward(), again, strict=True)
            pairs = [(g, w) for g, w in found if g.requires_grad]
            gradients, tangents = [g for g, _ in pairs], [w for _, w in pairs]
            return grad(gradients, leaves, tangents, allow_unused=True)

        return backward if mode == "backward" else second

    def into(self, ours: operators.Fused, theirs: Any) -> dict[str, Call]:
        """Calls that write to a buffer, and a copy; none where torch's cannot, or has
        several results."""
        variant = _out_variant(theirs)
        if variant is None:
            return {}
        args, named = self.arguments(self.values)
        buffer = torch.empty_like(theirs(*args, **named))
        tensors, numbers = split(self.signature, self.values)
        routine = ours.registered.routine(self.values)
        source, target = torch.ones_like(buffer), torch.empty_like(buffer)
        return {
            "ours": lambda: launch.run(routine, tensors, numbers, out=[buffer]),
            "eager": lambda: variant(*args, **named, out=buffer),
            "copy": lambda: target.copy_(source),
        }


LAYOUTS = ("contiguous", "transposed", "broadcast")


def arranged(layout: str, elements: int) -> Arrangement:
    """Tensors of so many elements: in one stretch, matrices the first of which is
    transposed, or a matrix beside a row and a column."""
    if layout == "contiguous":
        return Arrangement(layout, ((elements,),))
    side = max(1, math.isqrt(elements))
    if layout == "broadcast":
        return Arrangement(layout, ((side, side), (side,), (side, 1)))
    if layout != "transposed":
        raise ValueError(
            f"there is no layout {layout!r}; there is {', '.join(LAYOUTS)}"
        )
    return Arrangement(
        layout,
        ((side, side),),
        lambda number, tensor: tensor if number else tensor.t().contiguous().t(),
    )


def measure(
    name: str,
    modes: Sequence[Mode] = FRESH,
    *,
    elements: int = 1 << 20,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    layout: str = "contiguous",
    seconds: float = 0.5,
    compiled: bool = False,
) -> Iterator[Row]:
    """Time the operator in each of the modes; `compiled` adds torch.compile's.

    `layout` is one of LAYOUTS: how the tensors lie in memory.

    A mode that PyTorch's operator does not have is left out, and so is an operator
    whose tensors have a shape of their own, less than `elements`.
    """
    ours, theirs = operators.make(name), catalogue.aten(name)
    signature = compiler().operator(name).signature
    if not isinstance(ours, operators.Fused):
        raise ValueError(f"{name} has no kernel of its own to time")
    arrangement = arranged(layout, elements)
    setting = samples.settings(signature)[0]
    values = samples.arguments(signature, dtype, setting, arrangement)
    values = [v.to(device) if isinstance(v, Tensor) else v for v in values]
    tensors = [v for v in values if isinstance(v, Tensor)]
    side = math.isqrt(elements)
    if max(tensor.numel() for tensor in tensors) < side * side:
        return
    subject = Subject(signature, tuple(values))
    moved = sum(tensor.nbytes for tensor in tensors)
    args, named = subject.arguments(values)
    copied = sum(r.nbytes for r in _results(theirs(*args, **named)))
    moved += copied
    for mode in modes:
        try:
            if mode == "into":
                calls = subject.into(ours, theirs)
            else:
                calls = {n: subject.call(f, mode) for n, f in _both(ours, theirs)}
            if compiled and mode in ("forward", "backward"):
                calls["compiled"] = subject.call(torch.compile(_plain(theirs)), mode)
            if not calls:
                continue
            calls["eager"]()
        except RuntimeError:  # PyTorch has no derivative of that order
            continue
        found = interleaved(calls, seconds=seconds)
        times = found["ours"], found["eager"], found.get("compiled"), found.get("copy")
        passed_on = mode in ("backward", "second") and _passes_on(ours, values)
        yield Row(name, mode, elements, moved, *times, copied, passed_on)


def _passes_on(ours: operators.Fused, values: Sequence[Any]) -> bool:
    """Whether the backward pass has no kernel."""
    routine = ours.registered.routine(values)
    tensors, _ = split(ours.signature, values)
    saving = routine.saving(tuple(map(_is_leaf, tensors)))
    return saving.recipe((True,) * len(routine.dtypes)).routine is None


def _both(ours: Any, theirs: Any) -> tuple[tuple[str, Any], ...]:
    return (("ours", ours), ("eager", theirs))


def _plain(operator: Any) -> Callable[..., Any]:
    """A Python function, which is what torch.compile takes."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    return function


def _results(found: Any) -> tuple[Tensor, ...]:
    """What a call gave, as a tuple also where it is one tensor."""
    return (found,) if isinstance(found, Tensor) else tuple(found)


def _recorded(found: Any) -> list[Tensor]:
    """Those of the results that can be derived."""
    return [result for result in _results(found) if result.requires_grad]


def _is_leaf(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _out_variant(operator: Any) -> Any:
    """The overload with the same arguments that writes to `out`, or None."""
    packet = operator.overloadpacket
    wanted = [(a.name, str(a.type)) for a in operator._schema.arguments]
    for name in packet.overloads():
        found = getattr(packet, name)
        given = [(a.name, str(a.type)) for a in found._schema.arguments]
        if given[-1][0] == "out" and given[:-1] == wanted:
            return found
    return None
