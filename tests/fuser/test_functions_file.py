"""Everything that can be wrong with a file of functions."""

from __future__ import annotations

import pytest

from fuser.entries import load_functions
from tests.fuser.marked import check

FUNCTION_CASES: list[tuple[str, str, str | None, str | None]] = [
    (
        "- name: f(Tensor self) -> Tensor\n  result: «grad» * self\n",
        'unknown name "grad"',
        "one of self",
        None,
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  result: self + «slf»\n",
        'unknown name "slf"',
        "one of self",
        "self",
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  result: «ezp»(self)\n",
        'unknown function "ezp"',
        None,
        "exp",
    ),
    (
        "- name: f(Tensor self) -> Tensor\n  «rezult»: self\n",
        '"rezult" is not a return',
        "one of result",
        "result",
    ),
    (
        "- name: «f»(Tensor self) -> (Tensor, Tensor)\n  result0: self\n",
        'no formula for the return "result1"',
        "the key `result1`",
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  result: a\n"
        "- name: «f»(Tensor a) -> Tensor\n  result: a\n",
        'a second entry for "f"; the first is at line 1',
        None,
        None,
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  promotes: «defult»(a)\n  result: a\n",
        'unknown kind of promotion "defult"',
        "one of default, no_opmath, int_to_float, always_bool, complex_to_float, "
        "bool_to_long, keep",
        "default",
    ),
    (
        "- name: f(Tensor self) -> Tensor\n"
        "  promotes: default(self, «slf»)\n  result: self\n",
        '"slf" is not an argument',
        "one of self",
        "self",
    ),
    (
        "- name: f(Tensor a) -> Tensor\n  promotes: «default a»\n  result: a\n",
        "`default a` is not a promotion",
        "`default`, `default(self, other)` or `default -> self`",
        None,
    ),
    (
        "- name: f(Tensor self) -> Tensor\n"
        "  promotes: default -> «slf»\n  result: self\n",
        '"slf" is not an argument',
        "one of self",
        "self",
    ),
]


@pytest.mark.parametrize(("marked", "message", "expected", "hint"), FUNCTION_CASES)
def test_one_mistake_in_a_function(
    marked: str, message: str, expected: str | None, hint: str | None
) -> None:
    check(marked, (message, expected, hint), read=load_functions)
