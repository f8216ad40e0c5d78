"""Which of PyTorch's derivative formulas are wrong or unstable? Writes docs/audit.md.

    python tools/audit.py [--jobs N] [OPERATOR ...]

The entries of the installed PyTorch's derivatives.yaml that are pointwise are asked:
PyTorch's own derivative, by each argument, at edges and at a few hundred points over
the domain, against the derivative in mpmath of what the operator computes
(audit_exact.py). The page, and its data in tests/data/audit.yaml, are written where all
are asked. It takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

# The script runs from a checkout, installed or not.
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import mpmath  # noqa: E402
import torch  # noqa: E402
import yaml  # noqa: E402
from mpmath import mpc, mpf  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.autograd import forward_ad, grad  # noqa: E402

from atentriton import catalogue, samples  # noqa: E402
from atentriton.cases import REFUSALS  # noqa: E402
from atentriton.commands._formulas import (  # noqa: E402
    compiler_of,
    items,
    torch_file,
)
from atentriton.edges import edges  # noqa: E402
from atentriton.specs import FROM_TORCH  # noqa: E402
from atentriton.workers import spread  # noqa: E402
from fuser.entries import Entry  # noqa: E402
from fuser.errors import nearest  # noqa: E402
from fuser.formulas import FunctionEntry  # noqa: E402
from fuser.interpret import interpret  # noqa: E402
from fuser.ir import Static  # noqa: E402
from fuser.pipeline import Compiler, default_compiler  # noqa: E402
from fuser.signatures import Argument, Signature  # noqa: E402
from fuser.specs import ScalarSpec, Spec, TensorSpec  # noqa: E402
from fuser.syntax import called_functions  # noqa: E402
from tests.stepwise import stepwise  # noqa: E402
from tools.accuracy_points import line, scales  # noqa: E402
from tools.audit_exact import (  # noqa: E402
    HOLOMORPHIC,
    VALUES,
    Undefined,
    slope,
    value,
)

PAGE = ROOT / "docs" / "audit.md"
DATA = ROOT / "tests" / "data" / "audit.yaml"

# Derivatives are wrong if they are further away than so many times the spacing of the
# dtype's numbers and what that spacing of the arguments does to them.
ALLOWED = 1e3
# Where that is more than this, nothing is said of the point.
STEEP = 1e-3
# What is counted as wrong where the derivative is 0 or too small for the dtype.
NOTABLE = 1e-3

# Arguments that are easily read, besides the edges of a dtype.
ROUND = (4.0, 6.0, 10.0, 50.0, 1e4, 1e20, 1e160, 1e-4, 1e-8, 1e-20, 1e-160)

# Points of one argument, of two, of more; with integers beside; complex ones.
COUNT, MIXED, COMPLEX = 100, 40, 120
KINDS = ("NaN", "infinite", "0", "wrong")

INTRODUCTION = """\
# Audit of PyTorch's formulas

Which formulas of PyTorch's derivatives.yaml are wrong, or lose what they compute? \
Written by `tools/audit.py` beside torch {torch}; `tests/test_audit_document.py` \
holds it, and `tests/data/audit.yaml` has it as data.

{asked} of the {total} entries that are pointwise in PyTorch's file were asked, at \
{points:,} points; derivatives of {wrong} of them are wrong somewhere.

- What PyTorch gives is PyTorch's own: `torch.ops.aten`, and autograd with a \
gradient of 1, on a CPU. Forward mode is asked where an entry has a formula of its \
own for it.
- What is right comes from mpmath: differences of the operator's value at 50 to 700 \
digits, of two widths and from both sides, which have to agree.
- Points are edges of float64 and float32, round numbers, and some hundred over the \
whole range; for other operands also int64 and uint8; complex128 for holomorphic \
operators. Left out are kinks, arguments and values that are below the normal \
numbers or not finite, points where the value itself is wrong, and derivatives that \
the dtype cannot hold.
- A derivative is wrong if it is NaN, infinite or 0 and should not be, or if it is \
further away than {allowed:,.0f} times the spacing of the dtype's numbers and what \
that spacing of the arguments does to it. Where this is more than a {steep:,.0f}th, \
the point does not count. Second derivatives are not asked.

