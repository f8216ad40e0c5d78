"""THE OP TABLE: one row a primitive.

Comes in: nothing. Goes out: `PRIMITIVES`, which the lowering, the verifier, the
interpreter, the printers and the parametrised tests iterate. To add a primitive is to
add a row here; its derivative is the entry of its ATen operator in derivatives.yaml.

Spellings are format strings over the printed arguments: {0}, {1}, ...; `{f}` is C's
suffix of a float function (`f` for float32), `{t}` the element type, `{u}` the unsigned
integer type of that width. A spelling that differs between floats and integers is given
as (floating, integral). C's arguments are always plain variables or literals, so that
`{0}` may occur twice.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fuser import scalars as py

# How the dtype of the result follows from the arguments, at the level of nodes.
Rule = Literal["same", "bool", "logical", "select", "real", "complex"]
# How PyTorch promotes the arguments of the ATen operator.
Promotes = Literal[
    "default", "no_opmath", "int_to_float", "always_bool", "complex_to_float", "keep"
]
Spelling = str | tuple[str, str]
Kinds = frozenset[str]

FLOAT: Kinds = frozenset({"float"})
REAL: Kinds = frozenset({"int", "float"})
ANY: Kinds = frozenset({"bool", "int", "float", "complex"})
FIELD: Kinds = frozenset({"float", "complex"})
ARITH: Kinds = frozenset({"int", "float", "complex"})
BITS: Kinds = frozenset({"bool", "int"})
ORDER: Kinds = frozenset({"bool", "int", "float"})
COMPLEX: Kinds = frozenset({"complex"})
BOOLEAN: Kinds = frozenset({"bool"})


@dataclass(frozen=True, slots=True)
class Primitive:
    """An operation that every target spells itself.

    `kinds` are the dtype kinds its arguments may have, `domain` the open interval that
    tests draw each argument from, `aten` the operator whose entry in derivatives.yaml
    is its derivative (and whose torch function, `torch`, is the reference).
    """

    name: str
    aten: str
    arity: int
    kinds: Kinds
    rule: Rule
    promotes: Promotes
    c: Spelling
    triton: Spelling
    python: Callable[..., Any]
    torch: str
    domain: tuple[float, float]

    def spelling(self, target: Literal["c", "triton"], integral: bool) -> str:
        text = self.c if target == "c" else self.triton
        return text if isinstance(text, str) else text[integral]


PRIMITIVES: dict[str, Primitive] = {}
BY_ATEN: dict[str, Primitive] = {}


def row(
    name: str,
    kinds: Kinds,
    rule: Rule,
    promotes: Promotes,
    c: Spelling,
    triton: Spelling,
    python: Callable[..., Any],
    *,
    aten: str | None = None,
    torch: str | None = None,
    domain: tuple[float, float] = (-3.0, 3.0),
) -> None:
    """Add a primitive; its arity is read off the spelling in C."""
    text = c if isinstance(c, str) else c[0]
    arity = 1 + max(i for i in range(3) if f"{{{i}}}" in text)
    aten = aten or name
    PRIMITIVES[name] = BY_ATEN[aten] = Primitive(
        name,
        aten,
        arity,
        kinds,
        rule,
        promotes,
        c,
        triton,
        python,
        torch or aten.split(".")[0],
        domain,
    )


def function(name: str, python: Callable[..., Any], **more: Any) -> None:
    """Add an elementary function: C's `name`, the vendor library's `name` in Triton."""
    c = more.pop("c", f"{name}{{f}}({{0}})")
    triton = more.pop("triton", f"libdevice.{name}({{0}})")
    kinds = more.pop("kinds", FIELD)
    row(name, kinds, "same", "int_to_float", c, triton, python, **more)


def compare(name: str, sign: str, python: Callable[..., Any], kinds: Kinds) -> None:
    text = f"({{0}} {sign} {{1}})"
    row(name, kinds, "bool", "always_bool", text, text, python, aten=f"{name}.Tensor")


# fmt: off
# Arithmetic. Integers wrap around; their division is C's and truncates.
row("add", ANY, "same", "default", "({0} + {1})", "({0} + {1})", py.add,
    aten="add.Tensor")
row("sub", ARITH, "same", "default", "({0} - {1})", "({0} - {1})", py.sub,
    aten="sub.Tensor")
row("mul", ANY, "same", "default", "({0} * {1})", "({0} * {1})", py.mul,
    aten="mul.Tensor")
row("div", FIELD, "same", "int_to_float", "({0} / {1})", "({0} / {1})", py.div,
    aten="div.Tensor")
# Triton's minus is 0 - x, which has no -0.
row("neg", ARITH, "same", "default", "(-{0})", ("({0} * -1.0)", "(-{0})"), py.neg)
row("idiv", frozenset({"int"}), "same", "default", "quotient_{t}({0}, {1})",
    "({0} // {1})", py.idiv, aten="_idiv", torch="_idiv", domain=(1, 9))
row("imod", frozenset({"int"}), "same", "default", "remainder_{t}({0}, {1})",
    "({0} % {1})", py.imod, aten="_imod", torch="fmod", domain=(1, 9))
row("fmod", FLOAT, "same", "default", "fmod{f}({0}, {1})", "libdevice.fmod({0}, {1})",
    py.total(math.fmod), aten="fmod.Tensor", domain=(0.2, 5.0))
row("pow", FIELD, "same", "default", "pow{f}({0}, {1})", "libdevice.pow({0}, {1})",
    py.power, aten="pow.Tensor_Tensor", domain=(0.2, 3.0))
row("atan2", FLOAT, "same", "int_to_float", "atan2{f}({0}, {1})",
    "libdevice.atan2({0}, {1})", math.atan2)
row("copysign", FLOAT, "same", "int_to_float", "copysign{f}({0}, {1})",
    "libdevice.copysign({0}, {1})", math.copysign, aten="copysign.Tensor")
# A NaN argument wins in maximum and minimum and loses in fmax and fmin. Of equal ones,
# which differ in the sign of zero, C takes the first, as PyTorch mostly does.
row("maximum", ORDER, "same", "default",
    ("({0} != {0} || {0} >= {1} ? {0} : {1})", "({0} > {1} ? {0} : {1})"),
    ("tl.maximum({0}, {1}, tl.PropagateNan.ALL)", "tl.maximum({0}, {1})"), py.maximum)
row("minimum", ORDER, "same", "default",
    ("({0} != {0} || {0} <= {1} ? {0} : {1})", "({0} < {1} ? {0} : {1})"),
    ("tl.minimum({0}, {1}, tl.PropagateNan.ALL)", "tl.minimum({0}, {1})"), py.minimum)
row("fmax", ORDER, "same", "default",
    ("({1} != {1} || {0} >= {1} ? {0} : {1})", "({0} > {1} ? {0} : {1})"),
    "tl.maximum({0}, {1})", py.fmax)
row("fmin", ORDER, "same", "default",
    ("({1} != {1} || {0} <= {1} ? {0} : {1})", "({0} < {1} ? {0} : {1})"),
    "tl.minimum({0}, {1})", py.fmin)
row("abs", ARITH, "real", "complex_to_float",
    ("fabs{f}({0})", "({0} < 0 ? -{0} : {0})"), "tl.abs({0})", py.absolute)
row("sgn", ARITH, "same", "default", "(({t})({0} > 0) - ({t})({0} < 0))",
    "(({0} > 0).to({t}) - ({0} < 0).to({t}))", py.sgn)
row("signbit", FLOAT, "bool", "always_bool", "(copysign{f}(1, {0}) < 0)",
    "(libdevice.signbit({0}) != 0)", py.signbit)

# Rounding to integers.
row("floor", FLOAT, "same", "default", "floor{f}({0})", "tl.floor({0})",
    py.rounding(math.floor))
row("ceil", FLOAT, "same", "default", "ceil{f}({0})", "tl.ceil({0})",
    py.rounding(math.ceil))
row("trunc", FLOAT, "same", "default", "trunc{f}({0})", "libdevice.trunc({0})",
    py.rounding(math.trunc))
row("round", FLOAT, "same", "default", "nearbyint{f}({0})", "libdevice.nearbyint({0})",
    py.rounding(round))

# Elementary functions.
function("sqrt", py.sqrt, domain=(0.1, 9.0))
function("rsqrt", py.rsqrt, c="(1 / sqrt{f}({0}))", domain=(0.1, 9.0))
function("exp", py.exp)
function("exp2", py.exp2)
function("expm1", py.expm1)
function("log", py.log, domain=(0.1, 9.0))
function("log2", py.log2, domain=(0.1, 9.0))
function("log10", py.log10, domain=(0.1, 9.0))
function("log1p", py.log1p, domain=(-0.9, 9.0))
function("sin", py.total(math.sin, cmath.sin))
function("cos", py.total(math.cos, cmath.cos))
function("tan", py.total(math.tan, cmath.tan), domain=(-1.4, 1.4))
function("asin", py.total(math.asin, cmath.asin), domain=(-0.95, 0.95))
function("acos", py.total(math.acos, cmath.acos), domain=(-0.95, 0.95))
function("atan", py.total(math.atan, cmath.atan))
function("sinh", py.sinh)
function("cosh", py.total(math.cosh, cmath.cosh))
function("tanh", py.total(math.tanh, cmath.tanh))
function("asinh", py.total(math.asinh, cmath.asinh))
function("acosh", py.total(math.acosh, cmath.acosh), domain=(1.1, 9.0))
function("atanh", py.atanh, domain=(-0.95, 0.95))
function("erf", math.erf, kinds=FLOAT)
function("erfc", math.erfc, kinds=FLOAT)

# Comparison and logic.
compare("eq", "==", operator.eq, ANY)
compare("ne", "!=", operator.ne, ANY)
compare("lt", "<", operator.lt, ORDER)
compare("le", "<=", operator.le, ORDER)
compare("gt", ">", operator.gt, ORDER)
compare("ge", ">=", operator.ge, ORDER)
row("isnan", FIELD, "bool", "always_bool", "({0} != {0})", "({0} != {0})", py.isnan)
row("logical_and", BOOLEAN, "logical", "always_bool", "({0} & {1})", "({0} & {1})",
    py.both)
row("logical_or", BOOLEAN, "logical", "always_bool", "({0} | {1})", "({0} | {1})",
    py.either)
row("logical_xor", BOOLEAN, "logical", "always_bool", "({0} ^ {1})", "({0} ^ {1})",
    py.differ)
row("logical_not", BOOLEAN, "logical", "always_bool", "(!{0})", "({0} == 0)",
    operator.not_)
row("bitwise_and", BITS, "same", "default", "({0} & {1})", "({0} & {1})", py.both,
    aten="bitwise_and.Tensor")
row("bitwise_or", BITS, "same", "default", "({0} | {1})", "({0} | {1})", py.either,
    aten="bitwise_or.Tensor")
row("bitwise_xor", BITS, "same", "default", "({0} ^ {1})", "({0} ^ {1})", py.differ,
    aten="bitwise_xor.Tensor")
row("bitwise_not", frozenset({"int"}), "same", "default", "(~{0})", "(~{0})",
    operator.invert)
# A shift by less than nothing, or by all bits and more, leaves no bit of the value.
row("bitwise_left_shift", frozenset({"int"}), "same", "default",
    "({1} < 0 || {1} >= (int)(8 * sizeof({0})) ? 0 : {0} << {1})",
    "tl.where(({1} < 0) | ({1} >= {0}.dtype.primitive_bitwidth), 0, {0} << {1})",
    py.left_shift, aten="bitwise_left_shift.Tensor", domain=(0, 7))
# To the right the sign is left, which is 0 for uint8.
row("bitwise_right_shift", frozenset({"int"}), "same", "default",
    "({1} < 0 || {1} >= (int)(8 * sizeof({0})) ? -({0} < 0) : {0} >> {1})",
    "tl.where(({1} < 0) | ({1} >= {0}.dtype.primitive_bitwidth), "
    "({0} >> ({0}.dtype.primitive_bitwidth - 1)) >> 1, {0} >> {1})",
    py.right_shift, aten="bitwise_right_shift.Tensor", domain=(0, 7))

# Selection, and complex numbers.
row("where", ANY, "select", "no_opmath", "({0} ? {1} : {2})", "tl.where({0}, {1}, {2})",
    py.where, aten="where.self")
row("complex", FLOAT, "complex", "no_opmath", "{0}, {1}", "{0}, {1}", complex)
row("real", COMPLEX, "real", "keep", "{0}", "{0}", py.real)
row("imag", COMPLEX, "real", "keep", "{0}", "{0}", py.imag)
row("conj", COMPLEX, "same", "keep", "{0}", "{0}", py.conj, aten="_conj",
    torch="conj_physical")
# fmt: on
