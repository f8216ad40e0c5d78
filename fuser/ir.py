"""The intermediate representation: one frozen, interned node class.

Comes in: operators and arguments. Goes out: `Node` graphs in which equal means
identical, so common subexpressions are shared for free.

A node is one of
  input(name)   an element of a tensor; half types are cast to float32 at once
  scalar(name)  a run-time number: bool, int64, float64 or complex128
  const(value)  a number known when the kernel is compiled
  param(i)      argument i of the body of a loop
  cast          conversion to the node's dtype
  iterate       a bounded loop over a state; item(i) reads one element of its last state
  call          an operator that has derivative formulas of its own, kept whole until
                they have been used; `attrs` says which operator it is, and what its
                static arguments are
  or a row of the op table.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar
from typing import cast as cast_
from weakref import WeakValueDictionary

from fuser.dtypes import DType
from fuser.rounding import Number as Number
from fuser.rounding import rounded
from fuser.rounding import wrap_integer as wrap_integer


class Node:
    """One operation on elements; `args` are nodes, `attrs` is hashable static data."""

    __slots__ = ("__weakref__", "args", "attrs", "dtype", "op")

    op: str
    dtype: DType
    args: tuple[Node, ...]
    attrs: Hashable

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Node is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Node is immutable: cannot delete {name}")

    def __reduce__(self) -> tuple[object, ...]:
        # A copy, or what comes out of a pickle, is the interned node itself.
        return make, (self.op, self.dtype, self.args, self.attrs)

    def __repr__(self) -> str:
        if self.op == "const":
            return f"{value_of(self)!r}:{self.dtype}"
        if self.op in ("input", "scalar", "param"):
            return f"{self.attrs}:{self.dtype}"
        return f"<{label(self)}:{self.dtype} of {len(self.args)}>"


@dataclass(frozen=True, slots=True)
class Static:
    """A static argument of a call: None, a string, a bool, an int or a dtype."""

    value: Hashable


@dataclass(frozen=True, slots=True)
class CallTarget:
    """What a call node calls: the operator and its arguments, in signature order.

    `arguments` holds None for each argument that is a node and a `Static` for the
    others; `output` says which of the operator's outputs the node is. `seen` is the
    half dtype that PyTorch sees in the tensors, where the value depends on it.
    """

    name: str
    arguments: tuple[Static | None, ...]
    output: int = 0
    seen: DType | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """The body of an iterate node: state -> next state, over `param` nodes.

    Params 0..len(step)-1 are the state, the following ones what the loop reads besides.
    The loop runs `limit` times, or less for an element where `proceed` is false.
    """

    step: tuple[Node, ...]
    proceed: Node | None
    limit: int

    @property
    def roots(self) -> tuple[Node, ...]:
        """The nodes that the body computes: the next state, then `proceed`."""
        return self.step if self.proceed is None else (*self.step, self.proceed)

    def with_roots(self, roots: Sequence[Node]) -> Loop:
        """The loop with another body, in the order of `roots`."""
        count = len(self.step)
        proceed = None if self.proceed is None else roots[count]
        return Loop(tuple(roots[:count]), proceed, self.limit)


# The slots' own setters: `Node.__setattr__` refuses.
_set_op, _set_dtype, _set_args, _set_attrs = (
    Node.__dict__[name].__set__ for name in ("op", "dtype", "args", "attrs")
)

_lock = Lock()
_nodes: WeakValueDictionary[tuple[object, ...], Node] = WeakValueDictionary()


def make(
    op: str, dtype: DType, args: Iterable[Node] = (), attrs: Hashable = None
) -> Node:
    """The one node with these fields; nothing is checked here (see `fuser.verify`)."""
    args = tuple(args)
    key = (op, dtype.name, args, attrs)
    node = _nodes.get(key)
    if node is not None:
        return node
    made = object.__new__(Node)
    _set_op(made, op)
    _set_dtype(made, dtype)
    _set_args(made, args)
    _set_attrs(made, attrs)
    with _lock:  # a backward pass compiles in threads of its own
        node = _nodes.get(key)
        if node is None:
            node = _nodes[key] = made
    return node


def input_(name: str, dtype: DType) -> Node:
    """An element of the tensor argument `name`, as it is stored."""
    return make("input", dtype, (), name)


def scalar(name: str, dtype: DType) -> Node:
    """A number given at run time under `name`."""
    return make("scalar", dtype, (), name)


def param(index: int, dtype: DType) -> Node:
    """Argument `index` of a loop's body."""
    return make("param", dtype, (), index)


def const(value: Number, dtype: DType) -> Node:
    """A constant. Its value may be finer than the dtype (0.1): who reads it rounds."""
    return make("const", dtype, (), _encode(value, dtype))


