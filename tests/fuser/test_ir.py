"""Equal nodes are one node, whatever they hold, and go when nobody needs them."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import threading

import pytest

from fuser import dtypes, ir
from fuser.dtypes import DTYPES, DType
from fuser.ir import CallTarget, Loop, Node, Static
from fuser.rounding import rounded

F32, F64, I64 = dtypes.float32, dtypes.float64, dtypes.int64


def chain(length: int, name: str = "x") -> Node:
    node = ir.input_(name, F32)
    for _ in range(length):
        node = ir.make("exp", F32, (node,))
    return node


def test_equal_means_identical() -> None:
    x, y = ir.input_("x", F32), ir.input_("y", F32)
    assert ir.make("add", F32, (x, y)) is ir.make("add", F32, [x, y])
    assert ir.make("add", F32, (x, y)) is not ir.make("add", F32, (y, x))
    assert ir.input_("x", F32) is not ir.input_("x", F64)
    assert ir.input_("x", F32) is not ir.scalar("x", F32)
    assert ir.make("item", F32, (x,), 0) is not ir.make("item", F32, (x,), 1)


def test_constants_are_told_apart_by_bits_and_dtype() -> None:
    assert ir.const(0.0, F64) is not ir.const(-0.0, F64)
    assert ir.const(math.nan, F64) is ir.const(float("nan"), F64)
    assert ir.const(1, F64) is ir.const(1.0, F64) is ir.const(True, F64)
    assert ir.const(1, I64) is not ir.const(1, F64)
    assert ir.const(True, dtypes.bool_) is not ir.const(1, dtypes.uint8)
    assert ir.const(complex(0.0, -0.0), dtypes.complex64) is not ir.const(
        complex(0.0, 0.0), dtypes.complex64
    )
    assert ir.const(2, dtypes.complex64) is ir.const(2 + 0j, dtypes.complex64)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_constants_give_their_value_back(dtype: DType) -> None:
    kinds = {"bool": [True, False], "int": [0, 3, 100]}
    floats = [0.0, -0.0, 0.1, 1e300, 5e-324, math.inf, -math.inf]
    parts = [complex(a, b) for a in floats for b in floats]
    for value in kinds.get(dtype.kind, parts if dtype.is_complex else floats):
        found = ir.value_of(ir.const(value, dtype))
        assert repr(found) == repr(value)
        assert ir.is_const(ir.const(value, dtype), value)
    assert not ir.is_const(ir.input_("x", dtype))


def test_is_const() -> None:
    zero = ir.const(0.0, F32)
    assert ir.is_const(zero)
    assert ir.is_const(zero, 0)
    assert not ir.is_const(zero, -0.0)
    assert not ir.is_const(zero, 1j)
    seven = ir.const(7, I64)
    assert ir.is_const(seven, 7.0)
    assert not ir.is_const(seven, 7.5)
    assert not ir.is_const(seven, math.inf)


def test_constants_that_no_dtype_has() -> None:
    with pytest.raises(TypeError, match="complex"):
        ir.const(1j, F32)
    with pytest.raises(ValueError, match="no integer"):
        ir.const(2.5, I64)


def test_nodes_are_immutable() -> None:
    node = ir.input_("x", F32)
    with pytest.raises(AttributeError, match="immutable"):
        node.op = "scalar"
    with pytest.raises(AttributeError, match="immutable"):
        node.extra = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="immutable"):
        del node.args
    assert node.op == "input"


def test_copies_are_the_node() -> None:
    x = ir.input_("x", F32)
    loop = Loop((ir.make("exp", F32, (ir.param(0, F32),)),), None, 3)
    (node,) = ir.iterate([x], [], loop)
    assert copy.copy(node) is node
    assert copy.deepcopy(node) is node
    assert pickle.loads(pickle.dumps(node)) is node


def test_attributes_of_calls_count() -> None:
    x = ir.input_("x", F32)
    made = [
        ir.call(CallTarget(name, (Static(n), None), output), F32, (x,))
        for name in ("polygamma", "other")
        for n in (1, 2)
        for output in (0, 1)
    ]
    assert len(set(made)) == 8
    assert ir.call(CallTarget("polygamma", (Static(1), None)), F32, (x,)) is made[0]
    assert ir.label(made[0]) == "polygamma"


def test_casts() -> None:
    x, h = ir.input_("x", F32), ir.input_("h", dtypes.float16)
    assert ir.cast(x, F32) is x
    assert ir.cast(x, F64).op == "cast"
    # Half types go by float32, so that there is one node to derive by.
    assert ir.cast(h, F64) is ir.cast(ir.cast(h, F32), F64)
    assert ir.cast(ir.const(3, I64), F32) is ir.const(3.0, F32)
    assert ir.value_of(ir.cast(ir.const(0.1, F32), F64)) == rounded(0.1, F32) != 0.1
    assert ir.value_of(ir.cast(ir.const(300, I64), dtypes.uint8)) == 44
    assert ir.value_of(ir.cast(ir.const(-2.7, F64), I64)) == -2
    assert ir.value_of(ir.cast(ir.const(2 + 3j, dtypes.complex64), F32)) == 2.0
    assert ir.value_of(ir.cast(ir.const(1e300, F64), F32)) == math.inf
    assert ir.cast(ir.const(0.1, F32), dtypes.float16).op == "cast"


def test_topological_order_of_a_long_chain() -> None:
    end = chain(100_000)
    order = ir.topological([end])
    assert len(order) == 100_001
    assert order[0].op == "input"
    assert order[-1] is end
    depth = ir.fold([end], lambda _, args: 1 + max(args, default=0))
    assert depth[end] == 100_001
    del end, order, depth  # which frees it, from its end, without recursion


def test_topological_order_is_of_the_arguments_first() -> None:
    x, y = ir.input_("x", F32), ir.input_("y", F32)
    a = ir.make("add", F32, (x, y))
    b = ir.make("mul", F32, (a, x))
    assert ir.topological([b, a]) == [x, y, a, b]
    assert ir.topological([b, a, b]) == [x, y, a, b]


def test_shared_subexpressions_are_visited_once() -> None:
    node = ir.input_("x", F32)
    for _ in range(60):  # a tree of 2**60 leaves, written out
        node = ir.make("add", F32, (node, node))
    assert len(ir.topological([node])) == 61


def test_nodes_go_when_nobody_needs_them() -> None:
    gc.collect()
    before = len(ir._nodes)
    end = chain(10_000, "only here")
    assert len(ir._nodes) == before + 10_001
    del end
    gc.collect()
    assert len(ir._nodes) == before


def test_threads_get_the_same_nodes() -> None:
    found: list[Node] = []
    barrier = threading.Barrier(8)

    def build() -> None:
        barrier.wait()
        found.append(chain(2_000, "threads"))

    threads = [threading.Thread(target=build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def test_substitute() -> None:
    x, y = ir.input_("x", F32), ir.input_("y", F32)
    root = ir.make("add", F32, (ir.make("exp", F32, (x,)), y))
    (after,) = ir.substitute([root], {x: y, y: x})
    assert after is ir.make("add", F32, (ir.make("exp", F32, (y,)), x))
    assert ir.substitute([root], {}) == (root,)


def test_loops_have_roots() -> None:
    p = ir.param(0, F32)
    step, proceed = ir.make("exp", F32, (p,)), ir.make("lt", dtypes.bool_, (p, p))
    whole = Loop((step,), proceed, 5)
    assert whole.roots == (step, proceed)
    assert whole.with_roots(whole.roots) == whole
    assert Loop((step,), None, 5).with_roots([p]) == Loop((p,), None, 5)


def test_wrap_integer() -> None:
    assert ir.wrap_integer(128, dtypes.int8) == -128
    assert ir.wrap_integer(-1, dtypes.uint8) == 255
    assert ir.wrap_integer(2**63, I64) == -(2**63)
