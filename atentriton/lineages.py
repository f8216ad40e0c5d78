"""The names of programs: how one came about, as text that another process understands.

    lineage := base step*
    base    := (OPERATOR | "`" FORMULA "`") "(" item (", " item)* ")" ["@" DTYPE]
    item    := [NAME ":"] DTYPE [" 0d"]     a tensor (without dimensions)
             | NAME "=" KIND        a number given at run time: bool, int, ...
             | NAME "=" VALUE       None, True, 3, (1, 2), "floor" or dtype.float32
    step    := ".vjp(" NAMES [" | " NAMES] ")"     of which inputs [of which outputs]
             | ".jvp(" NAMES ")"                   along which inputs
             | ".joint(" NAMES ")"                 the same, with the values

`add.Tensor(float32, float32 0d, alpha=float).vjp(other)` is an example, and another is
"`a * b.sin()`(a:float32, b:float64)": a formula names its tensors, an operator's stand
in the order of its signature. The dtype behind `@` is torch.get_default_dtype() where
that is not float32. Comes in: specs, or text. Goes out: text, or specs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fuser.dtypes import DTYPES, KINDS, DType, dtype, float32
from fuser.ir import Static
from fuser.signatures import Signature
from fuser.specs import ScalarSpec, Spec, TensorSpec


@dataclass(frozen=True, slots=True)
class Base:
    """What an operator, or a formula, is called with; `items` are (name, spec), the
    name None for an operator's tensors."""

    operator: str
    formula: bool
    items: tuple[tuple[str | None, Spec], ...]
    default: DType

    @property
    def specs(self) -> tuple[Spec, ...]:
        return tuple(spec for _, spec in self.items)


@dataclass(frozen=True, slots=True)
class Step:
    """A derivative with `inputs` wanted (vjp) or moved; `outputs` None: all.

    A joint one has the outputs themselves beside their tangents.
    """

    mode: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] | None = None

    def __str__(self) -> str:
        chosen = "" if self.outputs is None else f" | {', '.join(self.outputs)}"
        return f".{self.mode}({', '.join(self.inputs)}{chosen})"


def spell(signature: Signature, specs: Sequence[Spec], default: DType = float32) -> str:
    """The lineage of an operator's own program."""
    items = [
        _spell_item(argument.name, spec)
        for argument, spec in zip(signature.arguments, specs, strict=True)
    ]
    return f"{signature.name}({', '.join(items)}){_suffix(default)}"


def spell_formula(
    text: str, specs: Mapping[str, Spec], default: DType = float32
) -> str:
    """The lineage of the program of a formula over those names."""
    items = [
        f"{name}:{_spell_item(name, spec)}"
        if isinstance(spec, TensorSpec)
        else _spell_item(name, spec)
        for name, spec in specs.items()
    ]
    return f"`{text}`({', '.join(items)}){_suffix(default)}"


def _suffix(default: DType) -> str:
    return "" if default == float32 else f"@{default}"


def _spell_item(name: str, spec: Spec) -> str:
    if isinstance(spec, TensorSpec):
        return f"{spec.dtype} 0d" if spec.zero_dim else spec.dtype.name
    if isinstance(spec, ScalarSpec):
        return f"{name}={spec.kind}"
    value = spec.value
    if isinstance(value, DType):
        return f"{name}=dtype.{value}"
    if isinstance(value, str):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{name}="{quoted}"'
    return f"{name}={value!r}"


# Compiled, which takes a millisecond, when a lineage is first parsed; few processes do.
_BASE = r"(?:(?P<operator>\w+(?:\.\w+)?)|`(?P<formula>[^`]+)`)\("
_STRING = r'"(?:[^"\\]|\\.)*"'
_ITEM = (
    rf"(?:(?:(?P<tensor>\w+):)?(?P<dtype>\w+)(?P<zero> 0d)?|(?P<name>\w+)="
    rf"(?P<value>{_STRING}|\([^()]*\)|[^,()\"]+))(?P<end>, |\))"
)
_DEFAULT = r"@(?P<default>\w+)"
_STEP = (
    r"\.(?P<mode>vjp|jvp|joint)\((?P<inputs>[^|()]*?)(?: \| (?P<outputs>[^|()]*))?\)"
)


def parse(text: str) -> tuple[Base, tuple[Step, ...]]:
    """The parts of a lineage; ValueError with the place where it is not one."""
    begin = _match(_BASE, text, 0)
    items: list[tuple[str | None, Spec]] = []
    at = begin.end()
    while True:
        item = _match(_ITEM, text, at)
        items.append((item["name"] or item["tensor"], _parse_item(item)))
        at = item.end()
        if item["end"] == ")":
            break
    default = float32
    given = re.compile(_DEFAULT).match(text, at)
    if given is not None:
        default, at = dtype(given["default"]), given.end()
    steps: list[Step] = []
    while at < len(text):
        step = _match(_STEP, text, at)
        outputs = step["outputs"]
        steps.append(
            Step(
                step["mode"],
                tuple(step["inputs"].split(", ")),
                None if outputs is None else tuple(outputs.split(", ")),
            )
        )
        at = step.end()
    formula = begin["formula"] is not None
    named = begin["formula"] if formula else begin["operator"]
    return Base(named, formula, tuple(items), default), tuple(steps)


def _match(pattern: str, text: str, at: int) -> re.Match[str]:
    found = re.compile(pattern).match(text, at)
    if found is None:
        raise ValueError(f"not the lineage of a program: {text!r} (at {text[at:]!r})")
    return found


def _parse_item(item: re.Match[str]) -> Spec:
    if item["name"] is None:
        return TensorSpec(dtype(item["dtype"]), item["zero"] is not None)
    value = item["value"]
    if value in KINDS:
        return ScalarSpec(value)
    if value.startswith("dtype."):
        return Static(DTYPES[value.removeprefix("dtype.")])
    return Static(ast.literal_eval(value))
