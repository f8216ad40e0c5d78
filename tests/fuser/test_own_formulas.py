"""Formulas of operators that nobody wrote before go through the same stages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from atentriton.reference import evaluate
from fuser import dtypes
from fuser.errors import FormulaError, FormulaFileError
from fuser.pipeline import Compiler, compiler
from fuser.program import Program
from fuser.resources import resource
from fuser.specs import ScalarSpec, TensorSpec
from fuser.verify import verify

F32, F64 = dtypes.float32, dtypes.float64
REAL = ScalarSpec("float")

DERIVATIVES = """
# An activation, with the derivative by its result and a helper of its own.
- name: wobble(Tensor self, Scalar rate=1) -> Tensor
  self: grad * wobble_slope(self, rate)
  result: auto_element_wise

# Two arguments, one formula for both, no forward formula.
- name: blend(Tensor self, Tensor other) -> Tensor
  self, other: blend_backward(grad, self, other, grad_input_mask)

# Two results; the second one by `grads`.
- name: turn(Tensor x, Tensor y) -> (Tensor u, Tensor v)
  x: grads[0] * y.cos() + grads[1] * y.sin()
  y: grads[1] * u - grads[0] * v
  u: x_t * y_p.cos() - y_t * v
  v: x_t * y_p.sin() + y_t * u

- name: secret(Tensor self, Tensor key) -> Tensor
  self: grad * key
  key: 'not_implemented("secret: key")'

- name: mystery(Tensor self) -> Tensor
  self: grad * self.cholesky_update(self)
"""

FUNCTIONS = """
- name: wobble(Tensor self, Scalar rate=1) -> Tensor
  promotes: int_to_float
  result: self * (rate * self).sigmoid() + (rate * self).sin()

- name: wobble_slope(Tensor self, Scalar rate) -> Tensor
  result: (rate * self).sigmoid() * (1 + rate * self * (1 - (rate * self).sigmoid())) + rate * (rate * self).cos()

- name: blend(Tensor self, Tensor other) -> Tensor
  promotes: default
  result: at::where(self > other, self * other, (self + other).tanh())

- name: blend_backward(Tensor grad, Tensor self, Tensor other, bool[2] mask) -> (Tensor, Tensor)
  result0: "mask[0] ? grad * at::where(self > other, other, blend_slope(self + other)) : Tensor()"
  result1: "mask[1] ? grad * at::where(self > other, self, blend_slope(self + other)) : Tensor()"

- name: blend_slope(Tensor sum) -> Tensor
  result: 1 - sum.tanh() * sum.tanh()

- name: turn(Tensor x, Tensor y) -> (Tensor u, Tensor v)
  promotes: default
  u: x * y.cos()
  v: x * y.sin()

- name: secret(Tensor self, Tensor key) -> Tensor
  promotes: default
  result: self * key

- name: mystery(Tensor self) -> Tensor
  promotes: default
  result: self.exp()

# Without an entry: derived through its formula.
- name: softplus_like(Tensor self) -> Tensor
  promotes: int_to_float
  result: self.exp().log1p()
