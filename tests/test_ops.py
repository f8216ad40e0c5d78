"""The namespace of operators: finding them, calling them, in place, and what they
refuse."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from atentriton import gate, ops, sites
from atentriton.operators import Fused, InPlace, NotYet, Torch
from atentriton.sites import MISS

SETTINGS: dict[str, tuple[Any, ...]] = {
    "acosh": (torch.rand(3, 4) + 1.5,),
    "exp": (torch.rand(4, 3).t(),),
    "abs": (torch.randn(3, 4),),
    "add": (torch.rand(3, 1), torch.rand(4)),
    "mul": (torch.rand(3, 1), torch.rand(())),
    "addcmul": (torch.rand(3, 1), torch.rand(4), torch.rand(3, 4)),
    "clamp": (torch.randn(3, 4), -0.5, 0.5),
    "logaddexp": (torch.rand(3, 1), torch.rand(4)),
    "atan2": (torch.randn(3, 1), torch.randn(4)),
    "maximum": (torch.randn(3, 1), torch.randn(4)),
    "xlogy": (torch.rand(3, 1), torch.rand(4)),
    "polygamma": (2, torch.rand(3) + 1),
    "copysign": (torch.randn(3, 4), torch.randn(4)),
    "masked_fill": (torch.rand(3, 4), torch.tensor([True, False, True, False]), 2.5),
    "gt": (torch.randn(3, 4), torch.randn(4)),
    "where": (torch.rand(3, 1) > 0.5, torch.rand(4), torch.rand(())),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_values_strides_and_dtypes_are_those_of_torch(name: str) -> None:
    args = SETTINGS[name]
    expected = getattr(torch.ops.aten, name)(*args)
    for _ in range(3):  # anew, and then as a call that is known
        found = getattr(ops, name)(*args)
        assert_close(found, expected, rtol=1e-5, atol=1e-6)
        assert found.stride() == expected.stride()


# -- finding operators
# -------------------------------------------------------------------


def test_every_name_leads_to_an_operator() -> None:
    for base in dir(ops):
        packet = getattr(ops, base)
        assert packet.__name__ == base
        for name in packet.overloads():
            assert getattr(packet, name).name.partition(".")[0] == base


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"'acosch'; did you mean 'acosh'\?"):
        _ = ops.acosch
    with pytest.raises(AttributeError, match=r"no overload 'Tensr'.* 'Tensor'\?"):
        _ = ops.add.Tensr
    assert not hasattr(ops, "__wrapped__")


def test_overloads_are_found_by_the_types_of_the_arguments() -> None:
    x, y = torch.rand(3), torch.rand(3)
    assert_close(ops.add(x, y, alpha=2), torch.add(x, y, alpha=2))
    assert_close(ops.add(x, 2), x + 2)
    assert_close(ops.add(x, other=2.5), x + 2.5)
    assert_close(ops.add(x, True), x + True)
    assert_close(ops.clamp(x, max=0.5), x.clamp(max=0.5))
    assert_close(ops.clamp(x, max=y, min=x), torch.clamp(x, max=y, min=x))
    assert_close(ops.pow(x, 3), x**3)
    assert_close(ops.pow(2, x), 2**x)
    assert_close(
        ops.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="floor")
    )


def test_keywords_may_come_in_any_order() -> None:
    a, b, c = torch.rand(3), torch.rand(3), torch.rand(3)
    expected = torch.addcmul(a, b, c, value=2)
    for _ in range(2):
        found = ops.addcmul(value=2, tensor2=c, tensor1=b, self=a)
        assert_close(found, expected)
        assert_close(ops.addcmul(a, tensor2=c, value=2, tensor1=b), expected)


def test_a_number_may_come_out_of_a_tensor_or_an_array() -> None:
    numpy = pytest.importorskip("numpy")
    x = torch.rand(3)
    assert_close(ops.clamp(x, torch.tensor(0.5).item()), x.clamp(0.5))
    assert_close(ops.add.Scalar(x, numpy.float32(0.5)), x + 0.5)
    assert_close(ops.add.Scalar(x, torch.tensor(0.5)), x + 0.5)


WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("acosh", (), {}, 'missing 1 required positional argument: "self"'),
    ("acosh", ("x",), {}, r"argument 'self' \(position 1\) must be Tensor, not str"),
    ("acosh", (torch.rand(1), 2), {}, "takes 1 positional argument but 2 were given"),
    ("acosh", (torch.rand(1),), {"out": None}, "unexpected keyword argument 'out'"),
    ("acosh", (torch.rand(1),), {"self": 1}, "multiple values for argument 'self'"),
    ("atan2", (torch.rand(1), 2.0), {}, r"'other' \(position 2\) must be Tensor"),
    (
        "polygamma",
        (1.5, torch.rand(1)),
        {},
        r"'n' \(position 1\) must be int, not float",
    ),
    ("add", (torch.rand(1), "y"), {}, r"invalid combination .*got \(Tensor, str\)"),
    ("cat", (torch.rand(1),), {}, "must be tuple of Tensors, not Tensor"),
]


LISTS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("cat", ([torch.rand(1), 2.0],), torch.cat),
    ("cat", ((None, torch.rand(1)),), torch.cat),
    ("index_put_", (torch.rand(1), [2.0], torch.rand(1)), torch.index_put_),
    ("amax", (torch.rand(1), [0, 1.0]), torch.amax),
]


@pytest.mark.parametrize(("name", "args", "theirs"), LISTS)
def test_the_item_of_a_list_that_does_not_fit_is_named_as_torch_does(
    name: str, args: tuple[Any, ...], theirs: Any
) -> None:
    with pytest.raises(TypeError) as expected:
        theirs(*args)
    with pytest.raises(TypeError, match=f"^{re.escape(str(expected.value))}$"):
        getattr(ops, name)(*args)


@pytest.mark.parametrize(("name", "args", "kwargs", "message"), WRONG)
def test_wrong_arguments_are_refused_as_torch_does(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        getattr(ops, name)(*args, **kwargs)


def test_operators_describe_themselves() -> None:
    assert repr(ops.acosh) == "<atentriton operator acosh: default>"
    assert "add.Tensor(Tensor self, Tensor other" in repr(ops.add.Tensor)
    assert "rsqrt" in (ops.acosh.__doc__ or "")
    assert "in place" in repr(ops.add_.Tensor)
    assert isinstance(ops.acosh.default, Fused)
    assert isinstance(ops.acosh_.default, InPlace)


def test_copies_and_pickles_are_the_operator_itself() -> None:
    for operator in (ops.acosh, ops.add.Tensor, ops.exp_.default, ops.mm.default):
        assert copy.deepcopy(operator) is operator
        assert pickle.loads(pickle.dumps(operator)) is operator


def test_views_are_torchs_own() -> None:
    assert isinstance(ops.alias.default, Torch)
    x = torch.rand(3)
    assert ops.alias(x)._base is x
    assert "torch's own" in (ops.alias.default.__doc__ or "")


def test_what_is_not_there_yet_says_why() -> None:
    operator = NotYet("cumsum", ops.cumsum.default.signature, "calls undreamt_of")
    assert "not there yet: calls undreamt_of" in (operator.__doc__ or "")
    with pytest.raises(NotImplementedError, match="cumsum is not there yet: calls"):
        operator(torch.rand(3), 0)


def test_a_memory_format_is_left_to_torch() -> None:
    x = torch.rand(2, 3, 4, 5)
    found = ops.clone(x, memory_format=torch.channels_last)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert_close(found, x)
    assert ops.clone(x).data_ptr() != x.data_ptr()


# -- dtypes
# ------------------------------------------------------------------------------

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
)


def same_dtype(ours: Tensor, theirs: Tensor) -> None:
    """complex32 is no dtype of ours: what would have it is computed in complex64."""
    expected = torch.complex64 if theirs.dtype == torch.complex32 else theirs.dtype
    assert ours.dtype == expected


@pytest.mark.parametrize("left", DTYPES)
@pytest.mark.parametrize("right", DTYPES)
def test_dtypes_promote_as_in_torch(left: torch.dtype, right: torch.dtype) -> None:
    a, b = (torch.ones(2, dtype=d, device="meta") for d in (left, right))
    for x, y in ((a, b), (a, b[0]), (b[0], a), (a[0], b[0])):
        same_dtype(ops.mul(x, y), torch.mul(x, y))
        same_dtype(ops.add(x, y), torch.add(x, y))
        same_dtype(ops.eq(x, y), torch.eq(x, y))


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_promote_as_in_torch(dtype: torch.dtype) -> None:
    x = torch.ones(2, dtype=dtype, device="meta")
    for number in (True, 2, 2.5, 1j):
        same_dtype(ops.mul(x, number), torch.mul(x, number))
        same_dtype(ops.mul(x[0], number), torch.mul(x[0], number))


def test_the_default_dtype_counts() -> None:
    x = torch.ones(2, dtype=torch.int64)
    assert ops.exp(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert ops.exp(x).dtype == torch.float64
        assert ops.mul(x, 0.5).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert ops.exp(x).dtype == torch.float32


# -- the gate
# ----------------------------------------------------------------------------


def test_conjugate_and_negative_views_are_read_for_what_they_say() -> None:
    z = torch.rand(3, dtype=torch.complex64)
    for _ in range(2):
        assert_close(ops.exp(z.conj()), z.conj().exp())
        assert_close(ops.mul(z, z.conj()), z * z.conj())
        imaginary = z.conj().imag
        assert imaginary.is_neg()
        assert_close(ops.exp(imaginary), imaginary.exp())


def test_what_has_no_memory_goes_through_the_dispatcher() -> None:
    meta = torch.rand(3, 4, device="meta")
    found = ops.exp(meta)
    assert found.is_meta and found.shape == (3, 4)
    zero = torch._efficientzerotensor(3)
    assert not gate.plain(zero)
    assert_close(ops.exp(zero), torch.ones(3))


def test_a_subclass_of_tensor_is_asked() -> None:
    seen: list[str] = []

    class Watching(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.rand(3).as_subclass(Watching)
    assert type(ops.exp(x)) is Watching
    assert any("atentriton.exp" in s for s in seen)


def test_modes_see_every_call() -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.rand(3)
    ops.exp(x)
    ops.exp(x)
    for mode in (Dispatch(), Function()):
        seen.clear()
        with mode:
            ops.exp(x)
        assert any("atentriton.exp" in s for s in seen)


def test_fake_tensors_keep_shape_strides_and_dtype() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.rand(4, 3).t())
        found = ops.add(x, torch.rand(3, 1))
        assert found.shape == (3, 4) and found.stride() == (1, 3)
        assert ops.gt(x, 0.5).dtype == torch.bool


def test_inference_mode_runs() -> None:
    with torch.inference_mode():
        x = torch.rand(3)
        for _ in range(2):
            found = ops.exp(x)
            assert found.is_inference()
        assert_close(found, x.exp())
        assert_close(ops.mul_(x, 2.0), x)


def test_known_calls_are_told_from_others() -> None:
    """A call that looks different must not take the way of a known one."""
    exp = Fused("exp")
    x = torch.rand(3, 4)
    exp(x)
    assert exp.sites.call((x,), {}) is not MISS
    for other in (
        torch.rand(4, 3),
        torch.rand(4, 3).t(),
        x.double(),
        x.clone().requires_grad_(),
        torch.nn.Parameter(x),
        x.to("meta"),
        torch._neg_view(x),
        torch._efficientzerotensor((3, 4)),
        x.to_sparse(),
        2.0,
    ):
        assert exp.sites.call((other,), {}) is MISS
    with torch.inference_mode():
        assert exp.sites.call((x,), {}) is MISS
    with torch.autograd.forward_ad.dual_level():
        assert exp.sites.call((x,), {}) is MISS
    torch.vmap(lambda v: (exp.sites.call((v[None],), {}) is MISS) * v)(x)


def test_ever_new_shapes_do_not_pile_up() -> None:
    exp = Fused("exp")
    for n in range(1, 40):
        exp(torch.rand(n))
    assert sum(map(len, exp.sites.recording.values())) <= sites.MOST


def test_a_known_call_records_gradients_where_they_are_recorded() -> None:
    exp = Fused("exp")
    x = torch.rand(3, requires_grad=True)
    for _ in range(2):
        with torch.no_grad():
            assert not exp(x).requires_grad
        assert exp(x).requires_grad
        assert not exp(x.detach()).requires_grad
