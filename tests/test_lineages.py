"""The names of programs: spelled, read back, and derived anew from."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from atentriton import lineages, programs
from atentriton.layouts import Like
from fuser import dtypes
from fuser.ir import Static
from fuser.signatures import parse_signature
from fuser.specs import ScalarSpec, Spec, TensorSpec

F32 = TensorSpec(dtypes.float32)
CASES: dict[str, tuple[str, list[Spec]]] = {
    "acosh(float32)": ("acosh(Tensor self) -> Tensor", [F32]),
    "add.Tensor(float32, float64 0d, alpha=float)": (
        "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        [F32, TensorSpec(dtypes.float64, True), ScalarSpec("float")],
    ),
    'f(bool, s="a \\"b\\", c)", n=(1, 2), d=dtype.bool, o=None, t=True, k=bool)': (
        "f(Tensor x, str s, int[] n, ScalarType d, Scalar? o, bool t, Scalar k)"
        " -> Tensor",
        [
            TensorSpec(dtypes.bool_),
            Static('a "b", c)'),
            Static((1, 2)),
            Static(dtypes.bool_),
            Static(None),
            Static(True),
            ScalarSpec("bool"),
        ],
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_what_is_spelled_reads_back(text: str) -> None:
    signature, specs = CASES[text]
    parsed = parse_signature(signature)
    assert lineages.spell(parsed, specs) == text
    base, steps = lineages.parse(text)
    assert (base.operator, list(base.specs), steps) == (parsed.name, specs, ())
    assert base.default == dtypes.float32


def test_the_default_dtype_and_the_steps_read_back() -> None:
    text = "exp(int64)@float64.vjp(self).jvp(grad, result).vjp(a | b, c)"
    base, steps = lineages.parse(text)
    assert base.default == dtypes.float64
    assert [s.mode for s in steps] == ["vjp", "jvp", "vjp"]
    assert steps[1].inputs == ("grad", "result") and steps[1].outputs is None
    assert steps[2].outputs == ("b", "c")
    assert "".join(map(str, steps)) == text.partition("@float64")[2]


@pytest.mark.parametrize(
    "text", ["", "acosh", "acosh(float32", "acosh(float32).vjp", "acosh(float32) x"]
)
def test_what_is_no_lineage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not the lineage of a program"):
        lineages.parse(text)


def test_a_lineage_is_derived_anew_where_it_is_not_known() -> None:
    first = programs.routine("mul.Tensor", [F32, F32])
    backward = first.vjp((True, False), (True,)).routine
    assert backward is not None
    second = backward.vjp((True, True), (True,)).routine
    forward = first.jvp((True, True)).routine
    for known in (second, forward):
        assert known is not None
        programs._routines.pop(known.lineage)
        again = programs.of_lineage(known.lineage)
        assert again is not known or again.lineage == known.lineage
        assert again.program.outputs == known.program.outputs
        assert again.program.inputs == known.program.inputs


def test_a_lineage_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="no tensor is called 'other'"):
        programs.of_lineage("exp(float32).vjp(other)")
    with pytest.raises(ValueError, match="nothing is computed"):
        programs.of_lineage("ceil(float32).vjp(self)")
    with pytest.raises(KeyError, match="exq"):
        programs.of_lineage("exq(float32)")


def test_what_is_put_together_is_named_by_what_it_is() -> None:
    first = replace(programs.routine("exp", [F32]).program, lineage="")
    found = programs.adopt(first)
    assert found.lineage.startswith("exp#") and found.recorded
    assert programs.adopt(replace(first)) is found
    assert programs.of_lineage(found.lineage) is found
    laid = programs.adopt(first, Like(()))
    other = programs.adopt(replace(first, name="other"))
    assert len({found.lineage, laid.lineage, other.lineage}) == 3
    joint = laid.joint((True,)).routine
    assert joint is not None
    assert joint.lineage == f"{laid.lineage}.joint(self)"
    assert programs.of_lineage(joint.lineage) is joint
    x = torch.rand(3, 2).t()
    for routine, strides in ((found, (1, 2)), (laid, (3, 1)), (joint, (3, 1))):
        tensors = [x] * len(routine.input_dtypes)
        assert routine.strides((2, 3), tensors) == strides


def test_only_what_has_to_be_computed_is() -> None:
    """Gradients that are a cotangent, or zero, are no outputs of the program."""
    add = programs.routine("add.Tensor", [F32, F32, Static(1)])
    derivation = add.vjp((True, True), (True,))
    assert derivation.routine is None
    assert derivation.results == (("cotangent", 0), ("cotangent", 0))
    ceil = programs.routine("ceil", [F32])
    assert ceil.vjp((True,), (True,)).results == (None,)
    half = TensorSpec(dtypes.float16)
    add = programs.routine("add.Tensor", [half, half, Static(1)])
    assert add.vjp((True, False), (True,)).results == (("cotangent", 0),)
    mixed = programs.routine("add.Tensor", [F32, half, Static(1)])
    assert mixed.vjp((True, True), (True,)).results == (("cotangent", 0), 0)
    assert mixed.vjp((False, True), (True,)).routine is not None


def test_tensors_without_dimensions_share_programs_where_they_may() -> None:
    from atentriton import ops

    mul = ops.mul.Tensor.registered
    x, number = torch.rand(3), torch.rand(())
    assert mul.routine([x, number]) is mul.routine([x, x])
    assert mul.routine([number, number]) is mul.routine([x, x])
    double = torch.rand((), dtype=torch.float64)
    assert "0d" in mul.routine([x, double]).lineage
