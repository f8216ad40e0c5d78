"""Ordinary PyTorch code on our operators: `use`, `enable`, `disable`.

Comes in: what PyTorch is called with, through a mode of torch.overrides. Goes out: what
our operator of that name makes of it. Operators without formulas, and calls that ours
do not take, are PyTorch's own. The mode holds for the thread that turns it on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.compiler import is_compiling
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)

from atentriton import autocast, callables, checkpoints, gate, ops
from atentriton.decisions import decided, fell_back
from atentriton.operators import NotYet, Torch
from atentriton.settings import chosen as settings
from atentriton.sites import MISS
from fuser.errors import FormulaError

Names = Iterable[str] | None


class use(TorchFunctionMode):
    """Let PyTorch's operators run by our formulas: `with atentriton.use():`.

    `torch.acosh(x)`, `x * y`, `F.gelu(x)`, modules and optimizers in the block, and
    their derivatives of any order, run fused kernels; `include` and `exclude` are names
    of operators, without overloads ("gelu", "mul"). Operators whose values PyTorch
    computes anyhow ("cumsum", "gather") are replaced where `include` names them. All
    else is PyTorch's own, as is
    what torch.compile compiles. It holds for the thread that enters it; of nested ones
    the innermost holds.
    `callables.UnknownOperatorError` for a name that no operator has.
    """

    def __init__(self, include: Names = None, exclude: Names = None) -> None:
        super().__init__()
        self.names: frozenset[str] = frozenset()
        self.by_name = include is not None
        if not is_compiling():
            self.names = callables.chosen(include, exclude)
        self.packets: dict[Any, ops.Packet | None] = {}

    def __enter__(self) -> use:
        if not (settings.disabled or is_compiling()):
            _current.entered.append(self)
            _current.mode = self
            _push_mode(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        if is_compiling():
            return
        entered = _current.entered
        if self not in entered:  # it was disabled on the way in
            return
        _remove(self)
        del entered[len(entered) - 1 - entered[::-1].index(self)]
        _current.mode = entered[-1] if entered else None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if is_compiling():  # what torch.compile makes is its own
            return func(*args, **named)
        if _current.mode is None:
            return self._elsewhere(func, args, named)
        try:
            packet = self.packets[func]
        except KeyError:
            packet = self.packets[func] = self._packet(func)
        if packet is None or _current.mode is not self:
            return self._theirs(func, args, named)
        found = packet._sites.call(args, named)
        return self._anew(func, packet, args, named) if found is MISS else found

    def _elsewhere(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """In a thread of autograd's, which gets PyTorch's stack of modes, not ours.

        The innermost mode is the first that is called.
        """
        _current.mode = self
        try:
            return self.__torch_function__(func, (), args, kwargs)
        finally:
            _current.mode = None

    def _packet(self, func: Any) -> ops.Packet | None:
        """Our operator for the callable; None where PyTorch's own is to run."""
        if not self.names:
            return None
        if isinstance(func, (OpOverload, OpOverloadPacket)):
            namespace, _, name = str(func).partition(".")
            base = name.partition(".")[0] if namespace == "aten" else ""
        else:
            base = callables.table().get(func, "")
        plain = base.removesuffix("_")
        if plain not in self.names or not callables.replaced(plain, self.by_name):
            return None
        return getattr(ops, base)

    def _theirs(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """PyTorch's own; what it is made of, in Python, meets the mode again."""
        if type(func) is not FunctionType or func.__name__ in _WHOLE:
            return func(*args, **kwargs)
        if func in _ENGINE:
            _current.mode = None
            try:
                return func(*args, **kwargs)
            finally:
                _current.mode = self
        # One that calls super() comes back as itself.
        if func in _current.within or not func.__module__.startswith("torch."):
            return func(*args, **kwargs)
        _current.within.add(func)
        _push_mode(self)
        try:
            return _body(func)(*args, **kwargs)
        finally:
            _remove(self)
            _current.within.discard(func)

    def _anew(
        self,
        func: Callable[..., Any],
        packet: ops.Packet,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """A call that looks like none before: ours, or PyTorch's for a reason."""
        named = {("self" if k == "input" else k): v for k, v in kwargs.items()}
        reason = _unsupported(args, kwargs)
        if not reason:
            try:
                overload = packet._choose(args, named)
            except TypeError as error:  # PyTorch's own may take it, or say so, too
                fell_back(packet.__name__, str(error).partition("\n")[0])
                return func(*args, **kwargs)
            if isinstance(overload, (Torch, NotYet)):
                decided(overload.name, "torch", overload.reason)
                return func(*args, **kwargs)
            try:
                with autocast.as_eager(overload.name, args, named) as given:
                    return packet(*given[0], **given[1])
            except (FormulaError, NotImplementedError) as error:
                reason = str(error).partition("\n")[0]
        fell_back(packet.__name__, reason)
        return func(*args, **kwargs)


class _Current(threading.local):
    """What a thread has entered: the innermost `use` is `mode`, that of `enable` is
    `enabled`; `within` are PyTorch's functions in Python that are being called."""

    def __init__(self) -> None:
        self.entered: list[use] = []
        self.mode: use | None = None
        self.enabled: use | None = None
        self.within: set[FunctionType] = set()


_current = _Current()


def enable(include: Names = None, exclude: Names = None) -> None:
    """`use(include, exclude)` from here on, in this thread, until `disable`.

    Another `enable` takes the place of the one before.
    """
    mode = use(include, exclude)
    disable()
    _current.enabled = mode.__enter__()


def disable() -> None:
    """End what `enable` has begun in this thread; nothing where there is nothing.

    A `use` inside it goes on, and ends where nothing is replaced.
    """
    mode, _current.enabled = _current.enabled, None
    if mode is not None:
        mode.__exit__()


@contextmanager
def replacing() -> Iterator[None]:
    """`use()`, unless one holds in this thread already."""
    if _current.mode is not None:
        yield
        return
    with use():
        yield


def as_now() -> Callable[[], AbstractContextManager[Any]]:
    """What makes a context in which operators are replaced as they are now, in any
    thread and under whatever `use` it is entered."""
    wanted = _innermost()

    def then() -> AbstractContextManager[Any]:
        if _innermost() is wanted:
            return nullcontext()
        like = use(include=())
        if wanted is not None:
            like.names, like.packets = wanted.names, wanted.packets
        return like

    return then


def _innermost() -> use | None:
    """The `use` that PyTorch would ask."""
    modes = reversed(_get_current_function_mode_stack())
    return next((mode for mode in modes if isinstance(mode, use)), None)


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
# PyTorch's engine. It runs without a mode: our derivatives need none, and what it calls
# in Python is PyTorch's own, as it is where it runs after the block.
_ENGINE = frozenset((Tensor.backward, torch.autograd.backward, torch.autograd.grad))

checkpoints.install(as_now)


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
            if reason := gate.unusual(value):
                return reason
    return ""
