"""Calls that look like an earlier one: checked in one step, and run at once.

Comes in: a direct call that has just been made, and what was worked out for it. Goes
out: an `Attempt`, which runs calls that look the same and answers MISS to others. "The
same" is what PyTorch's own guards compare: type, dispatch keys, dtype, device, sizes,
strides and whether a gradient is required. They count modes and transforms in, for
these change the keys under which a tensor is dispatched: a call that passes may launch
directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, is_grad_enabled
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack
from torch._C._dynamo.guards import TensorGuards
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from atentriton.decisions import watch
from atentriton.settings import chosen
from atentriton.specs import FROM_TORCH, is_exponent, is_number, shapes_code
from fuser.signatures import Argument

MISS: Any = object()
Attempt = Callable[[Sequence[Any]], Any]
Run = Callable[[Sequence[Tensor], Sequence[Any]], Any]

# Sites kept for a way of calling an operator; further ones take the longer way.
MOST = 6
_all: WeakSet[Any] = WeakSet()
PLAIN = frozenset({bool, int, float, complex, str, type(None)})


class Sites:
    """The attempts of an operator, by how it is called: how many arguments by position,
    which by name, and whether gradients are recorded (the guards leave that out)."""

    __slots__ = ("__weakref__", "recording", "silent")

    def __init__(self) -> None:
        self.recording: dict[Any, list[Attempt]] = {}
        self.silent: dict[Any, list[Attempt]] = {}
        _all.add(self)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that looks like an earlier one, or MISS."""
        if (
            is_compiling()
            or _len_torch_dispatch_stack()
            or _len_torch_function_stack()
            or forward_ad._current_level >= 0
            or watch.on
        ):
            return MISS
        key: Any = len(args)
        if kwargs:
            key = (key, *kwargs)
            args = (*args, *kwargs.values())
        known = self.recording if is_grad_enabled() else self.silent
        for attempt in known.get(key, ()):
            found = attempt(args)
            if found is not MISS:
                return found
        return MISS

    def has_room(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether another attempt for calls made like this one is taken."""
        if watch.on or forward_ad._current_level >= 0:
            return False
        return len(self._like(args, kwargs)) < MOST

    def add(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], attempt: Attempt
    ) -> None:
        """Try `attempt` on calls made like this one."""
        self._like(args, kwargs).append(attempt)

    def _like(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Attempt]:
        known = self.recording if is_grad_enabled() else self.silent
        key = (len(args), *kwargs) if kwargs else len(args)
        return known.setdefault(key, [])


class RoutineSites:
    """The calls of a routine, which gets tensors and numbers in its own order."""

    __slots__ = ("__weakref__", "recording", "silent")

    def __init__(self) -> None:
        _all.add(self)
        self.recording: list[tuple[Callable[..., bool], Run]] = []
        self.silent: list[tuple[Callable[..., bool], Run]] = []

    def call(self, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Any:
        """The result of a call that looks like an earlier one, or MISS."""
        if (
            is_compiling()
            or _len_torch_dispatch_stack()
            or _len_torch_function_stack()
            or forward_ad._current_level >= 0
            or watch.on
        ):
            return MISS
        for check, run in self.recording if is_grad_enabled() else self.silent:
            if check(*tensors):
                return run(tensors, numbers)
        return MISS

    def add(self, tensors: Sequence[Tensor], run: Run) -> None:
        """Let `run` make calls whose tensors look like these."""
        if watch.on or forward_ad._current_level >= 0:
            return
        known = self.recording if is_grad_enabled() else self.silent
        if len(known) < MOST:
            known.append((guards(tensors), run))


def forget() -> None:
    """Let the next call of everything be worked out anew: its backend has changed."""
    for sites in list(_all):
        sites.recording.clear()
        sites.silent.clear()


chosen.changed.append(forget)


def guards(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """Whether as many other tensors look like these.

    One that is given twice, as in x * x, has to be given twice again.
    """
    first: dict[int, int] = {}
    for i, tensor in enumerate(tensors):
        first.setdefault(id(tensor), i)
    distinct = [tensors[i] for i in first.values()]
    alike = TensorGuards(
        *distinct,
        dynamic_dims_sizes=[list(t.shape) for t in distinct],  # type: ignore[arg-type]
        dynamic_dims_strides=[list(t.stride()) for t in distinct],  # type: ignore[arg-type]
    ).check
    check = _unnested(alike, len(distinct))
    if len(distinct) == len(tensors):
        return check
    at = tuple(first.values())
    twice = [(i, first[id(t)]) for i, t in enumerate(tensors) if i not in at]

    def check_twice(*given: Tensor) -> bool:
        for i, j in twice:
            if given[i] is not given[j]:
                return False
        return check(*[given[i] for i in at])

    return check_twice


def _unnested(check: Callable[..., bool], count: int) -> Callable[..., bool]:
    """The check for `count` tensors, False for nested ones: asked for their strides, as
    PyTorch's guards do, these end the process."""

    def one(tensor: Any) -> bool:
        try:
            return not tensor.is_nested and check(tensor)
        except AttributeError:  # it is no tensor
            return False

    def two(first: Any, second: Any) -> bool:
        try:
            nested = first.is_nested or second.is_nested
        except AttributeError:
            return False
        return not nested and check(first, second)

    def any_(*tensors: Any) -> bool:
        for tensor in tensors:
            if getattr(tensor, "is_nested", True):
                return False
        return check(*tensors)

    return one if count == 1 else two if count == 2 else any_


def attempt(
    arguments: Sequence[Argument],
    places: Sequence[int | None],
    given: Sequence[Any],
    values: Sequence[Any],
    run: Run,
) -> Attempt | None:
    """What repeats a call that looks like this one, or None where that is not safe.

    `values` has one value for each of `arguments`, `given` what the caller wrote, and
    `places` says where in `given` the value of each argument stands, None for one that
    was left out. `run` takes tensors and numbers in the order of the arguments.
    """
    if not all(type(v) in PLAIN or isinstance(v, Tensor) for v in given):
        return None
    tensors = [v for v in values if isinstance(v, Tensor)]
    pairs = zip(places, values, strict=True)
    at = [p for p, v in pairs if isinstance(v, Tensor) and p is not None]
    if len(at) != len(tensors):
        return None
    numbers: list[tuple[int | None, Any]] = []
    kinds: list[tuple[int, type]] = []
    exponents: list[int] = []
    fixed: list[tuple[int, Any, type]] = []
    for argument, place, value in zip(arguments, places, values, strict=True):
        if isinstance(value, Tensor):
            continue
        number = is_number(argument, value)
        if number:
            numbers.append((place, value))
        if place is None:
            continue
        if number:
            kinds.append((place, type(given[place])))
            if is_exponent(argument):
                exponents.append(place)
        else:
            fixed.append((place, given[place], type(given[place])))
    check = guards(tensors)
    default = None
    if not all(FROM_TORCH[t.dtype].is_differentiable for t in tensors):
        default = torch.get_default_dtype()
    if at == list(range(len(given))) and default is None:
        return _of_tensors(check, run, tuple(v for _, v in numbers))
    found = _of_any(tuple(at), kinds, fixed, check, run, numbers, default)
    return _of_exponents(exponents, found) if exponents else found


def _of_tensors(
    check: Callable[..., bool], run: Run, numbers: tuple[Any, ...]
) -> Attempt:
    """All that is given are tensors, in order; numbers are defaults."""

    def try_(args: Sequence[Any]) -> Any:
        return run(args, numbers) if check(*args) else MISS

    return try_


def _of_any(
    at: tuple[int, ...],
    kinds: Sequence[tuple[int, type]],
    fixed: Sequence[tuple[int, Any, type]],
    check: Callable[..., bool],
    run: Run,
    numbers: Sequence[tuple[int | None, Any]],
    default: torch.dtype | None,
) -> Attempt:
    """Tensors among numbers and static arguments."""

    def try_(args: Sequence[Any]) -> Any:
        for i, kind in kinds:
            if type(args[i]) is not kind:
                return MISS
        for i, value, kind in fixed:
            if type(args[i]) is not kind or args[i] != value:
                return MISS
        if default is not None and torch.get_default_dtype() is not default:
            return MISS
        tensors = [args[i] for i in at]
        if not check(*tensors):
            return MISS
        return run(tensors, [v if i is None else args[i] for i, v in numbers])

    return try_


def _of_exponents(at: Sequence[int], attempt: Attempt) -> Attempt:
    """The attempt on exponents that are numbers at run time, as its own one was."""

    def try_(args: Sequence[Any]) -> Any:
        for i in at:
            if shapes_code(args[i]):
                return MISS
        return attempt(args)

    return try_
