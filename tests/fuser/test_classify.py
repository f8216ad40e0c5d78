"""What can be done with each entry, found by trying."""

from __future__ import annotations

import pytest

from atentriton.catalogue import RUNTIME
from fuser.classify import Verdict, classify, specs_of
from fuser.errors import FormulaError
from fuser.ir import Static
from fuser.pipeline import compiler, default_compiler
from fuser.resources import resource
from fuser.signatures import parse_signature
from fuser.specs import ScalarSpec, TensorSpec


class Stand:
    """A runtime that has these operators, and these functions over tensors."""

    def __init__(self, operators: str, functions: str = "") -> None:
        self.operators, self.functions = operators.split(), functions.split()

    def has(self, operator: str) -> bool:
        return operator in self.operators

    def runs(self, function: str) -> bool:
        return function in self.functions


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    known = default_compiler()
    return {v.name: v for v in classify(known, known.entries.values(), RUNTIME)}


def test_every_entry_has_a_verdict_and_a_reason(verdicts: dict[str, Verdict]) -> None:
    assert set(verdicts) == set(default_compiler().entries)
    for verdict in verdicts.values():
        assert verdict.reason, verdict.name
        if verdict.kind == "fused":
            assert verdict.forward == verdict.backward == "fused", verdict.name
        if verdict.kind == "not_yet":
            assert {verdict.forward, verdict.backward, verdict.jvp} == {"-"}


EXPECTED = {
    "fused": """add.Tensor mul.Tensor div.Tensor exp tanh logaddexp hypot atan2
        polygamma where.self clamp.Tensor hardswish frexp.Tensor special_zeta sgn
        lerp.Tensor masked_fill_.Tensor polygamma_ _to_copy maximum""",
    "view": "expand as_strided alias",
    "matrix": "mm bmm addmm",
    "not_implemented": "lstsq geqrf acosh_ asinh_ atanh_",
    "non_differentiable": "isnan eq.Tensor floor_divide signbit logical_and",
    "composite": "cholesky grid_sampler_2d _ctc_loss matrix_exp index_put_ cat",
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_classes(verdicts: dict[str, Verdict], kind: str) -> None:
    found = {name: verdicts[name].kind for name in EXPECTED[kind].split()}
    assert found == dict.fromkeys(found, kind)


def test_how_forward_derivatives_are_had(verdicts: dict[str, Verdict]) -> None:
    how = {name: verdicts[name].jvp for name in ("exp", "neg", "mul.Tensor", "erf")}
    assert how == {
        "exp": "auto_element_wise",
        "neg": "auto_linear",
        "mul.Tensor": "formula",
        "erf": "derived",
    }
    zeta = verdicts["special_zeta"]
    assert "zeta" in zeta.jvp
    assert zeta.reason.endswith("not implemented: self")


def test_reasons_name_what_is_missing() -> None:
    known = default_compiler()
    entries = [known.entries[n] for n in ("cholesky", "cumsum", "mm")]
    runtime = Stand("cholesky cumsum mm", "cumsum_backward")
    lacking, there, product = classify(known, entries, runtime)
    assert lacking.kind == "not_yet"
    assert lacking.reason.startswith("calls cholesky_backward, which")
    assert there.as_json()["class"] == "composite"
    assert product.as_json()["class"] == "matrix"


def test_what_torch_does_not_have() -> None:
    known = default_compiler()
    entries = [known.entries[n] for n in ("lstsq", "expand", "exp")]
    found = list(classify(known, entries, Stand("exp")))
    assert [v.kind for v in found] == ["not_yet", "not_yet", "fused"]
    assert "no longer has" in found[0].reason


def test_it_is_found_by_trying_and_not_from_a_list() -> None:
    text = resource("derivatives.yaml").read_text(encoding="utf-8")
    own = (
        text
        + """
- name: novel(Tensor self) -> Tensor
  self: grad * self.sigmoid()

- name: other_novel(Tensor self) -> Tensor
  self: grad * self.undreamt_of()

- name: third_novel(Tensor self) -> Tensor
  output_differentiability: [False]
"""
    )
    values = """
- name: novel(Tensor self) -> Tensor
  promotes: int_to_float
  result: self.exp().log1p()

- name: other_novel(Tensor self) -> Tensor
  promotes: int_to_float
  result: self.exp()

- name: third_novel(Tensor self) -> Tensor
  promotes: default
  result: self * 2
"""
    known = compiler(own, values)
    names = ("novel", "other_novel", "third_novel")
    found = [*classify(known, [known.entries[n] for n in names], RUNTIME)]
    assert [v.kind for v in found] == ["fused", "not_yet", "non_differentiable"]
    assert found[1].reason == "calls undreamt_of"
    assert found[2].forward == "fused"


def test_specs_to_try_an_operator_with() -> None:
    signature = parse_signature(
        "f(Tensor self, Tensor mask, Scalar s, int n, bool b, Tensor? t=None) -> Tensor"
    )
    tensor, mask, *others = specs_of(signature.arguments)
    assert isinstance(tensor, TensorSpec)
    assert tensor.dtype.name == "float32"
    assert isinstance(mask, TensorSpec)
    assert mask.dtype.name == "bool"
    assert others[:3] == [ScalarSpec("float"), Static(1), Static(False)]
    with pytest.raises(FormulaError, match="is a list"):
        specs_of(parse_signature("cat(Tensor[] tensors) -> Tensor").arguments)
