"""Signatures: text to record, record to text, and mistakes with their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.errors import FormulaSyntaxError
from fuser.signatures import (
    TYPES,
    Argument,
    Default,
    Return,
    Signature,
    Type,
    parse_signature,
)

TEXTS = [
    "abs(Tensor self) -> Tensor",
    "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "acosh_(Tensor(a!) self) -> Tensor(a!)",
    "alias(Tensor(a) self) -> Tensor(a)",
    "split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]",
    "cat(Tensor[] tensors, int dim=0) -> Tensor",
    "index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
    "amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
    "pad(Tensor self, SymInt[2]? size=None, int[2] d=[0,1], float e=1e-05) -> Tensor",
    'gelu(Tensor self, *, str approximate="none", str? b=None) -> Tensor',
    "mse_loss(Tensor self, int reduction=Mean, float p=-0.5) -> Tensor",
    "cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)",
    "make.x(*, ScalarType? dtype=None, Layout? a=None, Generator? g=None) -> ()",
    "grid(Tensor self) -> Tensor output",
    "__iand__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)",
    "foreach_(Tensor(a!)[] self, float[]? s=None) -> ()",
]


@pytest.mark.parametrize("text", TEXTS)
def test_prints_back(text: str) -> None:
    assert str(parse_signature(text)) == text


def test_white_space_does_not_matter() -> None:
    spread = " add.Tensor ( Tensor  self ,*, Scalar alpha = 1 )->Tensor "
    assert str(parse_signature(spread)) == (
        "add.Tensor(Tensor self, *, Scalar alpha=1) -> Tensor"
    )


def test_parts() -> None:
    signature = parse_signature(
        "op_.out(Tensor(a!) self, Tensor?[] i, int[2]? d=[0,-1], *, str m='x') -> "
        "(Tensor(a!) values, Tensor[])"
    )
    assert signature.name == "op_.out"
    assert signature.arguments == (
        Argument("self", Type("Tensor"), None, False, "a!"),
        Argument("i", Type("Tensor", ("?", "[]"))),
        Argument("d", Type("int", ("[2]", "?")), Default((0, -1), "[0,-1]")),
        Argument("m", Type("str"), Default("x", "'x'"), kwarg_only=True),
    )
    assert signature.returns == (
        Return("values", Type("Tensor"), "a!"),
        Return(None, Type("Tensor", ("[]",))),
    )
    assert signature.inplace
    assert not signature.view
    assert list(signature.by_name) == ["self", "i", "d", "m"]


def test_questions_of_types_and_arguments() -> None:
    text = (
        "f(Tensor a, Tensor? b, Tensor[] c, Tensor?[] d, int[3]? e, Scalar g=1) -> ()"
    )
    a, b, c, d, e, g = parse_signature(text).arguments
    assert [x.is_tensor for x in (a, b, c, d, e, g)] == [True] * 4 + [False] * 2
    assert [x.optional for x in (a, b, c, d, e, g)] == [0, 1, 0, 0, 1, 0]
    assert [x.is_list for x in (a, b, c, d, e, g)] == [0, 0, 1, 1, 1, 0]
    assert [x.type.size for x in (c, e)] == [None, 3]
    assert [x.required for x in (a, g)] == [True, False]
    assert not a.mutated


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("None", None),
        ("True", True),
        ("-1", -1),
        ("0.5", 0.5),
        ("[]", ()),
        ("[0,1]", (0, 1)),
        ('"none"', "none"),
        ("Mean", 1),
    ],
)
def test_defaults(text: str, value: object) -> None:
    (argument,) = parse_signature(f"f(int x={text}) -> ()").arguments
    assert argument.default is not None
    assert argument.default.value == value
    assert argument.default.value.__class__ is value.__class__


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("f(Tensor self) -> Tensor", ["result"]),
        ("f(Tensor self) -> (Tensor, Tensor)", ["result0", "result1"]),
        ("f(Tensor self) -> (Tensor a, Tensor b)", ["a", "b"]),
        ("f(Tensor self, bool v) -> (Tensor w, Tensor v)", ["w", "v_return"]),
        ("f(Tensor self) -> ()", []),
    ],
)
def test_result_names(text: str, names: list[str]) -> None:
    assert list(parse_signature(text).result_names) == names


@pytest.mark.parametrize(
    ("text", "inplace", "view"),
    [
        ("abs(Tensor self) -> Tensor", False, False),
        ("abs_(Tensor(a!) self) -> Tensor(a!)", True, False),
        ("t(Tensor(a) self) -> Tensor(a)", False, True),
        ("unbind.int(Tensor(a -> *) self) -> Tensor(a)[]", False, True),
        ("__and__(Tensor self) -> Tensor", False, False),
    ],
)
def test_in_place_and_views(text: str, inplace: bool, view: bool) -> None:
    signature = parse_signature(text)
    assert (signature.inplace, signature.view) == (inplace, view)


def test_spans() -> None:
    signature = parse_signature(" add.Tensor (Tensor self) -> Tensor ")
    assert (signature.span.column, signature.span.end_column) == (2, 36)
    assert (signature.name_span.column, signature.name_span.end_column) == (2, 12)


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True)
KINDS = st.builds(
    Type,
    st.sampled_from(sorted(TYPES)),
    st.lists(st.sampled_from(["?", "[]", "[2]"]), max_size=2).map(tuple),
)
ALIASES = st.sampled_from([None, "a", "a!", "a -> *"])
DEFAULTS = st.sampled_from(
    [None, Default(1, "1"), Default((0, 1), "[0,1]"), Default(1, "Mean")]
)


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    first = draw(st.integers(0, len(names)))
    arguments = [
        Argument(name, draw(KINDS), draw(DEFAULTS), at >= first, draw(ALIASES))
        for at, name in enumerate(names)
    ]
    returned = st.builds(Return, st.none() | NAMES, KINDS, ALIASES)
    returns = draw(st.lists(returned, max_size=3))
    overload = draw(st.just("") | NAMES)
    return Signature(draw(NAMES), overload, tuple(arguments), tuple(returns))


@given(signatures())
def test_any_signature_prints_as_itself(signature: Signature) -> None:
    assert parse_signature(str(signature)) == signature


# The spot is between « and »; what is missing at the end is shown at the last letter.
MISTAKES = [
    ("ab«s»", "bad signature: it ends too early", "`(` and the arguments", None),
    ("abs(Tensor self«)»", None, "`->` and the returns", None),
    ("abs(«Tensr» self) -> Tensor", 'unknown type "Tensr"', None, "Tensor"),
    ("abs(Tensor self) -> «tensor»", 'unknown type "tensor"', None, "Tensor"),
    ("abs(«self») -> Tensor", 'the argument "self" has no type', "`Tensor self`", None),
    ("f(int a, int «a») -> ()", 'two arguments are called "a"', None, None),
    ("f(int a «int» b) -> ()", None, "`=`, `,` or `)`", None),
    ("f(int a=«)» -> ()", None, "a default after `=`", None),
    ("f(int a=«1+b») -> ()", "`1+b` is not a default", None, None),
    ("f(int a,«)» -> ()", None, "an argument, `Type name`", None),
    ("f(Tensor«(»a! b) -> ()", None, "an alias such as `(a!)`", None),
    ("f(*, «*», int a) -> ()", "bad signature: a second `*`", None, None),
    ("f(int a) «=» Tensor", "bad signature: unexpected `=`", None, None),
    ("f(int a) -> (Tenso«r»", None, "`,` or `)`", None),
    ("f(int a) -> Tensor b «c»", None, "the end of the signature", None),
    ("«(»int a) -> ()", None, "the name of an operator", None),
    ("at«:»:f(int a) -> ()", "bad signature: unexpected `:`", None, None),
]


@pytest.mark.parametrize(("marked", "message", "expected", "hint"), MISTAKES)
def test_mistakes(
    marked: str, message: str | None, expected: str | None, hint: str | None
) -> None:
    start, end = marked.index("«"), marked.index("»") - 1
    text = marked.replace("«", "").replace("»", "")
    with pytest.raises(FormulaSyntaxError) as caught:
        parse_signature(text)
    found = caught.value.diagnostic
    assert (found.span.column - 1, found.span.end_column - 1) == (start, end)
    assert message is None or found.message == message
    assert expected is None or found.expected == expected
    assert found.hint == hint
