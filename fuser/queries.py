"""The questions a formula asks of its arguments, answered while it is lowered.

Comes in: the values of a call. Goes out: `QUERIES`, by name: a value, or None where the
name means an ordinary function for these arguments. Sizes and strides are answered with
a token that only other queries understand: an element does not know its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fuser import dtypes, ir
from fuser.build import convert
from fuser.dtypes import DType
from fuser.errors import NOWHERE
from fuser.fold import fold_number
from fuser.ir import Static
from fuser.optable import PRIMITIVES
from fuser.rows import apply_row
from fuser.values import Number, Tensor, Tuple, Undefined, Value, number

if TYPE_CHECKING:
    from fuser.lower import Lowering

Args = Sequence[Value]
Answer = Callable[["Lowering", Args], "Value | None"]


def static_truth(value: Value) -> bool | None:
    """The value as a condition, where it is known when the kernel is compiled."""
    if isinstance(value, Number):
        known = value.constant
        return None if known is None else bool(known)
    if isinstance(value, Static):
        return bool(value.value)
    return None


def _is_absent(value: Value) -> bool:
    return isinstance(value, Undefined) or (
        isinstance(value, Static) and value.value is None
    )


def _defined(_: Lowering, args: Args) -> Value:
    return number(not _is_absent(args[0]))


def _value_or(_: Lowering, args: Args) -> Value:
    return args[1] if _is_absent(args[0]) else args[0]


def _same(_: Lowering, args: Args) -> Value:
    return args[0]


def _dtype(value: Value) -> DType | None:
    if isinstance(value, Tensor | Undefined):
        return value.dtype
    if isinstance(value, Number):
        return value.node.dtype
    if isinstance(value, Static):
        found = value.value
        if isinstance(found, DType):
            return found
    return None


def _scalar_type(_: Lowering, args: Args) -> Value | None:
    found = _dtype(args[0])
    return Static(found) if found else None


def _kind_query(*kinds: str) -> Answer:
    def query(_: Lowering, args: Args) -> Value | None:
        found = _dtype(args[0])
        if found is None and isinstance(args[0], Undefined):
            return number(False)  # a zero of any dtype will do
        return number(found.kind in kinds) if found else None

    return query


def _eq(answer: bool) -> Answer:
    def query(_: Lowering, args: Args) -> Value | None:
        if all(isinstance(a, Static) for a in args):
            return number((args[0] == args[1]) == answer)
        if any(isinstance(a, Static) for a in args):
            return number(not answer)
        return None

    return query


def _equal(lowering: Lowering, args: Args) -> Value:
    return lowering.apply("eq", args)


def _to_kind(dtype: DType) -> Answer:
    def query(_: Lowering, args: Args) -> Value | None:
        if isinstance(args[0], Number):
            return Number(fold_number(convert(args[0].node, dtype)))
        return None

    return query


def _scalar_to_tensor(_: Lowering, args: Args) -> Value:
    """A C++ scalar made a tensor is a wrapped number: it stays a number here."""
    return args[0]


def _scalar_tensor(lowering: Lowering, args: Args) -> Value | None:
    dtype = _dtype(args[1]) if len(args) > 1 else None
    return lowering.converted(args[0], dtype) if dtype else args[0]


def _filled(value: float) -> Answer:
    def query(_: Lowering, args: Args) -> Value | None:
        if isinstance(args[0], Number):
            return number(value)
        if not isinstance(args[0], Tensor):
            return Undefined() if _is_absent(args[0]) else None
        given = _dtype(args[-1]) if isinstance(args[-1], Static) else None
        dtype = given or args[0].dtype
        node = ir.const(value, dtype.opmath)
        return Tensor(node, dtype, args[0].zero_dim)

    return query


def _full_like(lowering: Lowering, args: Args) -> Value | None:
    if isinstance(args[0], Tensor) and len(args) > 1:
        filled = lowering.converted(args[1], args[0].dtype)
        assert isinstance(filled, Tensor)
        return Tensor(filled.node, filled.dtype, args[0].zero_dim)
    return None


def _to(lowering: Lowering, args: Args) -> Value | None:
    given = [a for a in args[1:] if not isinstance(a, Number)]  # not non_blocking
    dtype = next((d for a in given if (d := _dtype(a))), None)
    if dtype is None or not isinstance(args[0], Tensor | Number):
        return args[0]
    return lowering.converted(args[0], dtype)


def _token(name: str) -> Answer:
    return lambda _, args: Static(name)


def _tuple(_: Lowering, args: Args) -> Value:
    return Tuple(tuple(args))


def _conj(lowering: Lowering, args: Args) -> Value | None:
    """conj, by whatever name, of what is real is itself."""
    dtype = _dtype(args[0])
    if dtype is None or not dtype.is_complex:
        return args[0]
    return apply_row(PRIMITIVES["conj"], args, lowering.default, NOWHERE)


def _tensor(_: Lowering, args: Args) -> Value | None:
    return None if args else Undefined()


QUERIES: dict[str, Answer] = {
    "defined": _defined,
    "has_value": _defined,
    "value": _same,
    "value_or": _value_or,
    "scalar_type": _scalar_type,
    "options": _scalar_type,
    "dtype": _scalar_type,
    "is_complex": _kind_query("complex"),
    "isComplex": _kind_query("complex"),
    "isComplexType": _kind_query("complex"),
    "is_floating_point": _kind_query("float"),
    "isFloatingPoint": _kind_query("float"),
    "isFloatingType": _kind_query("float"),
    "isIntegralType": _kind_query("int"),
    "isDifferentiableType": _kind_query("float", "complex"),
    "eq": _eq(True),
    "ne": _eq(False),
    "equal": _equal,
    "toDouble": _to_kind(dtypes.float64),
    "toFloat": _to_kind(dtypes.float64),
    "toComplexDouble": _to_kind(dtypes.complex128),
    "scalar_to_tensor": _scalar_to_tensor,
    "wrapped_scalar_tensor": _scalar_to_tensor,
    "scalar_tensor": _scalar_tensor,
    "zeros_like": _filled(0),
    "ones_like": _filled(1),
    "new_zeros": _filled(0),
    "new_zeros_symint": _filled(0),
    "full_like": _full_like,
    "clone": _same,
    "contiguous": _same,
    "detach": _same,
    "to": _to,
    "sizes": _token("sizes"),
    "sym_sizes": _token("sizes"),
    "strides": _token("strides"),
    "sym_strides": _token("strides"),
    "layout": _token("layout"),
    "device": _token("device"),
    "make_tuple": _tuple,
    "tuple": _tuple,
    "conj": _conj,
    "conj_physical": _conj,
    "_conj": _conj,
    "_conj_physical": _conj,
    "Tensor": _tensor,
}
