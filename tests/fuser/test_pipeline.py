"""From an operator's name to programs: what they are called, and hold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fuser import ir
from fuser.errors import DerivativeNotImplemented, FormulaError
from fuser.ir import Static
from fuser.pipeline import Compiler, default_compiler
from fuser.program import Program
from fuser.specs import Spec, TensorSpec
from fuser.verify import verify
from tests.fuser.programs import (
    C64,
    F32,
    F64,
    REAL,
    B,
    D,
    H,
    I,
    X,
    Z,
    close,
    draw,
    eager,
    pick,
    run,
    vjp,
)


@pytest.fixture
def compiler() -> Compiler:
    return default_compiler()


# -- names -----------------------------------------------------------------------------


def test_names_and_lineages(compiler: Compiler) -> None:
    program = compiler.program("mul.Tensor", [X, D])
    assert program.lineage == "mul.Tensor(float32, float64)"
    assert [o.name for o in program.outputs] == ["result"]
    first = vjp(compiler, program).program
    assert first.lineage == "mul.Tensor(float32, float64).vjp(11, 1)"
    assert [str(n.attrs) for n in first.inputs] == ["grad", "self", "other"]
    assert [o.name for o in first.outputs] == ["grad_self", "grad_other"]
    assert [o.dtype for o in first.outputs] == [F32, F64]
    second = vjp(compiler, first).program
    assert second.lineage.endswith(".vjp(11, 1).vjp(111, 11)")
    assert [o.name for o in second.outputs] == [
        "grad_grad",
        "grad_self",
        "grad_other",
    ]
    assert {str(n.attrs) for n in second.inputs} <= {
        "grad_grad_self",
        "grad_grad_other",
        "grad",
        "self",
        "other",
    }
    pushed = compiler.jvp(program, [True, False]).program
    assert pushed.lineage.endswith(".jvp(10)")
    assert [str(n.attrs) for n in pushed.inputs] == ["self_t", "other"]
    assert [o.name for o in pushed.outputs] == ["result_t"]
    assert [program.order, first.order, second.order] == [0, 1, 2]
    zero_dim = compiler.program("add.Tensor", [I, TensorSpec(F32, True), REAL], F64)
    assert zero_dim.lineage == (
        "add.Tensor(int64, float32 0d, <float>) default float64"
    )


def test_names_do_not_clash(compiler: Compiler) -> None:
    program = compiler.program("polar", [X, X])
    assert [str(n.attrs) for n in program.inputs] == ["abs", "angle"]
    derived = program
    for _ in range(4):
        derived = vjp(compiler, derived).program
        names = [str(n.attrs) for n in (*derived.inputs, *derived.scalars)]
        assert len(set(names)) == len(names)


def test_unknown_names(compiler: Compiler) -> None:
    with pytest.raises(KeyError, match='did you mean "digamma"'):
        compiler.program("digama", [X])
    with pytest.raises(FormulaError, match="has 2 arguments, not 1"):
        compiler.program("mul.Tensor", [X])
    with pytest.raises(FormulaError, match="no pointwise value"):
        compiler.program("cholesky", [X, Static(False)])


def test_equal_arguments_give_equal_programs(compiler: Compiler) -> None:
    one, two = (compiler.program("logaddexp", [X, X]) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert vjp(compiler, one).program == vjp(compiler, two).program


def test_every_signature_is_that_of_its_value(compiler: Compiler) -> None:
    """Arguments pass from entry to value by name, and by position in a call."""
    for name in compiler.opaque:
        operator = compiler.operator(name)
        assert operator.entry is not None
        assert operator.function is not None
        entry, value = operator.entry.signature, operator.function.signature
        assert [(a.name, a.type) for a in entry.arguments] == [
            (a.name, a.type) for a in value.arguments
        ], name
        assert len(entry.returns) == len(value.returns), name


# -- what is absent --------------------------------------------------------------------


def test_absent_tangents_leave_no_zeros_behind(compiler: Compiler) -> None:
    cases = {
        ("mul.Tensor", (X, X), (True, False)): ["mul"],
        ("add.Tensor", (X, X, Static(1)), (True, False)): [],
        ("sub.Tensor", (X, X, Static(1)), (False, True)): ["neg"],
        ("div.Tensor", (X, X), (True, False)): ["div"],
        ("sin", (X,), (True,)): ["cos", "mul"],
        ("addcmul", (X, X, X, Static(1)), (False, True, False)): ["mul"],
        ("complex", (X, X), (True, False)): ["complex"],
    }
    for (name, specs, defined), ops in cases.items():
        pushed = compiler.jvp(compiler.program(name, specs), defined).program
        made = sorted(n.op for n in pushed.nodes if n.args)
        assert made == ops, name


def test_a_derivative_that_is_zero_is_a_constant(compiler: Compiler) -> None:
    program = compiler.program("mul.Tensor", [X, I])
    for derived in (
        compiler.vjp(program, [True, False], [False]),
        compiler.vjp(program, [False, True], [True]),
        compiler.jvp(program, [False, False]),
        compiler.jvp(program, [False, True]),
    ):
        (output,) = derived.program.outputs
        assert ir.is_const(output.node, 0)
        assert derived.sources == ()


def test_absent_cotangents_of_several_outputs(compiler: Compiler) -> None:
    program = compiler.program("frexp.Tensor", [X])
    assert [(o.name, o.dtype.name) for o in program.outputs] == [
        ("mantissa", "float32"),
        ("exponent", "int32"),
    ]
    derived = vjp(compiler, program)
    assert derived.sources == (("cotangent", 0), ("output", 1))
    x = torch.tensor([3.0, -0.7, 100.0])
    value = run(program, [x])
    known = {"cotangent": [torch.ones(3)], "output": value, "input": [x]}
    (found,) = run(derived.program, pick(derived, **known))
    assert found.tolist() == (2.0 ** -value[1]).tolist()
    nothing = compiler.vjp(program, [True], [False, False]).program
    assert ir.is_const(nothing.outputs[0].node, 0)
    pushed = compiler.jvp(program, [True]).program
    assert [o.dtype.name for o in pushed.outputs] == ["float32", "int32"]
    assert ir.is_const(pushed.outputs[1].node, 0)


def test_outputs_without_derivative(compiler: Compiler) -> None:
    """By `output_differentiability`, although their dtype could carry one."""
    program = compiler.program("floor_divide", [X, X])
    grads = vjp(compiler, program).program
    assert all(ir.is_const(o.node, 0) for o in grads.outputs)
    pushed = compiler.jvp(program, [True, True]).program
    assert ir.is_const(pushed.outputs[0].node, 0)


def test_a_gradient_summed_over_everything_is_left_to_be_summed(
    compiler: Compiler,
) -> None:
    """`value` has no dimensions: whoever runs the program sums what was broadcast."""
    flat = TensorSpec(F32, zero_dim=True)
    program = compiler.program("masked_fill_.Tensor", [X, B, flat])
    derived = vjp(compiler, program, [False, False, True])
    mask = torch.tensor([True, False, True])
    known = {"cotangent": [torch.tensor([1.0, 2.0, 3.0])], "input": [mask] * 2}
    (found,) = run(derived.program, pick(derived, **known))
    assert found.tolist() == [1.0, 0.0, 3.0]


# -- what is not implemented -----------------------------------------------------------


@pytest.mark.parametrize("name", ["special_zeta", "acosh_", "asinh_", "atanh_"])
def test_what_is_not_implemented_raises_if_it_is_wanted(
    compiler: Compiler, name: str
) -> None:
    word = {"special_zeta": "zeta"}.get(name, f"inplace version of {name[:-1]}")
    specs = [X] * (2 if name == "special_zeta" else 1)
    program = compiler.program(name, specs)
    others = [False] * (len(specs) - 1)
    message = f"^the derivative for '{word}' is not implemented.$"
    with pytest.raises(DerivativeNotImplemented, match=message) as caught:
        compiler.vjp(program, [True, *others], [True])
    assert (caught.value.operator, caught.value.argument) == (name, "self")
    with pytest.raises(DerivativeNotImplemented, match=message):
        compiler.jvp(program, [True, *others])
    compiler.vjp(program, [False] * len(specs), [True])
    compiler.vjp(program, [True, *others], [False])
    compiler.jvp(program, [False] * len(specs))
    if name == "special_zeta":
        compiler.vjp(program, [False, True], [True])
        compiler.jvp(program, [False, True])


# -- in place --------------------------------------------------------------------------


def test_in_place_formulas_see_the_old_value(compiler: Compiler) -> None:
    program = compiler.program("polygamma_", [X, Static(1)])
    x, t = torch.rand(5) + 1, torch.randn(5)
    (value,) = run(program, [x])
    close(value, torch.polygamma(1, x))
    pushed = compiler.jvp(program, [True])
    known = {"tangent": [t], "input": [x], "output": [value]}
    (found,) = run(pushed.program, pick(pushed, **known))
    torch.testing.assert_close(found, t * torch.polygamma(2, x))
    pulled = vjp(compiler, program)
    known["cotangent"] = [t]
    (found,) = run(pulled.program, pick(pulled, **known))
    torch.testing.assert_close(found, t * torch.polygamma(2, x))


@pytest.mark.parametrize(
    ("name", "specs", "numbers"),
    [
        ("masked_fill_.Scalar", (X, B, REAL), [2.5]),
        ("fill_.Scalar", (X, REAL), [2.5]),
        ("eq_.Scalar", (X, REAL), [2.5]),
        ("conj_physical_", (Z,), []),
    ],
)
def test_in_place_entries_derive(
    compiler: Compiler, name: str, specs: Sequence[Spec], numbers: Sequence[float]
) -> None:
    program = compiler.program(name, specs)
    base = program.name.partition(".")[0]
    tensors = [draw(s, name) for s in specs if isinstance(s, TensorSpec)]

    def function(*args: Tensor) -> Tensor:
        first, *others = args
        return getattr(first.clone(), base)(*others, *numbers)

    (value,) = run(program, tensors, numbers)
    close(value.to(tensors[0].dtype), function(*tensors).resolve_conj())
    weight = torch.randn(6).to(tensors[0].dtype)
    (expected,) = eager(function, tensors, weight)
    derived = vjp(compiler, program, [n.dtype in (F32, C64) for n in program.inputs])
    known = {"cotangent": [weight], "input": tensors, "output": [value]}
    found = run(derived.program, pick(derived, **known))
    close(found[0], expected)


# -- kernels ---------------------------------------------------------------------------


def test_kernels_are_ready_to_be_scheduled(compiler: Compiler) -> None:
    program = vjp(compiler, compiler.program("digamma", [H])).program
    (piece,) = compiler.kernels(program)
    verify(piece.roots)
    assert all(n.op != "call" for n in piece.nodes)
    assert piece.inputs == program.inputs
    pieces = compiler.kernels(program, budget=20)
    assert len(pieces) > 1
    for part in pieces:
        verify(part.roots)


def test_complex_programs_have_no_complex_arithmetic_left(compiler: Compiler) -> None:
    program = vjp(compiler, compiler.program("asin", [Z])).program
    for piece in compiler.kernels(program):
        verify(piece.roots)
        inside = [n for n in piece.nodes if n.args and n.op != "complex"]
        assert all(not n.dtype.is_complex for n in inside)


def test_derived_programs_can_be_derived_without_end(compiler: Compiler) -> None:
    """x**5 by products of known powers: its sixth derivative is nothing."""
    program = compiler.program("pow.Tensor_Scalar", [X, Static(5)])
    x = torch.tensor([1.5, -2.0])
    coefficient, program_in = 1.0, [x]
    for order in range(1, 7):
        derived = compiler.jvp(program, [n == "self" for n in names_of(program)])
        coefficient *= 5 - order + 1
        program = derived.program
        values = {"self": x}
        program_in = [values.get(n, torch.ones(2)) for n in names_of(program)]
        (found,) = run(program, program_in)
        close(found, coefficient * x ** (5 - order))


def names_of(program: Program) -> list[str]:
    return [str(n.attrs) for n in program.inputs]


def test_formulas_are_told(compiler: Compiler) -> None:
    program = compiler.program("logaddexp2", [X, X])
    assert program.formulas[0].startswith("logaddexp2(Tensor self, Tensor other)")
    assert any(line.startswith("result: ") for line in program.formulas[1:])
    derived = vjp(compiler, program).program
    assert any(line.startswith("self: grad ") for line in derived.formulas)