def cast(node: Node, dtype: DType) -> Node:
    """The node's value converted to `dtype`; a complex value keeps its real part.

    A half type goes by float32 to any other: what it holds has one node to derive by.
    """
    if node.dtype == dtype:
        return node
    if node.op == "const" and not dtype.is_half:
        return const(rounded(rounded(value_of(node), node.dtype), dtype), dtype)
    if node.dtype.is_half and dtype != node.dtype.opmath:
        node = make("cast", node.dtype.opmath, (node,))
    return make("cast", dtype, (node,))


def call(target: CallTarget, dtype: DType, args: Iterable[Node]) -> Node:
    """An operator kept whole until its derivative formulas have been used."""
    return make("call", dtype, args, target)


def iterate(
    state: Sequence[Node], captured: Sequence[Node], loop: Loop
) -> tuple[Node, ...]:
    """The final state of a loop; the state's dtypes stay what they are at the start."""
    whole = make("iterate", state[0].dtype, (*state, *captured), loop)
    return tuple(make("item", s.dtype, (whole,), i) for i, s in enumerate(state))


def value_of(node: Node) -> Number:
    """The value of a const node."""
    return _decode(node.attrs, node.dtype)


def is_const(node: Node, value: Number | None = None) -> bool:
    """Whether the node is a constant (equal to `value`, signs of zero told apart)."""
    if node.op != "const" or value is None:
        return node.op == "const"
    try:
        return node.attrs == _encode(value, node.dtype)
    except (TypeError, ValueError):
        return False  # no constant of that dtype has the value


def label(node: Node) -> str:
    """What the node does, in a word: the operator of a call, else its op."""
    return node.attrs.name if isinstance(node.attrs, CallTarget) else node.op


def topological(roots: Iterable[Node]) -> list[Node]:
    """Every node that the roots reach, arguments before their users, each once."""
    order: list[Node] = []
    done: set[Node] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, expanded = stack.pop()
        if node in done:
            continue
        if expanded:
            done.add(node)
            order.append(node)
            continue
        stack.append((node, True))
        stack.extend((a, False) for a in reversed(node.args) if a not in done)
    return order


T = TypeVar("T")


def fold(
    roots: Iterable[Node], visit: Callable[[Node, tuple[T, ...]], T]
) -> dict[Node, T]:
    """Values of all nodes, `visit(node, values of its args)`, from the leaves up."""
    values: dict[Node, T] = {}
    for node in topological(roots):
        values[node] = visit(node, tuple(values[a] for a in node.args))
    return values


def rebuild(node: Node, args: tuple[Node, ...]) -> Node:
    """The node with other arguments, itself where they are the same."""
    return node if args == node.args else make(node.op, node.dtype, args, node.attrs)


def rebuild_body(
    node: Node, rewrite: Callable[[Sequence[Node]], Sequence[Node]]
) -> Node:
    """An iterate node with its body rewritten; other nodes stay as they are."""
    if not isinstance(node.attrs, Loop):
        return node
    loop = node.attrs.with_roots(rewrite(node.attrs.roots))
    return make(node.op, node.dtype, node.args, loop)


def substitute(roots: Sequence[Node], replace: dict[Node, Node]) -> tuple[Node, ...]:
    """The roots with some nodes replaced by others of the same dtype."""

    def visit(node: Node, args: tuple[Node, ...]) -> Node:
        return replace[node] if node in replace else rebuild(node, args)

    values = fold(roots, visit)
    return tuple(values[r] for r in roots)


def leaves(roots: Iterable[Node], op: str) -> Iterator[Node]:
    """The input, scalar or param nodes that the roots reach."""
    return (node for node in topological(roots) if node.op == op)


def _encode(value: Number, dtype: DType) -> Hashable:
    # Floats are keyed by their bits: interning must not take -0.0 for 0.0.
    if dtype.kind == "complex":
        z = complex(value)
        return (z.real.hex(), z.imag.hex())
    if isinstance(value, complex):
        raise TypeError(f"{value} is complex and cannot be a constant of {dtype}")
    if dtype.kind == "float":
        return float(value).hex()
    if dtype.kind == "bool":
        return bool(value)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value} is no integer and cannot be a constant of {dtype}")
    return int(value)


def _decode(attrs: Hashable, dtype: DType) -> Number:
    if dtype.kind == "complex":
        re, im = cast_("tuple[str, str]", attrs)
        return complex(float.fromhex(re), float.fromhex(im))
    if isinstance(attrs, str):
        return float.fromhex(attrs)
    assert isinstance(attrs, bool | int), f"not a constant: {attrs!r}"
    return attrs