PyTorch calls functions in C++, of which the file has but the names. `from` says \
where an error comes from: `text` if the formula gives it too when it is compiled \
here, with our formulas for those functions; `C++` if it gives the right number so, \
and the error is in a function that PyTorch calls or in a conversion that it makes \
(`toFloat`).

`wrong at` counts the points that were asked, far more of which lie at extreme \
magnitudes than in ordinary use; `at` is the plainest of those that are wrong.

Not asked, because there is nothing to find:

"""

# The columns of the tables.
HEAD = (
    "entry",
    "derivative",
    "at",
    "dtype",
    "PyTorch",
    "right",
    "error",
    "wrong at",
    "from",
)

# Ways to call operators besides those that samples.py knows.
WAYS: dict[str, tuple[dict[str, Any], ...]] = {
    "celu": ({"alpha": 0.3},),
    "celu_": ({"alpha": 0.3},),
    "elu": ({"alpha": 1.0, "scale": 1.0, "input_scale": 1.0},),
    "leaky_relu": ({"negative_slope": 0.01},),
    "mvlgamma": ({"p": 1},),
    "pow.Scalar": ({"self": 0.5}, {"self": 0.0}),
    "pow.Tensor_Scalar": ({"exponent": -2.5}, {"exponent": 0.3}),
    "softplus": ({"beta": 1.0, "threshold": 20.0},),
    "special_xlog1py.self_scalar": ({"self": 0.0},),
    "special_zeta.self_scalar": ({"self": 1.5},),
    "xlogy.Scalar_Other": ({"other": 0.3},),
    "xlogy.Scalar_Self": ({"self": 0.0},),
}

# A tensor that is another function of the arguments, and no variable of its own.
BUFFER = "buffer"

# Formulas of arguments without a derivative.
NONE = ("not_implemented", "non_differentiable")

# What stands for a tangent without a formula.
DERIVED = "the gradients, multiplied by the tangents"

# All results of this operator are added up; others have one that matters, the first.
ADDED = "_prelu_kernel_backward"


@dataclass(frozen=True, slots=True)
class Finding:
    """A derivative that PyTorch has wrong, at one point.

    `inputs` has all arguments and `dtypes` those of tensors; complex numbers are lists.
    `argument` is whose gradient it is, or, in forward mode, whose tangent is 1.
    """

    entry: str
    argument: str
    mode: str
    kind: str
    inputs: dict[str, Any]
    dtypes: dict[str, str]
    torch: Any
    right: Any
    error: float
    wrong: int
    points: int
    text: bool
    formula: str
    better: str
    ours: bool


# -- points ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """An operator's arguments, tensors as columns of points; which are variables."""

    values: tuple[Any, ...]
    places: tuple[int, ...]

    @property
    def count(self) -> int:
        return next(v.numel() for v in self.values if isinstance(v, Tensor))

    def at(self, index: int) -> Call:
        """One point of them, as tensors of one element."""
        values = (v[index : index + 1] if isinstance(v, Tensor) else v
                  for v in self.values)  # fmt: skip
        return Call(tuple(values), self.places)

    def numbers(self, index: int) -> list[Any]:
        """The arguments at that point as Python's numbers."""
        return [v[index].item() if isinstance(v, Tensor) else v for v in self.values]


def calls(signature: Signature, thorough: bool = True) -> Iterator[Call]:
    """All points that the operator is asked at, the same ones every time."""
    draw = random.Random(signature.name)
    for way in (*samples.settings(signature), *WAYS.get(signature.name, ())):
        for dtype in (torch.float64, torch.float32):
            plain = samples.arguments(signature, dtype, way)
            places = _variables(signature, plain)
            if not places:
                continue
            columns = _columns(len(places), dtype, draw, COUNT if thorough else 40)
            yield _call(signature, plain, places, columns)
    if signature.name in HOLOMORPHIC and thorough:
        plain = samples.arguments(signature, torch.complex128)
        places = _variables(signature, plain)
        yield _call(signature, plain, places, _complex_columns(len(places), draw))
    yield from _mixed(signature, draw)


