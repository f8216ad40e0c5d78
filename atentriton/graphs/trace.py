"""A function as a graph of ATen operators, before autograd, with sizes left open.

Comes in: a function and the leaves of its arguments. Goes out: `Traced`: a graph module
of tensors and numbers, and the condition under which it holds for others.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymInt, Tensor
from torch._dynamo.source import ConstantSource
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._sympy.printers import PythonPrinter

from atentriton.override import use


@dataclass(frozen=True)
class Traced:
    """`module` takes the tensors and numbers in order; `holds` asks whether it may be
    used for others of the same dtypes and ranks. The answer depends on the numbers at
    the places `asked`, besides sizes and strides; those at the places `fixed` have to
    be equal, and the graph does not read them."""

    module: GraphModule
    holds: Callable[[Sequence[Any]], bool]
    asked: frozenset[int]
    fixed: frozenset[int]


def trace(
    function: Callable[..., Any],
    leaves: Sequence[Any],
    fixed: frozenset[int] = frozenset(),
) -> Traced:
    """The graph of `function(*leaves)`; leaves are tensors, floats and ints.

    Numbers stay open, but for those at the places `fixed`. Whatever PyTorch raises for
    data-dependent control flow is passed on.
    """
    try:
        return _trace(function, leaves, fixed, True)
    except RuntimeError as error:
        if "leaf Variable" not in str(error):
            raise
    # The function writes to an argument that requires a gradient. Of a true leaf
    # PyTorch will not have that either, when the graph runs.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch looks at the gradients of no leaves
        return _trace(function, leaves, fixed, False)


def _trace(
    function: Callable[..., Any],
    leaves: Sequence[Any],
    fixed: frozenset[int],
    as_leaves: bool,
) -> Traced:
    env = _Shapes(specialize_zero_one=True, duck_shape=False)
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    guard = _Guard(env)
    recording = torch.is_grad_enabled()
    with ExitStack() as stack:
        for make in (  # some change a setting as soon as they are made
            temporarily_clear_interpreter_stack,
            unsaved,
            _disable_current_modes,
            lambda: use(include=()),  # what the function calls is looked at
            lambda: forward_ad._set_fwd_grad_enabled(False),
            lambda: torch.inference_mode(False),
            lambda: torch.set_grad_enabled(recording),
        ):
            stack.enter_context(make())
        open_: list[Any] = [
            guard.settled(i, leaf) if i in fixed else guard.opened(i, leaf)
            for i, leaf in enumerate(leaves)
        ]
        stack.enter_context(mode)
        given = [
            _fake(leaf, like, as_leaves) if isinstance(leaf, Tensor) else like
            for leaf, like in zip(leaves, open_, strict=True)
        ]
        module = make_fx(
            _without(function, given, fixed),
            tracing_mode="symbolic",
            pre_dispatch=True,
            record_stack_traces=True,
        )(*[value for i, value in enumerate(given) if i not in fixed])
    _hold_places(module, fixed)
    return Traced(module, guard.compiled(), guard.asked, fixed)


def _without(
    function: Callable[..., Any], given: Sequence[Any], fixed: frozenset[int]
) -> Callable[..., Any]:
    """The function of the other arguments: make_fx would open those that are fixed."""

    def of_others(*others: Any) -> Any:
        rest = iter(others)
        return function(*[v if i in fixed else next(rest) for i, v in enumerate(given)])

    return of_others if fixed else function


def _hold_places(module: GraphModule, fixed: frozenset[int]) -> None:
    """Let the graph take the numbers that are fixed, and not read them."""
    if not fixed:
        return
    graph = module.graph
    holders = [n for n in graph.nodes if n.op == "placeholder"]
    after: Node = graph._root
    for i in range(len(holders) + len(fixed)):
        if i in fixed:
            with graph.inserting_after(after):
                after = graph.placeholder(f"fixed{i}")
        else:
            after = holders.pop(0)
    module.recompile()


def unsaved() -> Any:
    """A context in which nobody sees which tensors are saved, such as a checkpoint."""

    if not torch._C._autograd._saved_tensors_hooks_is_enabled():  # type: ignore[attr-defined]
        return nullcontext()  # there is none: torch.func forbids hooks

    def same(tensor: Tensor) -> Tensor:
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(same, same)


def _fake(leaf: Tensor, like: Any, as_leaf: bool) -> Tensor:
    """A tensor without memory, of sizes and strides that are symbols."""
    sizes, strides = like
    fake = torch.empty_strided(sizes, strides, dtype=leaf.dtype, device=leaf.device)
    if as_leaf or not leaf.requires_grad:
        return fake.requires_grad_(leaf.requires_grad)
    with torch.enable_grad():
        start = torch.zeros((), dtype=leaf.dtype, device=leaf.device)
        return fake.copy_(start.requires_grad_())


class _Shapes(ShapeEnv):
    """An environment that does not say where in Python a symbol or a guard came about.

    To leave PyTorch's own files out it would import torch.export and half of Inductor,
    which takes as long as all else at a process's first call.
    """

    def _get_user_frame(self) -> None:
        return None


class _Guard:
    """What was assumed of sizes, strides and numbers while a function was traced."""

    def __init__(self, env: ShapeEnv) -> None:
        self.env = env
        self.symbols: dict[str, str] = {}  # to what they stand for
        self.numbers: dict[str, int] = {}
        self.lines: list[str] = []

    def opened(self, place: int, leaf: Any) -> Any:
        """Symbols for the sizes and strides of a tensor, or for a number."""
        source = ConstantSource(f"argument{place}")
        if isinstance(leaf, (int, float)):
            symbol = self.env.create_unspecified_symbol(
                leaf, source, DimDynamic.DYNAMIC
            )
            self.symbols[str(symbol)] = f"leaves[{place}]"
            self.numbers[str(symbol)] = place
            if isinstance(leaf, int):
                return self.env.create_symintnode(symbol, hint=leaf, source=source)
            return self.env.create_symfloatnode(symbol, hint=leaf, source=source)
        like = torch.empty_strided(leaf.shape, leaf.stride(), device="meta")
        context = StatelessSymbolicContext(
            dynamic_sizes=[DimDynamic.DYNAMIC] * leaf.dim(),
        )
        found = self.env.create_symbolic_sizes_strides_storage_offset(
            like, source, symbolic_context=context
        )
        sizes, strides, _ = found
        for k, size in enumerate(sizes):
            self._assume(size, f"leaves[{place}].shape[{k}]")
        for k, stride in enumerate(strides):
            self._assume(stride, f"leaves[{place}].stride({k})")
        return sizes, strides

    def settled(self, place: int, leaf: Any) -> Any:
        """The number itself: the graph is for this one alone."""
        self.lines.append(f"leaves[{place}] == {leaf!r}")
        return leaf

    def _assume(self, given: SymInt | int, actual: str) -> None:
        text = _print(given.node.expr) if isinstance(given, SymInt) else str(given)
        if not isinstance(given, SymInt) or not given.node.expr.is_Symbol:
            self.lines.append(f"{actual} == {text}")
        elif text in self.symbols:
            self.lines.append(f"{actual} == {self.symbols[text]}")
        else:
            self.symbols[text] = actual
            self.lines.append(f"{actual} >= 2")  # 0 and 1 are no symbols

    @property
    def asked(self) -> frozenset[int]:
        """The places of the numbers of which something was assumed."""
        names = {str(s) for g in self.env.guards for s in g.expr.free_symbols}
        return frozenset(place for s, place in self.numbers.items() if s in names)

    def compiled(self) -> Callable[[Sequence[Any]], bool]:
        guards = (g.expr for g in self.env.guards)
        known = [
            e for e in guards if {str(s) for s in e.free_symbols} <= {*self.symbols}
        ]
        conditions = [*self.lines, *(_print(e) for e in dict.fromkeys(known))]
        lines = [
            "def holds(leaves):",
            *(f"    {name} = {actual}" for name, actual in self.symbols.items()),
            f"    return {' and '.join(f'({c})' for c in conditions) or 'True'}",
        ]
        names: dict[str, Any] = {"math": math}
        exec("\n".join(lines), names)
        return names["holds"]


def _print(expression: Any) -> str:
    return PythonPrinter().doprint(expression)
