"""`atentriton.fuse`: a function of tensors as fused kernels, derivatives included.

Comes in: a function and the arguments of a call. Goes out: what the function gives,
from one kernel for its elementwise operators. A function is traced once for arguments
that look alike, whatever their sizes; kernels are compiled when they are first needed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TypeVar, overload

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.compiler import is_compiling
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn import Module
from torch.utils import _pytree as pytree

from atentriton import gate
from atentriton.decisions import decided, happened, watch
from atentriton.graphs.accounts import FusedGraph
from atentriton.graphs.attempts import Made, attempt_of
from atentriton.graphs.integers import alike, deciding
from atentriton.graphs.lines import innermost, line_of
from atentriton.graphs.looks import autocast_now, is_open, look_of
from atentriton.graphs.regions import operator_of
from atentriton.graphs.replacing import (
    Call,
    Rewritten,
    computes_nothing,
    rewrite,
)
from atentriton.graphs.trace import Traced, trace
from atentriton.settings import chosen
from atentriton.sites import MISS, Sites

F = TypeVar("F", bound=Callable[..., Any])


class FusionError(RuntimeError):
    """The function does what no kernel can, and was not to be split."""


@overload
def fuse(function: F) -> F: ...
@overload
def fuse(*, partial: bool = False) -> Callable[[F], F]: ...


def fuse(function: Any = None, *, partial: bool = False) -> Any:
    """Let a function of tensors run as fused kernels; a decorator.

    Arguments and results may be tensors, numbers, and tuples, lists and dicts of them.
    The result is differentiable to any order, in reverse and forward mode, also under
    vmap and the other transforms. All of the function must be elementwise, with
    broadcasting; views and casts may be between. FusionError names the line that is
    not, unless `partial` is true: then what is elementwise is fused, in regions, and
    the rest is PyTorch's.

    Between the operators of a kernel half types stay in float32: results are rounded
    once, and so are closer to the true ones, but not bit by bit PyTorch's.

    A function is traced: Python's own control flow, other arguments than tensors and
    numbers, and what else the function reads are settled when a call first looks like
    that one. So are whole numbers that are more than factors or terms: exponents,
    dimensions, how often a loop runs. Tensors have to be arguments. The parameters and
    buffers of a module that is one, as `self` of a fused method, count as such.
    """
    if function is None:
        return functools.partial(fuse, partial=partial)
    if not callable(function):
        raise TypeError(f"fuse takes a function of tensors, not {function!r}")
    return FusedFunction(function, partial)


class FusedFunction:
    """What `fuse` makes of a function."""

    def __init__(self, function: Callable[..., Any], partial: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.__qualname__ = getattr(function, "__qualname__", repr(function))
        self.function = function
        self.partial = partial
        self.traces: dict[Any, list[Made]] = {}
        self.settled: dict[Any, frozenset[int]] = {}
        self._sites = Sites()

    def __repr__(self) -> str:
        return f"<fused {self.__qualname__}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        """By reference, where the function's name leads here, as a decorator's does."""
        if _named(self.__module__, self.__qualname__) is self:
            return _named, (self.__module__, self.__qualname__)
        return FusedFunction, (self.function, self.partial)

    def __deepcopy__(self, memo: Any) -> FusedFunction:
        return self

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        found = self._sites.call(args, kwargs)
        return self._anew(args, kwargs) if found is MISS else found

    def _anew(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_compiling() or chosen.disabled:
            return self.function(*args, **kwargs)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        opened = _Opened(leaves)
        if any(type(v) not in gate.PLAIN for v in opened.tensors):
            return self.function(*args, **kwargs)  # a subclass sees the operators
        for reason in filter(None, map(gate.unusual, opened.tensors)):
            raise FusionError(f"{self.__qualname__} cannot be one kernel: {reason}")
        made = self.graph(opened, tree)
        decided(self.__qualname__, "fused")
        if watch.on:
            happened(FusedGraph(self.__qualname__, made.rewritten))
        if self._sites.has_room(args, kwargs):
            attempt = attempt_of(made, args, kwargs, leaves)
            if attempt is not None:
                self._sites.add(args, kwargs, attempt)
        found = made.rewritten.module(*opened.values)
        return pytree.tree_unflatten(found, made.tree)

    def rewritten(self, *args: Any, **kwargs: Any) -> Rewritten:
        """The graph that such a call runs, with its regions as kernels."""
        leaves, tree = pytree.tree_flatten((args, kwargs))
        return self.graph(_Opened(leaves), tree).rewritten

    def graph(self, opened: _Opened, tree: Any) -> Made:
        """The graph for such arguments; `tree` is their structure."""
        dtype = torch.get_default_dtype()
        key = (tree, torch.is_grad_enabled(), dtype, autocast_now(), *opened.look)
        for made in self.traces.get((key, *self._known(key, opened)), ()):
            if made.traced.holds(opened.values):
                return made
        made = self._made(opened, tree, self.settled.get(key, frozenset()))
        self.settled[key] = made.traced.fixed
        known = self.traces.setdefault((key, *self._known(key, opened)), [])
        known.append(made)
        return made

    def _known(self, key: Any, opened: _Opened) -> Iterator[Any]:
        """The numbers that decide the graph of calls that look like that."""
        yield from (opened.values[i] for i in sorted(self.settled.get(key, ())))

    def _made(self, opened: _Opened, tree: Any, settled: frozenset[int]) -> Made:
        """A trace, and what becomes of it; `settled` are numbers known to decide it.

        Whole numbers are open only where that is all the difference it makes: Python
        code may ask for their type, and formulas for their value.
        """
        trees: list[Any] = []

        def flat(*given: Any) -> Any:
            with opened.holding(given) as leaves:
                args, kwargs = pytree.tree_unflatten(leaves, tree)
                results, found = pytree.tree_flatten(self.function(*args, **kwargs))
            trees.append(found)
            return results

        whole = frozenset(i for i, v in enumerate(opened.values) if type(v) is int)
        traced = self._traced(flat, opened, whole)
        results = trees[-1]
        if settled != whole:
            more = _opened_further(traced, flat, opened.values, settled)
            if more is not None and trees[-1] == results:
                with suppress(FusionError):
                    return Made(more, self._rewritten(more, flat, opened), results)
        return Made(traced, self._rewritten(traced, flat, opened), results)

    def _rewritten(
        self, traced: Traced, flat: Callable[..., Any], opened: _Opened
    ) -> Rewritten:
        """The trace with its regions as kernels; FusionError where all has to be one,
        and is not."""
        self._check_captured(traced)
        rewritten = rewrite(traced.module)
        if not self.partial:
            self._refuse(rewritten, flat, opened.values)
        return rewritten

    def _traced(
        self, flat: Callable[..., Any], opened: _Opened, fixed: frozenset[int]
    ) -> Traced:
        try:
            return trace(flat, opened.values, fixed)
        except FusionError:
            raise
        except (GuardOnDataDependentSymNode, DataDependentOutputException) as error:
            raise FusionError(
                f"{self.__qualname__} looks at the elements of a tensor, which decide "
                f"what it computes; a kernel cannot{innermost(error)}"
            ) from error
        except Exception as error:
            self._try(flat, opened)
            what = str(error).partition("\n")[0]
            raise FusionError(
                f"{self.__qualname__} cannot be traced: {what}{innermost(error)}"
            ) from error

    def _try(self, flat: Callable[..., Any], opened: _Opened) -> None:
        """Call the function as it is, on copies: what is wrong without us, too, such as
        sizes that do not match, PyTorch says better."""
        copies = [
            v.detach().clone() if isinstance(v, Tensor) else v for v in opened.values
        ]
        with torch.no_grad():
            flat(*copies)

    def _check_captured(self, traced: Traced) -> None:
        """FusionError for tensors that the function has from elsewhere."""
        for node in traced.module.graph.nodes:
            if node.op == "get_attr" and not all(map(_is_lift, node.users)):
                shape = tuple(getattr(traced.module, node.target).shape)
                raise FusionError(
                    f"{self.__qualname__} uses a tensor of shape {shape} that is not "
                    "among its arguments: another call would not see another one in "
                    "its place; pass it as an argument"
                )

    def _refuse(
        self, rewritten: Rewritten, flat: Callable[..., Any], given: Sequence[Any]
    ) -> None:
        """FusionError for the first operator that is in no kernel."""
        for node in rewritten.module.graph.nodes:
            if isinstance(node.target, Call) or computes_nothing(node):
                continue
            if not isinstance(node.target, OpOverload):
                continue
            name = operator_of(node) or str(node.target)
            reason = rewritten.reasons.get(node.name, f"{name} is not elementwise")
            where = line_of(name, flat, given)
            raise FusionError(
                f"{self.__qualname__} cannot be one kernel: {reason}{where}\n"
                "With atentriton.fuse(partial=True) the rest is left to PyTorch."
            )


def _opened_further(
    traced: Traced,
    flat: Callable[..., Any],
    values: Sequence[Any],
    settled: frozenset[int],
) -> Traced | None:
    """The same trace with whole numbers open, but for those that decide it; None where
    all do."""
    while settled != traced.fixed:
        try:
            found = trace(flat, values, settled)
        except Exception:  # some code wants an int, and a symbol is none
            return None
        if not deciding(found):
            return found if alike(found, traced) else None
        settled |= deciding(found)
    return None


class _Opened:
    """The arguments of a call as values that stay open in a graph, and all others.

    Open are tensors, numbers, and the parameters and buffers of modules.
    """

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.leaves = leaves
        self.places = [i for i, v in enumerate(leaves) if is_open(v)]
        self.modules = [v for v in leaves if isinstance(v, Module)]
        self.owned = [
            (owner, name)
            for module in self.modules
            for part in module.modules()
            for owner in (part._parameters, part._buffers)
            for name, tensor in owner.items()
            if tensor is not None
        ]
        self.values = [leaves[i] for i in self.places]
        self.values += [owner[name] for owner, name in self.owned]

    @property
    def tensors(self) -> list[Tensor]:
        return [v for v in self.values if isinstance(v, Tensor)]

    @property
    def look(self) -> Iterator[Any]:
        """What of the arguments decides the graph, besides sizes and strides."""
        yield from map(look_of, self.leaves)
        for module in self.modules:
            yield tuple(part.training for part in module.modules())
        for owner, name in self.owned:
            yield look_of(owner[name])

    @contextmanager
    def holding(self, given: Sequence[Any]) -> Iterator[list[Any]]:
        """All arguments with `given` in place of what is open."""
        leaves = list(self.leaves)
        for i, value in zip(self.places, given, strict=False):
            leaves[i] = value
        old = self.values[len(self.places) :]
        new = given[len(self.places) :]
        try:
            for (owner, name), value in zip(self.owned, new, strict=True):
                owner[name] = value
            yield leaves
            for (owner, name), value in zip(self.owned, new, strict=True):
                if owner.get(name) is not value:
                    raise FusionError(f"a module is given a new {name}; write to it")
        finally:
            for (owner, name), value in zip(self.owned, old, strict=True):
                owner[name] = value


def _is_lift(node: Node) -> bool:
    return operator_of(node) in ("lift_fresh", "lift_fresh_copy")


def _named(module: str, name: str) -> Any:
    """What a dotted name in a module leads to; None where there is nothing."""
    found: Any = sys.modules.get(module)
    if found is None:
        with suppress(ImportError):
            found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
