"""Files of formulas: what is read from them, and where every character stands."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fuser.entries import (
    Condition,
    Entry,
    FunctionEntry,
    Promotion,
    load,
    load_functions,
)
from fuser.errors import Span
from fuser.formulas import FormulaSet
from fuser.resources import resource
from fuser.syntax import (
    AutoElementWise,
    AutoLinear,
    NonDifferentiable,
    NotImplementedValue,
    called_functions,
    names,
    unparse,
    walk,
)


def pytorch_file() -> Path | None:
    """PyTorch's own file of derivatives, which comes with it."""
    found = importlib.util.find_spec("torchgen")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder) / "packaged" / "autograd" / "derivatives.yaml"
        if path.is_file():
            return path
    return None


def ours() -> Path | None:
    try:
        return resource("derivatives.yaml")
    except FileNotFoundError:
        return None


FILES = {"ours": ours(), "pytorch": pytorch_file()}


@pytest.fixture(scope="module", params=sorted(FILES))
def path(request: pytest.FixtureRequest) -> Path:
    found = FILES[request.param]
    if found is None:
        pytest.skip(f"there is no such file here: {request.param}")
    return found


@pytest.fixture(scope="module")
def entries(path: Path) -> tuple[Entry, ...]:
    return load(path).entries


@pytest.fixture(scope="module")
def raw(path: Path) -> list[dict[str, object]]:
    """The file as PyYAML alone reads it."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def sets_of(entry: Entry) -> dict[str, FormulaSet]:
    plain = {"Default": FormulaSet(entry.gradients, entry.forwards)}
    return entry.dispatch or plain


def texts_of(given: dict[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in given.items():
        if key not in ("name", "output_differentiability"):
            assert isinstance(value, str)
            yield key, value


def squeezed(text: str) -> str:
    return "".join(text.split())


def test_every_entry_and_every_formula_is_read(
    entries: tuple[Entry, ...], raw: list[dict[str, object]]
) -> None:
    assert len(entries) == len(raw)
    for entry, given in zip(entries, raw, strict=True):
        assert str(entry.signature) == given["name"]
        dispatch = given.get("dispatch", {"Default": given})
        assert isinstance(dispatch, dict)
        assert list(sets_of(entry)) == list(dispatch)
        for key, found in sets_of(entry).items():
            formulas = [*found.gradients, *found.forwards]
            assert {(", ".join(f.names), f.text) for f in formulas} == set(
                texts_of(dispatch[key])
            )


def test_every_formula_prints_back(entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        for found in sets_of(entry).values():
            for formula in (*found.gradients, *found.forwards):
                assert squeezed(unparse(formula.body)) == squeezed(formula.text)


def test_every_position_is_that_of_the_file(
    path: Path, entries: tuple[Entry, ...]
) -> None:
    lines = path.read_text(encoding="utf-8").split("\n")

    def at(span: Span) -> str:
        return lines[span.line - 1][span.column - 1 :]

    for entry in entries:
        assert at(entry.signature.name_span).startswith(entry.name)
        for found in sets_of(entry).values():
            for formula in (*found.gradients, *found.forwards):
                for name, span in zip(formula.names, formula.name_spans, strict=True):
                    assert at(span).startswith(name)
                first = formula.text.split()[0]
                assert at(formula.span).startswith(first)
                if formula.expr is None:
                    continue
                for node in walk(formula.expr):
                    if node.span.line == node.span.end_line:
                        here = lines[node.span.line - 1]
                        here = here[node.span.column - 1 : node.span.end_column - 1]
                        assert squeezed(here) == squeezed(unparse(node))
                for used in names(formula.expr):
                    assert at(used.span).startswith(used.id)
                for called in called_functions(formula.expr):
                    assert at(called.span).startswith(called.name)


# --- one entry ------------------------------------------------------------------------


def one(text: str) -> Entry:
    (entry,) = load(text).entries
    return entry


def test_an_entry() -> None:
    entry = one(
        """\
# far away

# Why this is so:
#   because.
- name: f.x(Tensor self, Tensor b, Tensor c, int n) -> (Tensor r, Tensor s)
  self, b: g(grad, grad_input_mask)
  c: non_differentiable
  r: r * self_t + b_t * c * n
  output_differentiability: [True, False]
"""
    )
    assert (entry.name, entry.base, entry.overload) == ("f.x", "f", "x")
    assert entry.comment == "Why this is so:\n  because."
    assert [f.names for f in entry.gradients] == [("self", "b"), ("c",)]
    assert [f.names for f in entry.forwards] == [("r",)]
    assert isinstance(entry.gradients[1].body, NonDifferentiable)
    assert entry.differentiable == ("self", "b")
    assert entry.output_differentiability == (True, False)
    assert entry.differentiable_outputs == (True, False)
    assert entry.gradient("b") is entry.gradients[0]
    assert entry.gradient("n") is None
    assert entry.forward("r") is entry.forwards[0]
    assert (entry.span.line, entry.span.column) == (5, 9)


def test_special_values() -> None:
    entry = one(
        """\
- name: f(Tensor a, Tensor b, Tensor[] c) -> Tensor
  a: 'not_implemented("f: a")'
  b: grad
  c: not_implemented_list("f", kWhy)
