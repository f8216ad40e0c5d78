"""Ordinary PyTorch code on our operators: `use`, `enable`, `disable`.

Comes in: what PyTorch is called with, through a mode of torch.overrides. Goes out: what
our operator of that name makes of it. Operators without formulas, and calls that ours
do not take, are PyTorch's own. The mode holds for the thread that turns it on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode

from atentriton import autocast, callables, gate, ops
from atentriton.decisions import Decision, fell_back, happened
from atentriton.operators import NotYet, Torch
from atentriton.settings import chosen as settings
from atentriton.sites import MISS
from fuser.errors import FormulaError

Names = Iterable[str] | None


class use(TorchFunctionMode):
    """Let PyTorch's operators run by our formulas: `with atentriton.use():`.

    `torch.acosh(x)`, `x * y`, `F.gelu(x)`, modules and optimizers in the block, and
    their derivatives of any order, run fused kernels; `include` and `exclude` are names
    of operators, without overloads ("gelu", "mul"). All else is PyTorch's own. It holds
    for the thread that enters it; of nested ones the innermost holds.
    `callables.UnknownOperatorError` for a name that no operator has.
    """

    def __init__(self, include: Names = None, exclude: Names = None) -> None:
        super().__init__()
        self.names = callables.chosen(include, exclude)
        self.packets: dict[Any, ops.Packet | None] = {}
        self.outer: list[use | None] = []

    def __enter__(self) -> use:
        if settings.disabled:
            return self
        self.outer.append(_current.mode)
        _current.mode = self
        _push_mode(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        if not self.outer:  # it was disabled on the way in
            return
        _remove(self)
        _current.mode = self.outer.pop()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        try:
            packet = self.packets[func]
        except KeyError:
            packet = self.packets[func] = self._packet(func)
        if packet is None or _current.mode is not self:
            return self._theirs(func, args, named)
        found = packet._sites.call(args, named)
        return self._anew(func, packet, args, named) if found is MISS else found

    def _packet(self, func: Any) -> ops.Packet | None:
        """Our operator for the callable; None where PyTorch's own is to run."""
        if isinstance(func, (OpOverload, OpOverloadPacket)):
            namespace, _, name = str(func).partition(".")
            base = name.partition(".")[0] if namespace == "aten" else ""
        else:
            base = callables.table().get(func, "")
        plain = base.removesuffix("_")
        if plain not in self.names or not callables.replaced(plain):
            return None
        return getattr(ops, base)

    def _theirs(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """PyTorch's own; what it is made of, in Python, meets the mode again."""
        if type(func) is not FunctionType or func.__name__ in _WHOLE:
            return func(*args, **kwargs)
        if not func.__module__.startswith("torch."):
            return func(*args, **kwargs)
        _push_mode(self)
        try:
            return _body(func)(*args, **kwargs)
        finally:
            _remove(self)

    def _anew(
        self,
        func: Callable[..., Any],
        packet: ops.Packet,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """A call that looks like none before: ours, or PyTorch's for a reason."""
        if "input" in kwargs:
            kwargs = {("self" if k == "input" else k): v for k, v in kwargs.items()}
        reason = _unsupported(args, kwargs)
        if not reason:
            try:
                overload = packet._choose(args, kwargs)
            except TypeError:
                return func(*args, **kwargs)  # says what is wrong in its own words
            if isinstance(overload, (Torch, NotYet)):
                happened(Decision(overload.name, "torch", overload.reason))
                return func(*args, **kwargs)
            try:
                with autocast.as_eager(overload.name, args, kwargs) as given:
                    return packet(*given[0], **given[1])
            except (FormulaError, NotImplementedError) as error:
                reason = str(error)
        fell_back(packet.__name__, reason)
        return func(*args, **kwargs)


class _Current(threading.local):
    """The innermost `use` of a thread, and the one that `enable` has put there."""

    mode: use | None = None
    enabled: use | None = None


_current = _Current()


def enable(include: Names = None, exclude: Names = None) -> None:
    """`use(include, exclude)` from here on, in this thread, until `disable`.

    Another `enable` takes the place of the one before.
    """
    mode = use(include, exclude)
    disable()
    mode.__enter__()
    _current.enabled = mode if mode.outer else None


def disable() -> None:
    """End what `enable` has begun in this thread; nothing where there is nothing."""
    mode = _current.enabled
    if mode is None:
        return
    _current.enabled = None
    if _current.mode is mode:
        mode.__exit__()
        return
    _remove(mode)  # a `use` inside it goes on, and ends where nothing is replaced
    within = _current.mode
    while within is not None:
        if within.outer[-1] is mode:
            within.outer[-1] = mode.outer.pop()
            return
        within = within.outer[-1]


@contextmanager
def replacing() -> Iterator[None]:
    """`use()`, unless one holds in this thread already."""
    if _current.mode is not None:
        yield
        return
    with use():
        yield


def _remove(mode: use) -> None:
    """Take the mode from PyTorch's stack, wherever it stands."""
    above: list[Any] = []
    while (top := _pop_mode()) is not mode:
        above.append(top)
    for other in reversed(above):
        _push_mode(other)


class _Globals(dict[str, Any]):
    """A module's globals, in which no argument and no mode overrides a function."""

    def __init__(self, module: dict[str, Any]) -> None:
        super().__init__(dict.fromkeys(_ASKS, _no))
        self.module = module

    def __missing__(self, name: str) -> Any:
        return self.module[name]


# Functions in Python that are about objects, not about values.
_WHOLE = frozenset(
    ("__repr__", "__format__", "__deepcopy__", "__reduce_ex__", "__setstate__")
)
_ASKS = (
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
)


def _no(*_: Any) -> bool:
    return False


@cache
def _body(func: FunctionType) -> FunctionType:
    """The function without its question whether somebody overrides it.

    PyTorch's functions in Python ask that first and would come back to the mode; what
    they call in turn shall come to it.
    """
    made = FunctionType(
        func.__code__,
        _Globals(func.__globals__),
        func.__name__,
        func.__defaults__,
        func.__closure__,
    )
    made.__kwdefaults__ = func.__kwdefaults__
    return made


def _unsupported(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What our operators do not take, of what stands in the call."""
    if kwargs.get("out") is not None:
        return "the result goes to out="
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            if type(value) not in gate.PLAIN:
                return f"an argument is a {type(value).__name__}"
            if value.layout is not torch.strided:
                return f"an argument's layout is {value.layout}"
            if value.is_quantized:
                return "an argument is quantized"
    return ""