"""  # noqa: E501


@pytest.fixture(scope="module")
def own() -> Compiler:
    packaged = resource("derivatives.yaml").read_text(encoding="utf-8")
    return compiler(packaged + DERIVATIVES, FUNCTIONS)


def wobble(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.5 * x) + torch.sin(1.5 * x)


def blend(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x > y, x * y, torch.tanh(x + y))


def turn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * torch.cos(y), x * torch.sin(y)


CASES = {
    "wobble": (wobble, 1),
    "blend": (blend, 2),
    "turn": (turn, 2),
    "softplus_like": (torch.nn.functional.softplus, 1),
}


def run(own: Compiler, program: Program, names: dict[str, Tensor]) -> list[Tensor]:
    verify(program.roots)
    tensors = [names[str(n.attrs)] for n in program.inputs]
    return evaluate(own.expand(program), tensors, [1.5] * len(program.scalars))


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_what_they_should_be(
    own: Compiler, name: str
) -> None:
    function, count = CASES[name]
    specs: list[TensorSpec | ScalarSpec] = [TensorSpec(F64)] * count
    program = own.program(name, [*specs, REAL] if name == "wobble" else specs)
    inputs = [torch.randn(9, dtype=torch.float64) for _ in range(count)]
    names = dict(zip((str(n.attrs) for n in program.inputs), inputs, strict=True))
    values = run(own, program, names)
    expected = listed(function(*inputs))
    torch.testing.assert_close(values, expected)
    # Derived again, the results are inputs of their own; so the derivatives are built
    # on the operator's value by hand, and checked as a whole below.
    outputs = [o.name for o in program.outputs]
    names |= dict(zip(outputs, values, strict=True))
    weights = [torch.randn(9, dtype=torch.float64) for _ in outputs]
    marks = ["grad"] if len(outputs) == 1 else [f"grad_{o}" for o in outputs]
    names |= dict(zip(marks, weights, strict=True))
    derived = own.vjp(program, [True] * count, [True] * len(outputs))
    leaves = [i.clone().requires_grad_() for i in inputs]
    grads = torch.autograd.grad(
        listed(function(*leaves)), leaves, weights, create_graph=True
    )
    torch.testing.assert_close(run(own, derived.program, names), list(grads))
    tangents = [torch.randn(9, dtype=torch.float64) for _ in inputs]
    names |= {f"{n.attrs}_t": t for n, t in zip(program.inputs, tangents, strict=True)}
    pushed = own.jvp(program, [True] * count).program
    _, known = torch.func.jvp(function, tuple(inputs), tuple(tangents))
    torch.testing.assert_close(run(own, pushed, names), listed(known))


def listed(value: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


def test_second_derivatives(own: Compiler) -> None:
    program = own.program("wobble", [TensorSpec(F64), REAL])
    first = own.vjp(program, [True], [True]).program
    second = own.vjp(first, [True, True], [True]).program
    assert [o.name for o in second.outputs] == ["grad_grad", "grad_self"]
    x, g, h = (torch.randn(9, dtype=torch.float64) for _ in range(3))
    leaves = [g.clone().requires_grad_(), x.clone().requires_grad_()]
    (slope,) = torch.autograd.grad(
        wobble(leaves[1]), leaves[1], leaves[0], create_graph=True
    )
    expected = torch.autograd.grad(slope, leaves, h)
    found = run(own, second, {"self": x, "grad": g, "grad_grad_self": h})
    torch.testing.assert_close(found, list(expected))
    forward = own.jvp(first, [False, True]).program
    found = run(own, forward, {"self": x, "grad": g, "self_t": h})
    torch.testing.assert_close(found, [expected[1]])


def test_one_of_two(own: Compiler) -> None:
    program = own.program("blend", [TensorSpec(F32)] * 2)
    derived = own.vjp(program, [False, True], [True])
    assert [o.name for o in derived.program.outputs] == ["grad_other"]
    turned = own.program("turn", [TensorSpec(F32)] * 2)
    only_u = own.vjp(turned, [True, True], [True, False])
    assert ("cotangent", 1) not in only_u.sources
    assert ("cotangent", 0) in only_u.sources


def test_kernels(own: Compiler) -> None:
    program = own.program("wobble", [TensorSpec(dtypes.float16), REAL])
    for each in (program, own.vjp(program, [True], [True]).program):
        (piece,) = own.kernels(each)
        verify(piece.roots)


def test_a_packaged_formula_may_be_replaced() -> None:
    other = compiler(
        None,
        """
- name: relu(Tensor self) -> Tensor
  promotes: default
  result: at::where(self > 0, self, 0.25 * self)

- name: twice_relu(Tensor self) -> Tensor
  promotes: default
  result: 2 * self.relu()
""",
    )
    for name, factor in (("relu", 1), ("twice_relu", 2)):
        program = other.program(name, [TensorSpec(F32)])
        (found,) = run(other, program, {"self": torch.tensor([-4.0, 3.0])})
        assert found.tolist() == [-1.0 * factor, 3.0 * factor]


def test_what_the_file_does_not_give(own: Compiler) -> None:
    program = own.program("secret", [TensorSpec(F32)] * 2)
    own.vjp(program, [True, False], [True])
    with pytest.raises(
        NotImplementedError, match="derivative for 'secret: key' is not"
    ):
        own.vjp(program, [True, True], [True])


def test_what_has_no_pointwise_meaning_is_told_with_its_place(own: Compiler) -> None:
    program = own.program("mystery", [TensorSpec(F32)])
    text = resource("derivatives.yaml").read_text(encoding="utf-8") + DERIVATIVES
    line = 1 + text[: text.index("self.cholesky_update")].count("\n")
    with pytest.raises(FormulaError) as caught:
        own.vjp(program, [True], [True])
    assert str(caught.value).startswith(f"<text>:{line}:21: error: cholesky_update has")
    assert "~~~" in str(caught.value)


@pytest.mark.parametrize(
    ("formula", "place", "message"),
    [
        ("grad * (self + 1", "(self", "is never closed"),
        ("grad * self..exp()", ".exp", ""),
        ("grad * self * / 2", "/ 2", ""),
        ("sellf.exp() * grad", "sellf", 'did you mean "self"'),
    ],
)
def test_a_typo_is_told_with_file_line_and_column(
    tmp_path: Path, formula: str, place: str, message: str
) -> None:
    path = tmp_path / "mine.yaml"
    line = f"  self: {formula}"
    path.write_text(f"- name: op(Tensor self) -> Tensor\n{line}\n")
    with pytest.raises(FormulaFileError) as caught:
        compiler(path)
    column = line.index(place) + 1
    assert f"{path}:2:{column}: error: " in str(caught.value)
    assert message in str(caught.value)
