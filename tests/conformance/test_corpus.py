"""Inputs that operators have been wrong on, restated from public reports.

data/corpus.yaml has an expression, its arguments and the right number for each. The
expression is written for torch; here everything in it that atentriton has an operator
for, the signs between tensors included, is taken from atentriton.ops. The right value
counts, not PyTorch's; where it is knowingly missed, the case says so and has to miss.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor
from torch.autograd import forward_ad

from atentriton import ops

Case = dict[str, Any]
CASES: list[Case] = yaml.safe_load(
    (Path(__file__).parents[1] / "data" / "corpus.yaml").read_text()
)
TOLERANCE = {
    torch.float64: 1e-13,
    torch.complex128: 1e-13,
    torch.float32: 1e-6,
    torch.complex64: 1e-6,
    torch.float16: 4e-3,
    torch.bfloat16: 1.6e-2,
}

# Torch's own functions that the expressions may use: they make tensors, not values.
MAKERS = {"tensor", "zeros_like", "float16", "float32"}
ELSEWHERE = {"gammainc": "igamma"}
SIGNS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.Eq: "eq",
    ast.Lt: "lt",
    ast.Gt: "gt",
}


class _Namespace:
    """torch, torch.special or torch.nn.functional, with the operators of atentriton."""

    def __init__(self, real: Any, prefix: str = "") -> None:
        self._real, self._prefix = real, prefix

    def __getattr__(self, name: str) -> Any:
        if name in MAKERS:
            return getattr(self._real, name)
        if name == "special":
            return _Namespace(torch.special, "special_")
        if name == "huber_loss":
            return _huber_loss
        return getattr(ops, ELSEWHERE.get(name, self._prefix + name))


def _huber_loss(x: Tensor, target: Tensor, reduction: str, delta: float) -> Tensor:
    return ops.huber_loss(x, target, ["none", "mean", "sum"].index(reduction), delta)


def _apply(sign: str, left: Any, right: Any) -> Any:
    """`left sign right`, as torch.Tensor has it, for at least one tensor."""
    if isinstance(left, Tensor) or sign == "pow":
        return getattr(ops, sign)(left, right)
    if sign == "sub":
        return ops.rsub(right, left)
    if sign == "div":
        return ops.mul(ops.reciprocal(right), left)
    return getattr(ops, sign)(right, left)


class _Signs(ast.NodeTransformer):
    """Calls of operators in place of the signs between them."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if isinstance(node.right, ast.Constant) and isinstance(node.left, ast.Constant):
            return node  # a complex number
        self.generic_visit(node)
        return self._call(node.op, node.left, node.right)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        return self._call(node.ops[0], node.left, node.comparators[0])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.operand, ast.Constant):
            return node
        self.generic_visit(node)
        return ast.Call(ast.Name("neg", ast.Load()), [node.operand], [])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=receiver, attr="to"):
                return ast.Call(ast.Name("to", ast.Load()), [receiver, *node.args], [])
        return node

    @staticmethod
    def _call(sign: Any, left: ast.expr, right: ast.expr) -> ast.Call:
        name = ast.Constant(SIGNS[type(sign)])
        return ast.Call(ast.Name("apply", ast.Load()), [name, left, right], [])


def _function(case: Case) -> Callable[[dict[str, Tensor]], Tensor]:
    tree = ast.fix_missing_locations(_Signs().visit(ast.parse(case["op"], mode="eval")))
    code = compile(tree, case["id"], "eval")
    names = {
        "torch": _Namespace(torch),
        "F": _Namespace(F),
        "apply": _apply,
        "neg": ops.neg,
        "to": lambda x, dtype: ops._to_copy(x, dtype=dtype),
    }
    return lambda arguments: eval(code, {**names, **arguments})


def _tensor(given: dict[str, Any]) -> Tensor:
    dtype = getattr(torch, given["dtype"])
    if dtype.is_complex:
        return torch.tensor([complex(*pair) for pair in given["values"]], dtype=dtype)
    return torch.tensor(given["values"], dtype=dtype)


def _arguments(case: Case) -> dict[str, Tensor]:
    arguments: dict[str, Tensor] = {}
    for given in case["inputs"]:
        tensor = _tensor(given)
        wanted = given.get("requires_grad", True) and tensor.dtype != torch.bool
        arguments[given["name"]] = tensor.requires_grad_(wanted)
    return arguments


def _gradient(value: Tensor, argument: Tensor, again: bool = False) -> Tensor:
    return torch.autograd.grad(value.sum(), argument, create_graph=again)[0]


def _checked(case: Case) -> Tensor:
    """What the case is about: the value, or one of its derivatives."""
    function, arguments = _function(case), _arguments(case)
    kind, *names = re.split(r"[.:=]", case["check"])
    if kind == "jvp":
        name, factor = names
        primal = arguments[name].detach()
        tangent = torch.full_like(primal, 1.0 if factor == "ones" else float(factor))
        with forward_ad.dual_level():
            moved = forward_ad.make_dual(primal, tangent)
            value = function({**arguments, name: moved})
            found = forward_ad.unpack_dual(value).tangent
        assert found is not None
        return found
    value = function(arguments)
    if kind == "gradsum":
        return sum(torch.autograd.grad(value.sum(), list(arguments.values())))
    for i, name in enumerate(names):
        value = _gradient(value, arguments[name], again=i + 1 < len(names))
    return value


def _expected(case: Case, found: Tensor) -> Tensor:
    if case["expect"] == "partition":
        return torch.ones_like(found)
    if case["check"].startswith("cgrad"):
        pairs = [complex(*pair) for pair in case["expect"]]
        return torch.tensor(pairs, dtype=found.dtype)
    return torch.tensor(case["expect"], dtype=torch.float64).to(found.dtype)


def _assert_right(case: Case) -> None:
    found = _checked(case).detach()
    expected = _expected(case, found)
    tolerance = TOLERANCE.get(found.dtype, 0.0)
    # No absolute tolerance: a zero, an infinity and NaN are exact, and so is the
    # sign of a zero where the case is about it.
    torch.testing.assert_close(
        found, expected, rtol=tolerance, atol=0.0, equal_nan=True
    )
    if "dtype" in case:
        assert found.dtype == getattr(torch, case["dtype"])
    if case["check"] == "value" and not found.is_complex():
        zeros = expected == 0
        assert torch.equal(found[zeros].signbit(), expected[zeros].signbit())


def _parameter(case: Case) -> Any:
    lost = case.get("known_loss")
    marks = [pytest.mark.xfail(reason=lost, strict=True)] if lost else []
    return pytest.param(case, id=case["id"], marks=marks)


@pytest.mark.parametrize("case", [_parameter(case) for case in CASES])
def test_the_value_is_the_right_one(case: Case) -> None:
    if "error" in case:
        with pytest.raises(NotImplementedError, match=case["error"]):
            _checked(case)
        return
    _assert_right(case)
