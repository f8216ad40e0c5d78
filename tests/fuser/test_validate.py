"""Everything that can be wrong with an entry: said once, at its place, with advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuser.entries import load
from fuser.errors import FormulaFileError
from tests.fuser.marked import FUNCTIONS, check, errors_of, unmarked

DATA = Path(__file__).parents[1] / "data"
SELF = "grad, grad_input_mask, grads, result, retain_variables, self"

CASES: list[tuple[str, str, str | None, str | None]] = [
    (
        "- name: f(Tensor self) -> Tensor\n  self: grad * «exq»(self)\n",
        'unknown function "exq"',
        None,
        "exp",
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  self: (grad * self).«konj»()\n",
        'unknown method "konj"',
        None,
        "conj",
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  self: «not_implementd»(self)\n",
        'unknown function "not_implementd"',
        None,
        "not_implemented",
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  self: grad * «slef»\n",
        'unknown name "slef"',
        f"one of {SELF}",
        "self",
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  self: grad * «rezult» + M_PI\n",
        'unknown name "rezult"',
        f"one of {SELF}",
        "result",
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  self: where(«True», grad, self)\n",
        'unknown name "True"',
        f"one of {SELF}",
        "true",
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  self: «auto_elementwise»\n",
        'unknown name "auto_elementwise"',
        f"one of {SELF}",
        "auto_element_wise",
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  self: grad * «self_p»\n",
        '"self_p" has a meaning in forward formulas only',
        None,
        "self",
    ),
    (
        "- name: f(Tensor self) -> (Tensor a, Tensor b)\n  self: «grad_b»\n"
        "  output_differentiability: [True, False]\n",
        '"grad_b": the return "b" is not differentiable',
        None,
        None,
    ),
    (
        "- name: f(Tensor a, Tensor b) -> (Tensor, Tensor)\n"
        "  a: grad * b\n  b: «grads»[1]\n",
        "mixes `grad` and `grads`",
        "`grads[0]` in place of `grad`",
        None,
    ),
    (
        "- name: f(Tensor self) -> (Tensor a, Tensor b)\n  self: grad_b * «grad»\n",
        "mixes `grad_NAME` and `grad`",
        "one of the two throughout",
        None,
    ),
    (
        "- name: f(Tensor self) -> (Tensor, Tensor)\n  self: «grads»[0]\n",
        "only `grads[0]` is used: the first output alone has a gradient",
        None,
        "grad",
    ),
    (
        "- name: f(Tensor self) -> (Tensor, Tensor)\n  self: grads[0] + «grads[2]»\n",
        "grads[2] is out of bounds: the operator has 2 returns",
        "an index below 2",
        None,
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  self: grad\n  result: self_t * «self»\n",
        'bare "self" in a forward formula',
        "`self_p` for its value or `self_t` for its tangent",
        None,
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  self: grad\n  result: «grad» * self_p\n",
        "`grad` has no meaning in a forward formula",
        "a tangent: self_t",
        None,
    ),
    (
        "- name: f(Tensor a, Tensor b) -> Tensor\n  a: grad\n  result: a_t + «b_t»\n",
        '"b_t", but "b" has no gradient formula',
        "a gradient formula for b",
        None,
    ),
    (
        "- name: f(Tensor a, Tensor b) -> Tensor\n  a: grad\n  result: a_t * «b_p»\n",
        '"b_p", but "b" has no gradient formula',
        None,
        "b",
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: grad\n  result: a_t * «original_a_p»\n",
        'unknown name "original_a_p"',
        "one of a_p, a_t, result",
        None,
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  self: grad\n  «self»: grad\n",
        'the key "self" is repeated; first at line 2',
        None,
        None,
    ),
    (
        "- name: f(Tensor a, Tensor b) -> Tensor\n  a: grad\n  b, «a»: grad\n",
        '"a" has a formula already, at line 2',
        None,
        None,
    ),
    (
        "- name: f(Tensor a, Tensor b) -> Tensor\n  a, b, «a»: grad\n",
        '"a" has a formula already, at line 2',
        None,
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: grad\n- name: «f»(Tensor a) -> Tensor\n",
        'a second entry for "f"; the first is at line 1',
        None,
        None,
    ),
    (
        "- name: f(Tensor other) -> Tensor\n  «othr»: grad\n",
        '"othr" is neither an argument nor a return',
        "one of other, result",
        "other",
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  «output_diferentiability»: [False]\n",
        '"output_diferentiability" is neither an argument nor a return',
        "one of a, result",
        "output_differentiability",
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a, «result»: grad\n",
        "a key names arguments or returns, not both",
        None,
        None,
    ),
    (
        "- name: f(Tensor a, Scalar v) -> Tensor\n  a: grad\n  «v»: grad\n",
        '"v" is no Tensor (Scalar): it has no gradient',
        None,
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  output_differentiability: «[»True, False]\n",
        "2 flags for 1 return",
        "a list such as [True, False], one for each return",
        None,
    ),
    (
        "- name: f(Tensor a) -> (Tensor, Tensor)\n"
        "  output_differentiability: [True, «1»]\n",
        "not a flag",
        "True or False",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  output_differentiability: «False»\n",
        "`output_differentiability` is not a list",
        "a list such as [True, False], one for each return",
        None,
    ),
    (
        "- «a»: grad\n",
        "the entry has no name",
        "`name: operator(...) -> ...`",
        None,
    ),
    (
        "- name: f(«tensor» a) -> Tensor\n  a: grad\n",
        'unknown type "tensor"',
        "a type such as Tensor, Scalar, int[], bool, ScalarType?",
        "Tensor",
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: «auto_linear»\n",
        "`auto_linear` is for forward formulas",
        "a gradient formula, or non_differentiable",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  result: «non_differentiable»\n",
        "`non_differentiable` is for arguments",
        "`output_differentiability` for a result",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: «not_implemented()»\n",
        "`not_implemented` without its message",
        '`not_implemented("why")`',
        None,
    ),
    (
        "- name: f(Tensor a, Tensor b) -> Tensor\n  a: grad\n  b: grad\n"
        "  result: «auto_element_wise»\n",
        "`auto_element_wise` with 2 differentiable inputs",
        "exactly one, not a, b",
        None,
    ),
    (
        "- name: f_(Tensor(a!) a) -> Tensor(a!)\n  a: grad\n"
        "  result: «auto_element_wise»\n",
        "`auto_element_wise` in an in-place entry",
        "a formula for the tangent",
        None,
    ),
    (
        "- name: f(Tensor a) -> (Tensor x, Tensor y)\n  a: grads\n"
        "  x: «auto_linear»\n  y: a_t\n",
        "`auto_linear` with several differentiable outputs",
        "exactly one",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  result: «auto_element_wise»\n",
        "`auto_element_wise` without a gradient formula",
        "a gradient formula to go by",
        None,
    ),
    (
        '- name: f(Tensor a) -> Tensor\n  a: not_implemented("f")\n'
        "  result: «auto_element_wise»\n",
        "`auto_element_wise`, but the gradient is not_implemented",
        "a gradient formula",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  dispatch:\n    «Defalt»:\n      a: grad\n",
        'unknown dispatch key "Defalt"',
        "Default, AutogradCUDA, ...",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  dispatch:\n    Default:\n      a: grad\n"
        "  «a»: grad\n",
        'the key "a" stands beside `dispatch`',
        "it below a dispatch key",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: grad * «)»\n",
        "`)` closes nothing",
        "a value",
        None,
    ),
    (
        '- name: f(Tensor a) -> Tensor\n  a: "grad *\n     a «b»"\n',
        "unexpected `b`",
        "an operator or the end of the formula",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: 'handle_r_to_c(«''x''», b)'\n",
        "'x' is not a string",
        'a string in double quotes, "..."',
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  «a»:\n",
        '"a" has no value',
        "a formula",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: «{»grad, a}\n",
        "a YAML mapping in place of a formula",
        'quotes around the formula: "..."',
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: «!grad» a\n",
        "`!grad` is a mark of YAML, not part of the formula",
        'quotes around the formula: "..."',
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: «&grad» a\n",
        "`&grad` is a mark of YAML, not part of the formula",
        'quotes around the formula: "..."',
        None,
    ),
    (
        "- name: f(Tensor a, Tensor b) -> Tensor\n  «a,»: grad\n",
        "the key lacks a name",
        "`name` or `name, name`",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: «&»x [*x]\n",
        "bad YAML: an alias of a list or mapping",
        None,
        None,
    ),
    (
        f"- name: f(Tensor a) -> Tensor\n« » a: {'[' * 5000}\n",
        "bad YAML: nested too deeply",
        None,
        None,
    ),
    ("- «f»\n", "not an entry", "`name: signature` and formulas", None),
    (
        "«n»ame: f(Tensor a) -> Tensor\n",
        "the top of the file is not a list of entries",
        "`- name: ...` for each entry",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: a ? grad «:» a\n",
        "bad YAML: mapping values are not allowed here",
        "quotes around a formula that holds `: `",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  a: «*»a\n",
        "bad YAML: found undefined alias 'a'",
        "quotes around a formula that begins with `*`",
        None,
    ),
    (
        '- name: f(Tensor a) -> Tensor\n  a: «"»grad\n',
        "bad YAML while scanning a quoted scalar: found unexpected end of stream",
        "the closing quote",
        None,
    ),
]


@pytest.mark.parametrize(("marked", "message", "expected", "hint"), CASES)
def test_one_mistake(
    marked: str, message: str, expected: str | None, hint: str | None
) -> None:
    check(marked, (message, expected, hint))


def test_five_mistakes_are_five_errors() -> None:
    path = DATA / "five_errors.yaml"
    with pytest.raises(FormulaFileError) as caught:
        load(path, functions=FUNCTIONS | {"cosh", "mul_tensor_backward"})
    errors = caught.value.diagnostics
    assert [(e.span.line, e.span.column, e.hint) for e in errors] == [
        (3, 16, "self"),
        (7, 16, "mul_tensor_backward"),
        (9, 11, None),
        (12, 16, None),
        (14, 16, "Tensor"),
    ]
    shown = str(caught.value)
    assert shown.startswith("5 errors\n\n")
    for error in errors:
        place = f"{path}:{error.span.line}:{error.span.column}: error: "
        assert place + error.message + "\n" in shown


def test_names_are_not_checked_without_functions() -> None:
    load("- name: f(Tensor a) -> Tensor\n  a: anything(grad).at_all()\n")


def test_reading_goes_on_after_what_is_not_yaml() -> None:
    text, spots = unmarked(
        "- name: f(Tensor a, Tensor b) -> Tensor\n"
        "  a: a ? grad «:» b\n"
        "  b: grad * «c»\n"
        "  result: auto_linear\n"
        "- name: g(Tensor a) -> Tensor\n"
        '  a: «"»grad\n'
        "\n"
        "- name: h(Tensor a) -> Tensor\n"
        "  a: grad * «aa»\n"
        "«n»ame: k\n"
    )
    errors = errors_of(text)
    assert [e.span[1:5] for e in errors] == spots
    assert [e.message.split(":")[0] for e in errors] == [
        "bad YAML",
        'unknown name "c"',
        "bad YAML while scanning a quoted scalar",
        'unknown name "aa"',
        "bad YAML",
    ]


def test_a_bad_signature_does_not_hide_its_formulas() -> None:
    check(
        "- name: f(Tensor «)» -> Tensor\n  a: grad «b»\n",
        ("bad signature: unexpected `)`", "a name after the type `Tensor`", None),
        ("unexpected `b`", "an operator or the end of the formula", None),
    )
