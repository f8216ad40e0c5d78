"""Where derivatives.yaml departs from the formulas it started with, and nowhere else.

data/seed.yaml has the old formulas, data/deviations.yaml each change with its reason
and a point where the old formula was wrong; the new one is evaluated there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fuser import dtypes, ir
from fuser.entries import Entry, EntryFile, load
from fuser.interpret import interpret
from fuser.ir import Static
from fuser.pipeline import Compiler, Derived, default_compiler
from fuser.program import Program
from fuser.resources import resource
from fuser.signatures import Argument
from fuser.specs import ScalarSpec, Spec, TensorSpec

HERE = Path(__file__).parent
DEVIATIONS: list[dict[str, Any]] = yaml.safe_load(
    (HERE / "data" / "deviations.yaml").read_text()
)
CASES = [d for d in DEVIATIONS if "case" in d]


def _label(deviation: dict[str, Any]) -> str:
    return f"{deviation['entry']}: {deviation['key']}"


@pytest.fixture(scope="module")
def seed() -> EntryFile:
    return load(HERE / "data" / "seed.yaml")


@pytest.fixture(scope="module")
def ours() -> EntryFile:
    return load(resource("derivatives.yaml"))


def _formulas(entry: Entry) -> dict[str, str]:
    formulas = {", ".join(f.names): f.text for f in (*entry.gradients, *entry.forwards)}
    if entry.output_differentiability is not None:
        formulas["output_differentiability"] = str(entry.output_differentiability)
    return formulas


def test_the_seed_is_whole(seed: EntryFile, ours: EntryFile) -> None:
    assert len(seed.entries) == 199
    for entry in seed.entries:
        assert entry.name in ours.by_name
        assert str(ours.by_name[entry.name].signature) == str(entry.signature)


def test_every_deviation_is_listed(seed: EntryFile, ours: EntryFile) -> None:
    found = {}
    for entry in seed.entries:
        old, new = _formulas(entry), _formulas(ours.by_name[entry.name])
        for key in old.keys() | new.keys():
            if old.get(key) != new.get(key):
                found[entry.name, key] = (old.get(key), new.get(key))
    listed = {(d["entry"], d["key"]): (d["seed"], d["ours"]) for d in DEVIATIONS}
    assert found == listed


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=_label)
def test_the_old_text_stands_beside(deviation: dict[str, Any]) -> None:
    lines = resource("derivatives.yaml").read_text().splitlines()
    name = f"- name: {deviation['entry']}("
    start = next(i for i, line in enumerate(lines) if line.startswith(name))
    reasons: dict[str, str] = {}
    at = start
    while (at := at + 1) < len(lines) and lines[at]:
        if lines[at] == f"  # seed: {deviation['seed'] or 'nothing'}":
            assert lines[at + 1].startswith("  # why: ")
            after = at + 2
            while lines[after].startswith("  #   "):
                after += 1
            key = lines[after].strip().partition(": ")[0]
            reasons[key] = " ".join(
                line.lstrip(" #").removeprefix("why: ")
                for line in lines[at + 1 : after]
            )
    assert reasons[deviation["key"]] == deviation["reason"]


def test_the_page_lists_all() -> None:
    page = (HERE.parent / "docs" / "deviations.md").read_text()
    for d in DEVIATIONS:
        assert f"| `{d['entry']}` | `{d['key']}` | {d['reason']} |" in page


@pytest.mark.parametrize("deviation", CASES, ids=_label)
def test_the_new_formula_is_right(deviation: dict[str, Any]) -> None:
    case = deviation["case"]
    keys = [key.strip() for key in deviation["key"].split(",")]
    got = _Case(default_compiler(), deviation["entry"], case).derivative(keys)
    if "tangents" in case:
        results = [got[f"{key}_t"] for key in keys]
    else:
        results = [got[f"grad_{key}"] for key in keys]
    expected = case["expect"]
    if len(keys) == 1:
        expected = [_number(expected)]
    single = case["dtype"] in ("float32", "complex64")
    # An absolute part for results that are subnormal float32 numbers.
    bounds = {"rel": 1e-5, "abs": 2e-45} if single else {"rel": 1e-12, "abs": 0.0}
    for result, right in zip(results, expected, strict=True):
        assert result == pytest.approx(right, **bounds)


class _Case:
    """One operator at one point, with a gradient of 1 or with tangents."""

    def __init__(self, compiler: Compiler, name: str, case: dict[str, Any]) -> None:
        self.compiler = compiler
        self.case = case
        self.values: dict[str, Any] = {}
        arguments = compiler.operator(name).signature.arguments
        self.program = compiler.program(name, [self._spec(a) for a in arguments])

    def _spec(self, argument: Argument) -> Spec:
        name = argument.name
        default = argument.default.value if argument.default else None
        value = _number(self.case["inputs"].get(name, default))
        if argument.is_tensor:
            dtype = self.case.get("dtypes", {}).get(name, self.case["dtype"])
            self.values[name] = value
            return TensorSpec(dtypes.dtype(dtype))
        if argument.type.base == "Scalar":
            self.values[name] = value
            return ScalarSpec("float" if isinstance(value, float) else "int")
        return Static(value)

    def derivative(self, keys: list[str]) -> dict[str, Any]:
        """The gradients of the inputs `keys`, or the tangents of all outputs, by the
        name of the derived program's output."""
        derived = self._derived(keys)
        forward = self._evaluate(self.program, self.values)
        values = dict(self.values)
        for leaf, (kind, place) in zip(
            derived.program.inputs, derived.sources, strict=True
        ):
            match kind:
                case "input":
                    value = self.values[_name(self.program.inputs[place])]
                case "tangent":
                    name = _name(self.program.inputs[place])
                    value = _number(self.case["tangents"][name])
                case "output":
                    value = forward[place]
                case _:
                    value = 1.0
            values[_name(leaf)] = value
        names = [output.name for output in derived.program.outputs]
        return dict(zip(names, self._evaluate(derived.program, values), strict=True))

    def _derived(self, keys: list[str]) -> Derived:
        inputs = self.program.inputs
        if "tangents" in self.case:
            given = [_name(n) in self.case["tangents"] for n in inputs]
            return self.compiler.jvp(self.program, given)
        wanted = [_name(n) in keys for n in inputs]
        defined = [i == 0 for i in range(len(self.program.outputs))]
        return self.compiler.vjp(self.program, wanted, defined)

    def _evaluate(self, program: Program, values: dict[str, Any]) -> tuple[Any, ...]:
        return interpret(self.compiler.expand(program).roots, values)


def _name(leaf: ir.Node) -> str:
    return str(leaf.attrs)


def _number(value: Any) -> Any:
    return complex(*value) if isinstance(value, list) else value
