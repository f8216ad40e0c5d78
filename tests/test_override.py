"""Ordinary code on our operators: what is replaced, where, and for how long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import atentriton
from atentriton import callables, catalogue
from atentriton.callables import UnknownOperatorError
from atentriton.decisions import Decision, watched
from atentriton.programs import compiler

ROOT = str(Path(__file__).resolve().parent.parent)
F64 = torch.float64


@pytest.fixture
def x() -> Tensor:
    return torch.rand(6, dtype=F64) + 0.5


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    atentriton.disable()
    assert torch._C._len_torch_function_stack() == 0


def ran(call: Callable[[], Any]) -> list[tuple[str, str]]:
    """The operators that are called, and what runs for each."""
    with watched() as events:
        call()
    return [(e.operator, e.ran) for e in events if isinstance(e, Decision)]


def ours(call: Callable[[], Any]) -> list[str]:
    return [name for name, how in ran(call) if how != "torch"]


# -- what is replaced
# ------------------------------------------------------------------

SPELLINGS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "a function": (lambda x: torch.acosh(x + 1), "acosh"),
    "a method": (lambda x: (x + 1).acosh(), "acosh"),
    "a function of aten": (lambda x: torch.ops.aten.tanh(x), "tanh"),
    "an overload of aten": (lambda x: torch.ops.aten.mul.Tensor(x, x), "mul.Tensor"),
    "torch.special": (lambda x: torch.special.erfcx(x), "special_erfcx"),
    "another name": (lambda x: torch.arccosh(x + 1), "acosh"),
    "a special name": (lambda x: torch.special.expit(x), "special_expit"),
    "by keyword": (lambda x: torch.add(input=x, other=x, alpha=2), "add.Tensor"),
    "x * y": (lambda x: x * x, "mul.Tensor"),
    "2 * x": (lambda x: 2 * x, "mul.Scalar"),
    "2 - x": (lambda x: 2 - x, "rsub.Scalar"),
    "2 / x": (lambda x: 2 / x, "reciprocal"),
    "x ** 2": (lambda x: x**2, "pow.Tensor_Scalar"),
    "2 ** x": (lambda x: 2**x, "pow.Scalar"),
    "x // 2": (lambda x: x // 2, "floor_divide.Scalar"),
    "x % 2": (lambda x: x % 2, "remainder.Scalar"),
    "2 % x": (lambda x: 2 % x, "remainder.Scalar_Tensor"),
    "-x": (lambda x: -x, "neg"),
    "abs(x)": (lambda x: abs(x), "abs"),
    "x < y": (lambda x: x < x, "lt.Tensor"),
    "x == y": (lambda x: x == x, "eq.Tensor"),
    "~": (lambda x: ~(x > 1), "bitwise_not"),
    "&": (lambda x: (x > 1) & (x < 1), "bitwise_and.Tensor"),
    "1 ^ n": (lambda x: 1 ^ x.long(), "bitwise_xor.Scalar"),
    "F.gelu": (lambda x: F.gelu(x, approximate="tanh"), "gelu"),
    "F.silu": (lambda x: F.silu(x), "silu"),
    "F.softsign": (lambda x: F.softsign(x), "div.Tensor"),
    "F.logsigmoid": (lambda x: F.logsigmoid(x), "log_sigmoid"),
    "F.mse_loss": (lambda x: F.mse_loss(x, x * x), "mse_loss"),
    "a mean": (lambda x: F.huber_loss(x, x.detach() * 2), "huber_loss"),
    "a module": (lambda x: nn.Hardswish()(x), "hardswish"),
    "mm": (lambda x: x.view(2, 3).mm(x.view(3, 2)), "mm"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings(spelling: str, x: Tensor) -> None:
    function, name = SPELLINGS[spelling]
    expected = function(x)
    with atentriton.use():
        assert_close(function(x), expected)
        assert name in ours(lambda: function(x))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "+=": lambda x: x.__iadd__(1),
    "-=": lambda x: x.__isub__(x * 2),
    "*=": lambda x: x.__imul__(3),
    "/=": lambda x: x.__itruediv__(3),
    "//=": lambda x: x.__ifloordiv__(0.2),
    "//= y": lambda x: x.__ifloordiv__(x + 2),
    "%=": lambda x: x.__imod__(0.3),
    "**=": lambda x: x.__ipow__(2),
    "**= y": lambda x: x.__ipow__(x + 1),
    "pow_": lambda x: x.pow_(2),
    "tanh_": lambda x: x.tanh_(),
    "clamp_": lambda x: x.clamp_(min=0.7),
    "addcmul_": lambda x: x.addcmul_(x * 2, x * 3, value=2),
    "ldexp_": lambda x: x.ldexp_(torch.tensor(2)),
    "torch.sin_": lambda x: torch.sin_(x),
    "F.relu": lambda x: F.relu(x, inplace=True),
    "F.elu": lambda x: F.elu(x, inplace=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_in_place(change: str, x: Tensor) -> None:
    function = CHANGES[change]
    mine, theirs = x.clone(), function(x.clone())
    with atentriton.use():
        assert ours(lambda: function(mine.clone()))
        result = function(mine)
    assert result is mine
    assert_close(mine, theirs)


def test_bits_in_place() -> None:
    n = same = torch.tensor([1, 2, 3])
    with atentriton.use():
        n &= 3
        n |= 4
        n ^= 1
    assert n is same
    assert n.tolist() == [(v & 3 | 4) ^ 1 for v in (1, 2, 3)]


def test_every_derivative_is_ours(x: Tensor) -> None:
    w = x.requires_grad_()
    with atentriton.use():
        (first,) = torch.autograd.grad(w.tanh().sum(), w, create_graph=True)
        with watched() as events:
            (second,) = torch.autograd.grad(first.sum(), w)
    t = w.detach().tanh()
    assert_close(second, -2 * t * (1 - t * t))
    assert [getattr(e, "target", "") for e in events] == ["native"] * len(events)


def test_what_has_no_formula_is_torchs(x: Tensor) -> None:
    with atentriton.use():
        assert ran(lambda: x.sum()) == []
        assert ran(lambda: x.unflatten(0, (2, 3)).split(1)) == []
        assert ran(lambda: x.cumsum(0)) == []


def test_wrong_arguments_get_torchs_error(x: Tensor) -> None:
    with atentriton.use():
        for wrong in (
            lambda: torch.add(x, "one"),  # type: ignore[call-overload]
            lambda: x.tanh(1),  # type: ignore[call-arg]
            lambda: x.pow_(x.to(torch.complex128)),
            lambda: x.long().bitwise_and_(x),
        ):
            with pytest.raises((TypeError, RuntimeError)) as mine:
                wrong()
            with atentriton.use(include=()), pytest.raises(type(mine.value)):
                wrong()


# -- names
# -----------------------------------------------------------------------------


def test_include_and_exclude(x: Tensor) -> None:
    def both() -> Tensor:
        return torch.acosh(x + 1).sin()

    with atentriton.use(include=["acosh", "arcsin"]):
        assert ours(both) == ["acosh"]
        assert ours(lambda: (x / 9).asin_()) == ["asin_"]
    with atentriton.use(include="sin"):
        assert ours(both) == ["sin"]
    with atentriton.use(exclude=("add", "sin")):
        assert ours(both) == ["acosh"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acsh", "no operator called 'acsh'; did you mean 'acosh'?"),
        ("mul.Tensor", "operators are named without an overload"),
        ("diagonal", "diagonal is PyTorch's own"),
    ],
)
def test_a_wrong_name(name: str, message: str) -> None:
    for call in (atentriton.use, atentriton.enable):
        with pytest.raises(UnknownOperatorError, match=message.replace("?", r"\?")):
            call(include=[name])
        with pytest.raises(UnknownOperatorError):
            call(exclude=name)


# Operators of derivatives.yaml that the installed PyTorch has under no such name: it
# has given them up, or has them under another one.
RETIRED = frozenset(
    {"_det_lu_based_helper", "cholesky", "eig", "index_add_.alpha", "lstsq"}
)
# Arguments that are called otherwise in the file.
CALLED_OTHERWISE = frozenset({"_sparse_addmm", "linalg_inv_ex", "polygamma_"})


def test_every_name_is_an_overload_of_the_installed_torch() -> None:
    known = [name for names in catalogue.names().values() for name in names]
    missing = {n for n in known if not hasattr(catalogue.aten(n), "_schema")}
    assert missing <= RETIRED
    for name in set(known) - missing - CALLED_OTHERWISE:
        mine = [a.name for a in compiler().operator(name).signature.arguments]
        theirs = [a.name for a in catalogue.aten(name)._schema.arguments]
        assert mine == theirs[: len(mine)], name
    bases = {name.partition(".")[0].removesuffix("_") for name in missing}
    assert not any(map(callables.replaced, bases))


def test_in_place_operators_compute_what_takes_the_same_arguments() -> None:
    for base in sorted(callables.bases()):
        for name in catalogue.overloads_of(f"{base}_").values():
            functional = catalogue.functional_name(name)
            theirs = catalogue.aten(name) and catalogue.aten(functional or "")
            if name in compiler().entries or theirs is None:
                continue
            kinds = [
                [(a.name, str(a.type)) for a in catalogue.aten(n)._schema.arguments]
                for n in (name, functional)
            ]
            assert kinds[0] == kinds[1], name


def test_every_replaced_callable_is_known_by_one_name() -> None:
    table = callables.table()
    assert table[torch.acosh] == table[Tensor.acosh] == "acosh"
    assert table[torch._C._nn.gelu] == "gelu"
    assert table[Tensor.__ior__] == "bitwise_or_"
    assert table[torch.special.erfcx] == "special_erfcx"


@pytest.mark.parametrize(
    ("name", "call", "operator"),
    [
        ("arccosh", lambda x: torch.arccosh(x + 1), "acosh"),
        ("special_expit", torch.special.expit, "special_expit"),
        ("special_round", torch.special.round, "special_round"),
        ("clip", lambda x: torch.clip(x, 0), "clip"),
    ],
)
def test_another_name_chooses_what_it_calls(
    x: Tensor, name: str, call: Callable[[Tensor], Any], operator: str
) -> None:
    with atentriton.use(include=name):
        assert ours(lambda: call(x)) == [operator]


def test_plus_gives_the_tensor_itself(x: Tensor) -> None:
    with atentriton.use():
        assert (+x).data_ptr() == x.data_ptr()
    assert atentriton.ops.positive(x) is x


def test_operators_that_another_name_is_for_are_known() -> None:
    assert set(callables.ALIASES.values()) <= callables.bases()
    assert {n.removesuffix("_") for n in callables.DUNDERS.values()} <= (
        callables.bases()
    )


# -- scope
# -----------------------------------------------------------------------------


def test_nesting(x: Tensor) -> None:
    def both() -> Tensor:
        return torch.acosh(x + 1).sin()

    outer = atentriton.use(include="acosh")
    with outer:
        with atentriton.use(include="sin"):
            assert ours(both) == ["sin"]
            with outer, outer:
                assert ours(both) == ["acosh"]
            assert ours(both) == ["sin"]
            with atentriton.use(include=()):
                assert ours(both) == []
        assert ours(both) == ["acosh"]
    assert ours(both) == []


def test_enabled_twice_and_disabled(x: Tensor) -> None:
    atentriton.disable()
    atentriton.enable(include="sin")
    atentriton.enable(include="cos")
    assert ours(lambda: x.sin().cos()) == ["cos"]
    atentriton.disable()
    assert ours(lambda: x.sin().cos()) == []
    atentriton.disable()


def test_a_wrong_name_leaves_what_is_enabled(x: Tensor) -> None:
    atentriton.enable(include="sin")
    with pytest.raises(UnknownOperatorError):
        atentriton.enable(include="csh")
    assert ours(x.sin) == ["sin"]


def test_disabled_within_other_modes(x: Tensor) -> None:
    atentriton.enable()
    with torch.device("cpu"), atentriton.use(include="cos"):
        atentriton.disable()
        assert ours(lambda: x.sin().cos()) == ["cos"]
        assert torch._C._len_torch_function_stack() == 2
    assert ours(lambda: x.sin().cos()) == []


def test_left_with_another_mode_still_on(x: Tensor) -> None:
    mode, device = atentriton.use(), torch.device("cpu")
    with mode:
        device.__enter__()
    assert ours(x.sin) == []
    assert torch.rand(1).device == device
    device.__exit__(None, None, None)


def test_left_by_an_error(x: Tensor) -> None:
    with pytest.raises(ZeroDivisionError), atentriton.use():
        raise ZeroDivisionError
    assert ours(x.sin) == []


def test_the_scope_is_the_thread(x: Tensor) -> None:
    seen: dict[str, list[str]] = {}
    shared = atentriton.use(include=["sin"])

    def other() -> None:
        seen["before"] = ours(x.sin)
        with shared:
            seen["inside"] = ours(x.sin)
        seen["after"] = ours(x.sin)

    with shared:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert ours(x.sin) == ["sin"]
    assert seen == {"before": [], "inside": ["sin"], "after": []}


def test_threads_that_autograd_runs_in_replace_as_their_caller_does(x: Tensor) -> None:
    seen: list[list[str]] = []
    inner, outer = atentriton.use(include="sin"), atentriton.use(include="cos")

    def like_autograd() -> None:  # which hands PyTorch's stack of modes on
        with torch.overrides._enable_torch_function():
            for mode in (outer, inner):
                torch.overrides._push_mode(mode)
            seen.append(ours(lambda: x.sin().cos()))
            for mode in (inner, outer):
                assert torch.overrides._pop_mode() is mode

    thread = threading.Thread(target=like_autograd)
    thread.start()
    thread.join()
    assert seen == [["sin"]]


def test_disabled_by_the_environment() -> None:
    code = (
        "import torch, atentriton\n"
        "atentriton.enable()\n"
        "with atentriton.use():\n"
        "    print(torch._C._len_torch_function_stack(), torch.ones(1).tanh().item())\n"
        "atentriton.disable()\n"
        "print(atentriton.explain(torch.tanh, torch.ones(1)).events)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"ATENTRITON_DISABLE": "1", "PYTHONPATH": ROOT, "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.stdout.split() == ["0", "0.7615941762924194", "()"], result.stderr


def test_a_process_that_uses_operators_in_place_ends_well() -> None:
    code = (
        "import torch\n"
        "from atentriton.registry import register\n"
        "register('lt_.Scalar'); hasattr(torch.ops.atentriton, 'lt_in_place')\n"
        "register('lt.Scalar'); register('lt.Tensor'); register('lt_.Tensor')\n"
    )
    environment = os.environ | {"PYTHONPATH": ROOT}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
