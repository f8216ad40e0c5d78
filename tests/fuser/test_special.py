"""The registry of builders, and what they share."""

from __future__ import annotations

from fuser.pipeline import default_compiler
from fuser.signatures import parse_signature
from fuser.special import SPECIAL, bernoulli


def test_bernoulli() -> None:
    assert [str(b) for b in bernoulli(5)] == ["1/6", "-1/30", "1/42", "-1/30", "5/66"]


def test_every_builder_is_the_value_of_its_operator_once() -> None:
    functions = default_compiler().functions.by_name
    names = [parse_signature(special.signature).name for special in SPECIAL]
    assert len(set(names)) == len(names)
    for name, special in zip(names, SPECIAL, strict=True):
        assert functions[name].body is special.builder
        assert functions[name].promotes == special.promotes
