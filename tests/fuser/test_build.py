"""Nodes are built with the dtype that the row's rule gives, or not at all."""

from __future__ import annotations

import pytest

from fuser import dtypes, ir
from fuser.build import check, convert, primitive, result_dtype, truth
from fuser.dtypes import DTYPES
from fuser.optable import PRIMITIVES, Primitive
from fuser.verify import GraphError, verify

COMPUTED = [d for d in DTYPES.values() if not d.is_half]


@pytest.mark.parametrize("row", PRIMITIVES.values(), ids=lambda r: r.name)
def test_every_row_takes_its_kinds_and_no_others(row: Primitive) -> None:
    for dtype in COMPUTED:
        args = [ir.input_(name, dtype) for name in "abc"[: row.arity]]
        if row.rule == "select":
            args[0] = ir.input_("a", dtypes.bool_)
        if dtype.kind in row.kinds:
            check(row, tuple(args))
            verify([ir.make(row.name, result_dtype(row, dtype), args)])
        else:
            with pytest.raises(TypeError, match=f"{row.name} takes"):
                check(row, tuple(args))


def test_dtypes_of_results() -> None:
    z = ir.input_("z", dtypes.complex64)
    x = ir.input_("x", dtypes.float64)
    assert primitive("abs", z).dtype == dtypes.float32
    assert primitive("real", z).dtype == dtypes.float32
    assert primitive("complex", x, x).dtype == dtypes.complex128
    assert primitive("lt", x, x).dtype == dtypes.bool_
    assert primitive("conj", x) is x
    assert primitive("real", x) is x


def test_arithmetic_on_bools_is_logic() -> None:
    a, b = ir.input_("a", dtypes.bool_), ir.input_("b", dtypes.bool_)
    names = {
        "add": "logical_or",
        "mul": "logical_and",
        "bitwise_and": "logical_and",
        "bitwise_or": "logical_or",
        "bitwise_xor": "logical_xor",
        "ne": "logical_xor",
    }
    for name, logical in names.items():
        assert primitive(name, a, b) is ir.make(logical, dtypes.bool_, (a, b))
    assert primitive("bitwise_not", a).op == "logical_not"
    equal = primitive("eq", a, b)
    assert equal.op == "logical_not"
    assert equal.args[0].op == "logical_xor"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x, i, c: primitive("add", x, i), "one dtype, not float32, int64"),
        (lambda x, i, c: primitive("add", x), "takes 2 arguments, not 1"),
        (lambda x, i, c: primitive("exp", i), "exp takes complex, float, not int64"),
        (lambda x, i, c: primitive("where", x, x, x), "selects by a bool"),
        (lambda x, i, c: primitive("sub", c, c), "sub takes"),
    ],
)
def test_what_is_refused(build, message: str) -> None:
    x, i = ir.input_("x", dtypes.float32), ir.input_("i", dtypes.int64)
    with pytest.raises(TypeError, match=message):
        build(x, i, ir.input_("c", dtypes.bool_))


def test_truth_and_convert() -> None:
    x, c = ir.input_("x", dtypes.float32), ir.input_("c", dtypes.bool_)
    assert truth(c) is c
    assert truth(x) is primitive("ne", x, ir.const(0, dtypes.float32))
    assert convert(x, dtypes.bool_) is truth(x)
    assert convert(x, dtypes.int64) is ir.cast(x, dtypes.int64)


def test_half_types_are_only_stored() -> None:
    h = ir.input_("h", dtypes.float16)
    verify([ir.cast(h, dtypes.float32)])
    with pytest.raises(GraphError, match="works on float16"):
        verify([ir.make("exp", dtypes.float16, (h,))])