def _variables(signature: Signature, values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(
        i
        for i, (a, v) in enumerate(zip(signature.arguments, values, strict=True))
        if isinstance(v, Tensor) and v.dtype != torch.bool and a.name != BUFFER
    )


def _call(
    signature: Signature,
    values: Sequence[Any],
    places: Sequence[int],
    columns: Sequence[Tensor],
) -> Call:
    """The columns in their places; other tensors are repeated, or computed."""
    count = columns[0].numel()
    given = list(values)
    for place, column in zip(places, columns, strict=True):
        given[place] = column
    for i, argument in enumerate(signature.arguments):
        if argument.name == BUFFER:
            given[i] = (-given[i - 1].abs()).exp()
        elif isinstance(given[i], Tensor) and i not in places:
            given[i] = given[i].flatten().repeat(count)[:count]
    return Call(tuple(given), tuple(places))


def _columns(
    number: int, dtype: torch.dtype, draw: random.Random, count: int
) -> list[Tensor]:
    about = torch.finfo(dtype)
    domain = {about.bits: (-about.max, about.max)}
    finite = [x for x in edges(dtype).tolist() if abs(x) > about.tiny] + [0.0]
    finite = [x for x in finite if math.isfinite(x)]
    finite += [sign * x for x in ROUND if x < about.max for sign in (1, -1)]
    if number == 1:
        drawn = line(domain, (-1.0, 1.0, 0.5, 3.0))(about.bits, draw, count)
        points = [(x,) for x in finite] + list(drawn)
    elif number == 2:
        points = draw.sample([(x, y) for x in finite for y in finite], 2 * count)
    else:
        points = [tuple(draw.choices(finite, k=number)) for _ in range(2 * count)]
    if number > 1:
        one = [scales(domain)(about.bits, draw, count) for _ in range(number)]
        points += list(zip(*one, strict=True))
        points += [
            tuple(draw.uniform(-4, 4) for _ in range(number)) for _ in range(count // 3)
        ]
        points += [
            tuple(draw.uniform(0, 1) for _ in range(number)) for _ in range(count // 3)
        ]
    return [torch.tensor(c, dtype=dtype) for c in zip(*points, strict=True)]


def _complex_columns(number: int, draw: random.Random) -> list[Tensor]:
    """Of all magnitudes and directions, those near the axes included."""

    def part() -> float:
        if draw.random() < 0.4:
            return draw.uniform(-3, 3)
        return draw.choice((1, -1)) * 10.0 ** draw.choice(
            (-200, -160, -20, -8, 0, 1, 2, 8, 20, 154, 160, 200, 300)
        )

    return [
        torch.tensor(
            [complex(part(), part()) for _ in range(COMPLEX)], dtype=torch.complex128
        )
        for _ in range(number)
    ]


def _mixed(signature: Signature, draw: random.Random) -> Iterator[Call]:
    """Integers in the places of all tensors but one."""
    if signature.base.endswith("_backward"):
        return
    plain = samples.arguments(signature, torch.float64)
    places = _variables(signature, plain)
    if len(places) < 2:
        return
    for place in places:
        for dtype, low, high in ((torch.int64, -4, 6), (torch.uint8, 0, 255)):
            columns = [
                torch.tensor(
                    [draw.uniform(-4, 4) for _ in range(MIXED)], dtype=torch.float64
                )
                if i == place
                else torch.tensor(
                    [draw.randint(low, high) for _ in range(MIXED)], dtype=dtype
                )
                for i in places
            ]
            made = _call(signature, plain, places, columns)
            yield Call(made.values, (place,))


# -- derivatives -----------------------------------------------------------------------


class Operator:
    """PyTorch's operator, or ours, on a value for each argument."""

    def __init__(self, signature: Signature, operator: Any) -> None:
        self.signature = signature
        self.operator = operator

    def __call__(self, values: Sequence[Any]) -> list[Tensor]:
        arguments = self.signature.arguments
        given = list(values)
        if self.signature.inplace:
            given[0] = given[0].clone()
        pairs = list(zip(arguments, given, strict=True))
        args = [v for a, v in pairs if not a.kwarg_only]
        named = {a.name: v for a, v in pairs if a.kwarg_only}
        found = self.operator(*args, **named)
        results = [found] if isinstance(found, Tensor) else list(found)
        return results if self.signature.name == ADDED else results[:1]

    def derivative(self, call: Call, place: int, mode: str) -> Tensor:
        """The gradient of that argument for cotangents of 1, or in forward mode the
        result's tangent for a tangent of 1."""
        values = list(call.values)
        one = torch.ones_like(values[place])
        if mode == "forward":
            with forward_ad.dual_level():
                values[place] = forward_ad.make_dual(values[place], one)
                moved = [forward_ad.unpack_dual(r).tangent for r in self(values)]
                return sum((m for m in moved if m is not None), torch.zeros_like(one))
        leaf = values[place] = values[place].detach().clone().requires_grad_()
        results = [r for r in self(values) if r.requires_grad]
        if not results:
            raise RuntimeError("there is no derivative")
        ones = [torch.ones_like(r) for r in results]
        (found,) = grad(results, leaf, ones, allow_unused=True)
        return torch.zeros_like(leaf) if found is None else found


def theirs(signature: Signature) -> Operator:
    return Operator(signature, catalogue.aten(signature.name))


def ours(signature: Signature) -> Operator:
    return Operator(signature, stepwise(signature.name))


def by_text(compiler: Compiler, finding: Finding) -> Any:
    """The derivative as the compiler reads the formula, by the interpreter."""
    arguments = compiler.operator(finding.entry).signature.arguments
    values: dict[str, Any] = {}
    given = [_spec(a, finding, values) for a in arguments]
    program = compiler.program(finding.entry, given)
    value = interpret(compiler.expand(program).roots, values)
    wanted = [str(n.attrs) == finding.argument for n in program.inputs]
    if finding.mode == "forward":
        derived = compiler.jvp(program, wanted)
    else:
        count = len(program.outputs)
        every = finding.entry == ADDED
        derived = compiler.vjp(program, wanted, [every or i == 0 for i in range(count)])
    for leaf, (kind, place) in zip(
        derived.program.inputs, derived.sources, strict=True
    ):
        if kind == "output":
            values[str(leaf.attrs)] = value[place]
        elif kind != "input":
            values[str(leaf.attrs)] = 1.0
    found = interpret(compiler.expand(derived.program).roots, values)
    return sum(found) if finding.mode == "forward" else found[0]


def _spec(argument: Argument, finding: Finding, values: dict[str, Any]) -> Spec:
    name = argument.name
    value = number(finding.inputs[name])
    if argument.is_tensor and value is not None:
        values[name] = value
        return TensorSpec(FROM_TORCH[getattr(torch, finding.dtypes[name])])
    if argument.type.base == "Scalar" and value is not None:
        values[name] = value
        return ScalarSpec("float" if isinstance(value, float) else "int")
    return Static(value)


def number(value: Any) -> Any:
    """The number of the data file."""
    return complex(*value) if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """The number for the data file."""
    return [value.real, value.imag] if isinstance(value, complex) else value


# -- judging ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Truth:
    """The right derivative and how far away it is still right, relatively."""

    right: Any
    bound: float
    about: torch.finfo

    def verdict(self, got: complex) -> str | None:
        """What is wrong with the number, if something is."""
        if math.isnan(got.real) or math.isnan(got.imag):
            return "NaN"
        if not (math.isfinite(got.real) and math.isfinite(got.imag)):
            return "infinite"
        if abs(self.right) < self.about.tiny:
            return "wrong" if abs(got) > NOTABLE else None
        if not got:
            return "0"
        return "wrong" if self.error(got) > self.bound else None

    def error(self, got: complex) -> float:
        """The relative error; infinite for what is no number, or of what is 0."""
        whole = got if isinstance(self.right, mpc) else got.real
        if not (math.isfinite(got.real) and math.isfinite(got.imag)):
            return math.inf
        if not self.right:
            return math.inf if got else 0.0
        return float(abs(mpmath.mpmathify(whole) - self.right) / abs(self.right))


def truth(
    name: str,
    numbers: Sequence[Any],
    call: Call,
    place: int,
    mode: str,
    got: Sequence[complex],
) -> Truth | None:
    """What is right at that point; None where nothing can be said of it: no derivative,
    or one that the dtype does not hold, or that hangs on the last bits of the point.

    How far it does is asked only where one of the numbers that were got is not right.
    """
    about = torch.finfo(call.values[place].dtype)
    args = exactly(numbers, call)
    try:
        right = slope(VALUES[name], args, place)
        if abs(right) > about.max:
            return None
        turned = mode == "backward" and isinstance(right, mpc)
        wanted = mpmath.conj(right) if turned else right
        ideal = Truth(wanted, ALLOWED * about.eps, about)
        if all(ideal.verdict(x) is None for x in got):
            return ideal
        moved = mpf(0)
        for i in call.places:
            if _floating(call.values[i]):
                moved += _change(name, args, i, place, about.eps, right)
    except Undefined:
        return None
    change = float(moved / abs(right)) if abs(right) >= about.tiny else 0.0
    if change + about.eps > STEEP / ALLOWED or abs(right) + moved > about.max:
        return None
    return Truth(wanted, ALLOWED * (about.eps + change), about)


def _change(
    name: str, args: Sequence[Any], i: int, place: int, eps: float, right: Any
) -> Any:
    """What the derivative changes by where argument i moves by a unit in its last
    place, up or down; Undefined where it can do neither."""
    found: list[Any] = []
    for sign in (1, -1):
        more, less = 1 + sign * mpf(eps), 1 - sign * mpf(eps)
        x, moved = args[i], list(args)
        whole = isinstance(x, mpc)
        moved[i] = mpc(x.real * more, x.imag * less) if whole else x * more
        with suppress(Undefined):
            found.append(abs(slope(VALUES[name], moved, place) - right))
    if not found:
        raise Undefined("it is defined at the point alone")
    return max(found)


def exactly(numbers: Sequence[Any], call: Call) -> list[Any]:
    """The numbers of tensors in mpmath, those of other arguments as they are."""
    return [
        v
        if not isinstance(t, Tensor) or isinstance(v, bool)
        else mpc(v)
        if isinstance(v, complex)
        else mpf(v)
        for v, t in zip(numbers, call.values, strict=True)
    ]


def computes(name: str, numbers: Sequence[Any], call: Call, got: complex) -> bool:
    """Whether arguments and value are normal numbers, or 0, and the value is right: the
    derivative of another one says nothing about a formula."""
    about = torch.finfo(next(v.dtype for v in call.values if _floating(v)))
    variables = [numbers[i] for i in call.places if _floating(call.values[i])]
    if not all(_normal(x, about) for x in (*variables, got)):
        return False
    try:
        right = value(VALUES[name], exactly(numbers, call))
    except Undefined:
        return False
    whole = mpmath.mpmathify(got if isinstance(right, mpc) else got.real)
    return bool(abs(whole - right) <= 1e-3 * abs(right))


def _normal(number: complex, about: torch.finfo) -> bool:
    size = abs(number)
    return math.isfinite(size) and (not size or size >= about.tiny)


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and (
        value.is_floating_point() or value.is_complex()
    )


# -- the audit of an entry -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an entry: points asked, by formula and dtype, findings, and where
    our own derivative is wrong although PyTorch's is not."""

    entry: str
    points: int
    findings: list[Finding]
    mistakes: list[str]
    odd: int


def audit(name: str, thorough: bool = True) -> Result:
    """Ask one entry of PyTorch's file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    entry = _theirs().entries[name]
    seen: Counter[tuple[str, str]] = Counter()
    bad: dict[tuple[str, str, str], list[tuple[Any, ...]]] = {}
    mistakes: list[str] = []
    odd = 0
    for call in calls(entry.signature, thorough):
        for mode, place in _formulas(entry, call):
            try:
                values = theirs(entry.signature)(call.values)[0].tolist()
                got = theirs(entry.signature).derivative(call, place, mode).tolist()
            except REFUSALS:
                continue
            mine = _mine(entry, call, place, mode, len(got))
            argument = entry.signature.arguments[place].name
            for i, (found, own) in enumerate(zip(got, mine, strict=True)):
                numbers = call.numbers(i)
                if not computes(name, numbers, call, values[i]):
                    odd += 1
                    continue
                true = truth(name, numbers, call, place, mode, (found, own))
                if true is None:
                    continue
                seen[argument, mode] += 1
                kind = true.verdict(found)
                if kind is not None:
                    again = theirs(entry.signature).derivative(call.at(i), place, mode)
                    kind = true.verdict(again.item())
                right = true.verdict(own) is None
                if kind is not None:
                    bad.setdefault((argument, mode, kind), []).append(
                        (call, i, place, again.item(), true, right)
                    )
                elif not right:
                    mistakes.append(
                        f"{name} {argument} {mode} at {numbers} in "
                        f"{call.values[place].dtype}: {own}, not "
                        f"{mpmath.nstr(true.right, 17)}"
                    )
    findings = [
        _finding(entry, key, cases, seen[key[0], key[1]]) for key, cases in bad.items()
    ]
    return Result(name, sum(seen.values()), findings, mistakes, odd)


@cache
def _theirs() -> Compiler:
    return compiler_of(torch_file())


def _formulas(entry: Entry, call: Call) -> Iterator[tuple[str, int]]:
    """The gradient by each variable, and the tangent where it has its own formula."""
    own = any(not f.text.startswith("auto_") for f in entry.forwards)
    names = [a.name for a in entry.signature.arguments]
    for place in call.places:
        formula = next((f for f in entry.gradients if names[place] in f.names), None)
        if formula is None or formula.text.startswith(NONE):
            continue
        yield "backward", place
        if own:
            yield "forward", place


def _mine(entry: Entry, call: Call, place: int, mode: str, count: int) -> list[complex]:
    """Our derivatives; NaN where we have none."""
    try:
        return ours(entry.signature).derivative(call, place, mode).tolist()
    except Exception as error:
        print(f"{entry.name} {mode}: {type(error).__name__}: {error}", file=sys.stderr)
        return [math.nan] * count


def _finding(
    entry: Entry, key: tuple[str, str, str], cases: Sequence[Any], points: int
) -> Finding:
    """The plainest of the cases."""
    argument, mode, kind = key
    call, index, _, got, true, right = min(cases, key=_plainness)
    names = [a.name for a in entry.signature.arguments]
    inputs = dict(zip(names, map(plain, call.numbers(index)), strict=True))
    dtypes = {
        n: str(v.dtype).removeprefix("torch.")
        for n, v in zip(names, call.values, strict=True)
        if isinstance(v, Tensor)
    }
    formula = _text(entry, argument, mode)
    exact = true.right
    draft = Finding(
        entry.name, argument, mode, kind, inputs, dtypes, plain(got),
        [float(exact.real), float(exact.imag)]
        if isinstance(exact, mpc)
        else float(exact),
        true.error(got), len(cases), points, False, formula, "", right,
    )  # fmt: skip
    return _explained(draft, true)


def _plainness(case: tuple[Any, ...]) -> tuple[Any, ...]:
    """First where ours is right, then of ordinary size, in float64, and short."""
    call, index, place, got, true, right = case
    numbers = [call.values[i][index].item() for i in call.places]
    mild = true.verdict(got) == "wrong" and true.error(got) < 0.01
    length = sum(len(repr(x)) for x in numbers)
    single = call.values[place].dtype != torch.float64
    return (
        not right,
        mild,
        round(extent(numbers) / 3),
        length,
        single,
        numbers_key(numbers),
    )


def numbers_key(numbers: Sequence[Any]) -> list[float]:
    return [abs(x) for x in numbers]


def extent(numbers: Iterable[Any]) -> float:
    """How far from 1 the magnitudes are, in decades, together."""
    parts = [p for x in numbers for p in (x.real, x.imag)]
    return sum(abs(math.log10(abs(p))) for p in parts if p)


def _explained(draft: Finding, true: Truth) -> Finding:
    """With what the text of the formula gives, and with a better one."""
    read = complex(by_text(_theirs(), draft))
    faulty = true.verdict(read) is not None
    better = ""
    if draft.ours:
        entry = default_compiler().entries[draft.entry]
        text = _text(entry, draft.argument, draft.mode)
        better = text if text != draft.formula else _of_helpers(entry, draft)
    return Finding(**{**_fields(draft), "text": faulty, "better": better})


def _fields(finding: Finding) -> dict[str, Any]:
    return {k: getattr(finding, k) for k in Finding.__slots__}


def _text(entry: Entry, argument: str, mode: str) -> str:
    """The formula as it stands in its file, on one line."""
    formulas = entry.forwards if mode == "forward" else entry.gradients
    found = (f for f in formulas if mode == "forward" or argument in f.names)
    formula = next(found, None)
    return DERIVED if formula is None else " ".join(formula.text.split())


def _of_helpers(entry: Entry, draft: Finding) -> str:
    """Our formulas for the functions that the formula calls; else their names."""
    formulas = entry.forwards if draft.mode == "forward" else entry.gradients
    called = [
        name
        for formula in formulas
        if draft.mode == "forward" or draft.argument in formula.names
        if formula.expr is not None
        for name in dict.fromkeys(c.name for c in called_functions(formula.expr))
    ]
    functions = default_compiler().functions.by_name
    texts: list[str] = []
    for name in dict.fromkeys(called):
        body = functions[name].body if name in functions else None
        if isinstance(body, FunctionEntry):
            parts = [" ".join(f.text.split()) for f in body.results.values()]
            texts.append(f"`{name}` as `{'`, `'.join(parts)}`")
    if not texts:
        known = [name for name in dict.fromkeys(called) if name in functions]
        texts = [f"`{name}` as it is computed here" for name in known]
    return f"the same, with {' and '.join(texts)}"


# -- the page --------------------------------------------------------------------------


def page(found: Document) -> str:
    """The page: what was asked and how, the tables, the formulas."""
    findings = found.findings
    lost = sorted((f for f in findings if f.kind != "wrong"), key=_gravity)
    inexact = sorted((f for f in findings if f.kind == "wrong"), key=_gravity)
    lines = [
        *_introduction(found),
        "## NaN, infinite, or 0",
        "",
        "The derivative is finite, and not 0 where PyTorch gives 0. What happens to",
        "the most ordinary numbers comes first.",
        "",
        *_table(lost),
        "",
        "## Inexact",
        "",
        "PyTorch gives another number; the largest relative errors come first.",
        "",
        *_table(inexact),
        "",
        "## Formulas",
        "",
        "PyTorch's formula, and a better one. `open`: here it is not right either.",
        "",
        *_formula_lines(findings),
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Document:
    """All that the page is made of."""

    torch: str
    asked: int
    left: dict[str, list[str]]
    points: int
    findings: list[Finding]


def _introduction(found: Document) -> Iterator[str]:
    entries = {f.entry for f in found.findings}
    total = found.asked + sum(map(len, found.left.values()))
    paragraphs = INTRODUCTION.format(
        asked=found.asked,
        total=total,
        points=found.points,
        wrong=len(entries),
        torch=found.torch,
        allowed=ALLOWED,
        steep=1 / STEEP,
    ).splitlines()
    for paragraph in paragraphs:
        yield from _wrapped(paragraph) or [""]
    for reason, names in found.left.items():
        listed = ", ".join(f"`{n}`" for n in names)
        yield from _wrapped(f"- {reason}: {listed}")
    yield ""


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        88,
        subsequent_indent="  " if text.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _gravity(finding: Finding) -> tuple[Any, ...]:
    """Worse ones first."""
    numbers = [number(finding.inputs[n]) for n in finding.dtypes]
    far = round(extent(numbers) / 3)
    size = min(finding.error, 1e300) if finding.kind == "wrong" else 1.0
    rank = (-round(math.log10(size)), far, KINDS.index(finding.kind))
    return *rank, finding.entry, finding.argument, finding.mode


def _table(findings: Sequence[Finding]) -> Iterator[str]:
    yield f"| {' | '.join(HEAD)} |"
    yield "|" + " --- |" * len(HEAD)
    for f in findings:
        numbers = ", ".join(
            f"{n} = {shown(v)}" for n, v in f.inputs.items() if v is not None
        )
        error = "" if f.kind != "wrong" else shown_error(f.error)
        dtype = f.dtypes[f.argument]
        others = sorted({d for d in f.dtypes.values() if d not in (dtype, "bool")})
        cells = [
            f"`{f.entry}`",
            _derivative(f),
            numbers,
            ", ".join([dtype, *others]),
            shown(f.torch),
            shown(f.right),
            error,
            f"{f.wrong} of {f.points}",
            "text" if f.text else "C++",
        ]
        yield f"| {' | '.join(cells)} |"


def _derivative(finding: Finding) -> str:
    mark = "tangent of" if finding.mode == "forward" else "by"
    return f"{mark} `{finding.argument}`"


def shown(value: Any) -> str:
    """A value in a table."""
    if isinstance(value, list):
        real, imaginary = value
        sign = "-" if math.copysign(1, imaginary) < 0 else "+"
        return f"{shown(real)} {sign} {shown(abs(imaginary))}i"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def shown_error(error: float) -> str:
    """An error in a table."""
    return "∞" if math.isinf(error) else f"{error:.1e}"


def _formula_lines(findings: Sequence[Finding]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for f in sorted(findings, key=lambda f: (f.entry, f.mode, f.argument)):
        groups.setdefault((f.entry, f.mode, f.formula), []).append(f)
    for (entry, mode, formula), group in groups.items():
        names = ", ".join(f"`{n}`" for n in dict.fromkeys(f.argument for f in group))
        key = f"forward, tangent of {names}" if mode == "forward" else names
        yield f"- `{entry}`, {key}"
        yield f"  - PyTorch: `{formula}`"
        for text in dict.fromkeys(_better(f) for f in group):
            yield f"  - {text}"


def _better(finding: Finding) -> str:
    text = finding.better
    if text:
        plain = text == DERIVED or text.startswith("the same, with ")
        return f"better: {text}" if plain else f"better: `{text}`"
    if re.search(r"\bresult\b", finding.formula):
        return "open: it knows the result, which has lost what is needed"
    return "open"


# -- the data --------------------------------------------------------------------------

REASONS = {
    "constant": "the result does not depend on the argument, or is written over it",
    "copies": "copies, conjugates and parts of complex numbers",
    "quantization": "a derivative by convention",
    "steps": "steps",
}
_CONSTANT = "eq_ ne_ lt_ le_ gt_ ge_ fill fill_ zero_"
_COPIES = "clone complex _conj_physical conj_physical_"


def _reason(name: str) -> str:
    base = name.partition(".")[0]
    if base in _CONSTANT.split():
        return REASONS["constant"]
    if base in _COPIES.split():
        return REASONS["copies"]
    return REASONS["quantization" if "quantize" in base else "steps"]


def load(path: Path = DATA) -> Document:
    """What the tool found last."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    findings = [Finding(**f) for f in data.pop("findings")]
    return Document(**data, findings=findings)


def store(found: Document) -> None:
    """The page and its data, written."""
    data = asdict(found)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    head = "# What tools/audit.py found, and docs/audit.md shows.\n"
    DATA.write_text(head + text, encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")


def pointwise() -> list[str]:
    """The entries of PyTorch's file that are fused."""
    return [
        item.entry.name for item in items(torch_file()) if item.verdict.kind == "fused"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="OPERATOR")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    names = pointwise()
    known = [n for n in names if n in VALUES]
    for name in given.names:
        if name not in known:
            guess = nearest(name, known)
            hint = f'; did you mean "{guess}"?' if guess else ""
            parser.error(f'"{name}" is no entry that is asked{hint}')
    asked = given.names or known
    results: list[Result] = []
    for result in spread(audit, asked, given.jobs):
        results.append(result)
        print(f"{result.entry}: {result.points} points", file=sys.stderr)
        for text in result.mistakes:
            print(f"  ours: {text}", file=sys.stderr)
    left: dict[str, list[str]] = {}
    for name in names:
        if name not in VALUES:
            left.setdefault(_reason(name), []).append(name)
    found = Document(
        torch.__version__.partition("+")[0],
        len(asked),
        left,
        sum(r.points for r in results),
        [f for r in results for f in r.findings],
    )
    if given.names:
        print(page(found))
    else:
        store(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
