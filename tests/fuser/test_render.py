"""Rendering: safe whatever the formulas are, readable, and nothing left out."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from jinja2 import UndefinedError

from fuser import dtypes, ir
from fuser.dtypes import DType, bfloat16, bool_, float16, float32, float64, int64
from fuser.kernel import Access, Kernel, Layout
from fuser.names import Namer
from fuser.program import Output, Program
from fuser.render import lines, render, render_template
from fuser.resources import resource
from fuser.schedule import schedule
from fuser.targets import names, target
from fuser.targets.base import bare

NATIVE = target("native")
A, B = ir.input_("a", float32), ir.input_("b", float32)


def kernel(comment: tuple[str, ...] = (), rank: int = 1) -> Kernel:
    root = ir.make("add", float32, (A, B))
    output = Output("result", root, float32)
    program = Program("add.Tensor", (A, B), (), (output,), comment)
    access = (Access.LINEAR, Access.UNIFORM, Access.LINEAR)
    return schedule(program, Layout(rank, access, int64))


@pytest.mark.parametrize("name", names())
def test_every_target_has_a_template(name: str) -> None:
    assert target(name).name == name
    assert (resource("templates") / target(name).template).is_file()
    assert target(name) is target(name)


def test_an_unknown_target_gets_a_suggestion() -> None:
    with pytest.raises(KeyError, match='did you mean "native"'):
        target("nativ")


@pytest.mark.parametrize("name", names())
def test_the_header_says_what_is_computed(name: str) -> None:
    source = render(kernel(("add(Tensor self) -> Tensor", "self: grad")), target(name))
    assert "add(Tensor self) -> Tensor" in source
    assert "self: grad" in source


EVIL = [
    "x */ int evil(void) { return 1; } /*",
    'x """ + evil() + """',
    "x \\",
    "x ??/",
    "x\nevil();",
    "x\r\nevil();",
    "x\u2028evil()\x0bevil()\x85evil()",
    "{{ evil }} {% evil %}",
]


@pytest.mark.parametrize("text", EVIL)
@pytest.mark.parametrize("name", names())
def test_comments_cannot_leave_their_line(name: str, text: str) -> None:
    clean = render(kernel(("x",)), target(name)).splitlines()
    source = render(kernel((text,)), target(name))
    assert source.isascii()
    assert "\\" not in source
    changed = [line for line in source.split("\n") if line not in clean]
    assert len(changed) == 1
    assert changed[0].startswith(("//", "#"))
    assert "??" not in changed[0]


def test_names_that_are_no_identifiers_are_made_so() -> None:
    bad = ir.input_("a; evil()", float32)
    output = Output("*/ evil", ir.make("exp", float32, (bad,)), float32)
    program = Program('x"); evil(', (bad,), (), (output,))
    k = schedule(program, Layout(1, (Access.LINEAR,) * 2, int64))
    for name in names():
        code = re.sub(r"(?m)(//|#).*$", "", render(k, target(name)))
        assert "evil(" not in code.replace("x_evil", "")
        assert ";  evil" not in code


def test_names_of_a_template_are_given_to_nothing_else() -> None:
    files = ("native.c.jinja", "native_elements.c.jinja")
    text = "".join((resource("templates") / name).read_text() for name in files)
    code = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|//.*|#.*", " ", text)
    words = set(re.findall(r"[A-Za-z_]\w*", code))
    assert {"compute", "status", "tile_end"} <= words
    helpers = (resource("templates") / "native_helpers.h.jinja").read_text()
    words |= set(re.findall(r"static inline \w+ (\w+)\(", helpers))
    free = [word for word in words if Namer().exactly(word) == word]
    assert not free


def test_a_name_that_a_template_misses_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render_template("native.c.jinja", name="x")


def test_templates_compute_nothing() -> None:
    """Arithmetic and indices are the scheduler's and the printer's."""
    for path in resource("templates").glob("*.jinja"):
        inside = re.findall(r"\{\{(.*?)\}\}|\{%(.*?)%\}", path.read_text())
        for code in ("".join(parts) for parts in inside):
            text = re.sub(r'"[^"]*"', "", code).strip("- ")
            assert not re.search(r"[+*/%\[\]]|\s-\s", text), f"{path.name}: {code}"


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_lines_are_not_too_long(rank: int) -> None:
    long = ("a formula that is long " * 20,)
    k = kernel(long, rank)
    many = replace(k, name="x" * 40)
    for source in (render(k, NATIVE), render(many, NATIVE)):
        assert max(map(len, source.splitlines())) <= 88
        assert not any(line.endswith(" ") for line in source.splitlines())
        assert "\n\n\n" not in source
        assert source.endswith("}\n")


def test_lines() -> None:
    assert lines(["a", "", "b"], 2) == "  a\n\n  b"
    assert lines([]) == ""


def test_bare() -> None:
    assert bare("(a + b)") == "a + b"
    assert bare("(a) + (b)") == "(a) + (b)"
    assert bare("f(a)") == "f(a)"
    assert bare("((a) + (b))") == "(a) + (b)"


LITERALS = [
    (0.1, float32, "0.1f"),
    (0.1, float64, "0.1"),
    (1 / 3, float32, "0.33333334f"),
    (1.0, float32, "1.0f"),
    (1e30, float32, "1e+30f"),
    (1e300, float32, "INFINITY"),
    (-math.inf, float64, "(-INFINITY)"),
    (math.nan, float32, "NAN"),
    (-0.0, float32, "(-0.0f)"),
    (1e-45, float32, "1e-45f"),
    (-2.5, float64, "(-2.5)"),
    (2.0**-1074, float64, "5e-324"),
    (1.0, float16, "0x3c00"),
    (65520.0, float16, "0x7c00"),
    (-1.0, bfloat16, "0xbf80"),
    (1.00390625, bfloat16, "0x3f80"),  # a tie, to even
    (math.nan, bfloat16, "0x7fc0"),
    (True, bool_, "true"),
    (7, int64, "7LL"),
    (-7, dtypes.int32, "(-7)"),
    (-(2**31), dtypes.int32, "INT32_MIN"),
    (-(2**63), int64, "INT64_MIN"),
    (-128, dtypes.int8, "(-128)"),
    (300, dtypes.uint8, "44"),
]


@pytest.mark.parametrize(("value", "dtype", "text"), LITERALS)
def test_literals_in_c(value: float, dtype: DType, text: str) -> None:
    assert NATIVE.literal(value, dtype) == text