"""
    )
    a, _, c = (formula.body for formula in entry.gradients)
    assert isinstance(a, NotImplementedValue)
    assert a.message == "f: a"
    assert isinstance(c, NotImplementedValue)
    assert (c.message, c.text) == ("f", 'not_implemented_list("f", kWhy)')
    forward = "- name: g(Tensor a) -> Tensor\n  a: grad\n  result: "
    assert isinstance(one(forward + "auto_linear").forwards[0].body, AutoLinear)
    body = one(forward + "auto_element_wise").forwards[0].body
    assert isinstance(body, AutoElementWise)


def test_which_outputs_are_differentiable() -> None:
    head = "- name: f(Tensor a, int n) -> (Tensor x, Tensor y, int z)\n  a: "
    assert one(head + "grad").differentiable_outputs == (True, False, False)
    assert one(head + "grads[1]").differentiable_outputs == (True, True, False)
    assert one(head + "grad_x * grad_y").differentiable_outputs == (True, True, False)
    second = head + "grad\n  output_differentiability: [False, True]"
    assert one(second).differentiable_outputs == (False, True, False)


def test_a_condition() -> None:
    entry = one(
        """\
- name: f(Tensor self, ScalarType? dtype=None) -> Tensor
  self: grad
  output_differentiability: ["!dtype || isDifferentiableType(*dtype)"]
"""
    )
    condition = entry.output_differentiability
    assert isinstance(condition, Condition)
    assert unparse(condition.body) == condition.text
    assert entry.differentiable_outputs == (True,)


def test_dispatch() -> None:
    entry = one(
        """\
- name: f(Tensor self) -> Tensor
  dispatch:
    Default:
      self: grad
      result: auto_linear
    AutogradCUDA:
      self: grad * 2
"""
    )
    assert list(entry.dispatch) == ["Default", "AutogradCUDA"]
    assert entry.dispatch["AutogradCUDA"].gradients[0].text == "grad * 2"
    assert entry.gradients == entry.dispatch["Default"].gradients
    assert entry.forwards == entry.dispatch["Default"].forwards


def test_in_place_entries_may_read_the_old_value() -> None:
    entry = one(
        """\
- name: f_(Tensor(a!) self, int n) -> Tensor(a!)
  self: grad * result
  result: self_t.mul_(g(n, original_self_p)) + self_p
"""
    )
    assert entry.inplace
    assert not entry.view


def test_a_list_and_foreach() -> None:
    one("- name: cat(Tensor[] xs) -> Tensor\n  xs: b(grad, xs)\n  result: jvp(xs)")
    one(
        "- name: _foreach_f(Tensor[] self) -> Tensor[]\n"
        "  self: grads[i] * self[i]\n"
        "  result: self_t * result[i]"
    )


def test_a_path_may_be_a_str(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("- name: f(Tensor a) -> Tensor\n  a: grad\n", encoding="utf-8")
    for given in (path, str(path)):
        file = load(given)
        assert file.path == str(path)
        assert file.by_name["f"].span.file == str(path)
    with pytest.raises(FileNotFoundError):
        load(str(tmp_path / "b.yaml"))


# --- where characters stand -----------------------------------------------------------

SCALARS = [
    "one + two",
    "one +\n    two\n\n    + three",
    '"one + two"',
    '"one + \\"s\\" + two"',
    '"one\\t+ \\x74wo"',
    '"one +\n     two\n\n   + three"',
    '"one + t\\\n     wo + three"',
    "'one + \"it''s\" + two'",
    "'one\n    + two'",
    "|\n    one +\n      two\n",
    ">-  # folded\n    one\n    + two\n\n    + three\n",
]


@pytest.mark.parametrize("scalar", SCALARS)
def test_positions_in_every_kind_of_scalar(scalar: str) -> None:
    text = (
        "# é 😀\n"
        "- name: f(Tensor a, int one, int two, int three) -> Tensor\n"
        f"  a: {scalar}\n"
        "  result: a_t\n"
    )
    (formula,) = one(text).gradients
    assert formula.expr is not None
    lines = text.split("\n")
    spelled = {"one": ("one",), "two": ("two", "\\x74wo", "t\\"), "three": ("three",)}
    found = list(names(formula.expr))
    assert found
    for name in found:
        here = lines[name.span.line - 1][name.span.column - 1 :]
        assert here.startswith(spelled[name.id])
    for node in walk(formula.expr):
        start = lines[node.span.line - 1][node.span.column - 1 :]
        end = lines[node.span.end_line - 1][: node.span.end_column - 1]
        assert start[0] in unparse(node)[0] + "\\"
        assert end.endswith(unparse(node)[-1])


# --- functions ------------------------------------------------------------------------


def functions(text: str) -> tuple[FunctionEntry, ...]:
    return load_functions(text)


def test_functions() -> None:
    clamp, frexp, loss, helper = functions(
        """\
# Keeps NaN.
- name: clamp(Tensor self, Scalar? min=None) -> Tensor
  promotes: default(self, min)
  result: "min.has_value() ? maximum(self, *min) : self"
- name: frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)
  promotes: int_to_float
  mantissa: m(self)
  exponent: e(self) * M_LN2
- name: loss(Tensor self, Tensor target) -> Tensor
  promotes: default -> self
  result: self - target
- name: helper(Tensor a, Tensor b) -> (Tensor, Tensor)
  result0: a
  result1: b - a
"""
    )
    assert clamp.promotes == Promotion("default", ("self", "min"))
    assert clamp.comment == "Keeps NaN."
    assert [a.name for a in clamp.arguments] == ["self", "min"]
    assert frexp.promotes == Promotion("int_to_float", None)
    assert list(frexp.results) == ["mantissa", "exponent"]
    assert loss.promotes == Promotion("default", None, "self")
    assert helper.promotes is None
    assert helper.results["result1"].text == "b - a"
    assert helper.results["result1"].span.line == 14


def test_functions_may_call_each_other() -> None:
    text = "- name: f(Tensor a) -> Tensor\n  result: g(a)\n"
    text += "- name: g(Tensor a) -> Tensor\n  result: exp(a)\n"
    assert len(load_functions(text, functions={"exp"})) == 2
