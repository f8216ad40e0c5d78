"""`atentriton.fuse`: a function of tensors as fused kernels, derivatives included.

Comes in: a function and the arguments of a call. Goes out: what the function gives, from
one kernel for its elementwise operators. A function is traced once for arguments that
look alike, whatever their sizes; kernels are compiled when they are first needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.compiler import is_compiling
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from atentriton import autograd, gate
from atentriton.decisions import Decision, happened
from atentriton.graphs.lines import innermost, line_of
from atentriton.graphs.regions import is_symbolic, operator_of
from atentriton.graphs.replacing import Call, Rewritten, Single, evaluate, rewrite
from atentriton.graphs.trace import Traced, trace
from atentriton.settings import chosen
from atentriton.sites import MISS, Attempt, Sites, guards

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
    not, unless `partial` is true: then what is elementwise is fused, in regions, and the
    rest is PyTorch's.
    """
    if function is None:
        return functools.partial(fuse, partial=partial)
    return FusedFunction(function, partial)


class FusedFunction:
    """What `fuse` makes of a function."""

    def __init__(self, function: Callable[..., Any], partial: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.partial = partial
        self.traces: dict[Any, list[tuple[Traced, Rewritten, Any]]] = {}
        self._sites = Sites()

    def __repr__(self) -> str:
        return f"<fused {self.__qualname__}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        """By reference to the function, where its name leads to what was fused."""
        return _find, (self.__module__, self.__qualname__, self.function, self.partial)

    def __deepcopy__(self, memo: Any) -> FusedFunction:
        return self

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        found = self._sites.call(args, kwargs)
        return self._anew(args, kwargs) if found is MISS else found

    def _anew(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_compiling() or chosen.disabled:
            return self.function(*args, **kwargs)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        if any(isinstance(v, Tensor) and type(v) not in gate.PLAIN for v in leaves):
            return self.function(*args, **kwargs)  # a subclass sees the operators
        rewritten, result_tree = self.graph(leaves, tree)
        given = [v for v in leaves if isinstance(v, (Tensor, float)) and v is not None]
        happened(Decision(self.__qualname__, "fused"))
        attempt = _attempt(rewritten, result_tree, args, kwargs, leaves)
        if attempt is not None and self._sites.has_room(args, kwargs):
            self._sites.add(args, kwargs, attempt)
        return pytree.tree_unflatten(rewritten.module(*given), result_tree)

    def graph(self, leaves: Sequence[Any], tree: Any) -> tuple[Rewritten, Any]:
        """The graph for such arguments, and the structure of its results."""
        key = (tree, torch.is_grad_enabled(), _autocast(), *map(_look, leaves))
        known = self.traces.setdefault(key, [])
        open_ = [v for v in leaves if isinstance(v, (Tensor, float))]
        for traced, rewritten, result_tree in known:
            if traced.holds(open_):
                return rewritten, result_tree
        made = self._traced(leaves, tree)
        known.append(made)
        return made[1:]

    def _traced(self, leaves: Sequence[Any], tree: Any) -> Any:
        places = [i for i, v in enumerate(leaves) if isinstance(v, (Tensor, float))]
        trees: list[Any] = []

        def flat(*given: Any) -> Any:
            items = list(leaves)
            for i, value in zip(places, given, strict=True):
                items[i] = value
            args, kwargs = pytree.tree_unflatten(items, tree)
            results, found = pytree.tree_flatten(self.function(*args, **kwargs))
            trees.append(found)
            return results

        given = [leaves[i] for i in places]
        try:
            traced = trace(flat, given)
        except (GuardOnDataDependentSymNode, DataDependentOutputException) as error:
            raise FusionError(
                f"{self.__qualname__} looks at the elements of a tensor, which decide "
                f"what it computes; a kernel cannot{innermost(error)}"
            ) from error
        rewritten = rewrite(traced.module)
        if not self.partial:
            self._refuse(rewritten, flat, given)
        return traced, rewritten, trees[-1]

    def _refuse(
        self, rewritten: Rewritten, flat: Callable[..., Any], given: Sequence[Any]
    ) -> None:
        """FusionError for the first operator that is in no kernel."""
        for node in rewritten.module.graph.nodes:
            if _is_free(node):
                continue
            name = operator_of(node) or str(node.target)
            reason = rewritten.reasons.get(node.name, f"{name} is not elementwise")
            where = line_of(name, flat, given)
            raise FusionError(
                f"{self.__qualname__} cannot be one kernel: {reason}{where}\n"
                "With atentriton.fuse(partial=True) the rest is left to PyTorch."
            )


def _find(module: str, name: str, function: Any, partial: bool) -> FusedFunction:
    import importlib

    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (
        found if isinstance(found, FusedFunction) else FusedFunction(function, partial)
    )


def _is_free(node: Node) -> bool:
    """Whether the node computes no elements."""
    if node.op != "call_function" or isinstance(node.target, Call):
        return True
    if is_symbolic(node) or not isinstance(node.target, OpOverload):
        return True
    schema = node.target._schema
    return not schema.is_mutable and any(r.alias_info for r in schema.returns)


def _look(leaf: Any) -> Any:
    """What of an argument decides the graph."""
    if isinstance(leaf, Tensor):
        strides = leaf.stride()
        order = tuple(sorted(range(len(strides)), key=lambda i: -strides[i]))
        ones = tuple(s < 2 for s in leaf.shape)
        return (
            leaf.dtype,
            leaf.device.type,
            leaf.requires_grad,
            ones,
            order,
            leaf.is_contiguous(),
        )
    return float if isinstance(leaf, float) else (type(leaf), leaf)


def _autocast() -> Any:
    return tuple(
        (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d))
        for d in ("cpu", "cuda")
        if torch.is_autocast_enabled(d)
    )


def _attempt(
    rewritten: Rewritten,
    tree: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    leaves: Sequence[Any],
) -> Attempt | None:
    """What repeats a call that looks like this one, where it is one kernel's."""
    given = (*args, *kwargs.values())
    single = rewritten.single
    if single is None or len(given) != len(leaves):
        return None
    if any(a is not b for a, b in zip(given, leaves, strict=True)):
        return None
    tensors = [v for v in given if isinstance(v, Tensor)]
    if not gate.direct(tensors) or any(t.is_conj() or t.is_neg() for t in tensors):
        return None
    return _quick(rewritten, single, tree, given)


def _quick(
    rewritten: Rewritten, single: Single, tree: Any, given: Sequence[Any]
) -> Attempt | None:
    holders = [n for n in rewritten.module.graph.nodes if n.op == "placeholder"]
    opened = [i for i, v in enumerate(given) if isinstance(v, (Tensor, float))]
    places = dict(zip(holders, opened, strict=True))
    values = {n: given[i] for n, i in places.items()}
    taken = [evaluate(n, values) for n in single.tensors]
    run = autograd.runner(single.routine, taken)
    # What depends on sizes alone is fixed here: the guards compare sizes.
    numbers = [
        (places.get(n), evaluate(n, values) if n not in places else None)
        for n in single.numbers
    ]
    if any(_needs_float(n, places, given) for n in single.numbers if n not in places):
        return None
    at = [i for i, v in enumerate(given) if isinstance(v, Tensor)]
    check = guards([given[i] for i in at])
    fixed = [(i, v, type(v)) for i, v in enumerate(given) if not isinstance(v, Tensor)]
    direct = all(n in places for n in single.tensors)
    picks = [places.get(n) for n in single.tensors]
    shape = _shaper(single, tree)

    def attempt(args: Sequence[Any]) -> Any:
        for i, value, kind in fixed:
            if type(args[i]) is not kind or (kind is not float and args[i] != value):
                return MISS
        if not check(*[args[i] for i in at]):
            return MISS
        if direct:
            tensors = [args[i] for i in picks]
        else:
            now = {n: args[i] for n, i in places.items()}
            tensors = [evaluate(n, now) for n in single.tensors]
        found = run(tensors, [v if i is None else args[i] for i, v in numbers])
        return found if shape is None else shape(found)

    return attempt


def _needs_float(node: Node, places: dict[Node, int], given: Sequence[Any]) -> bool:
    """Whether a number is computed from one that is given."""
    stack = [node]
    while stack:
        current = stack.pop()
        if current in places and isinstance(given[places[current]], float):
            return True
        stack += current.all_input_nodes
    return False


def _shaper(single: Single, tree: Any) -> Callable[[Any], Any] | None:
    """How the results of the routine become those of the function; None: as they are."""
    if single.routine.single:
        if tree == pytree.tree_structure(0):
            return None
        return lambda found: pytree.tree_unflatten([found] * len(single.picks), tree)
    picks = single.picks
    if tree == pytree.tree_structure(picks) and picks == tuple(range(len(picks))):
        return None
    return lambda found: pytree.tree_unflatten([found[i] for i in picks], tree)
