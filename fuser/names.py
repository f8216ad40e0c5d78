"""Names for the variables of generated source.

Comes in: hints (the name of an argument, an op). Goes out: identifiers that are valid
and free of clashes in every target language at once, so that a kernel reads the same in
all.
"""

from __future__ import annotations

import keyword
import re

from fuser.optable import PRIMITIVES

_C = """
    auto break case char const continue default do double else enum extern float for
    goto if inline int long register restrict return short signed sizeof static struct
    switch typedef union unsigned void volatile while bool true false complex asm typeof
    main I NAN INFINITY NULL EOF errno signgam int8_t int16_t int32_t int64_t uint8_t
    uint16_t uint32_t uint64_t size_t ptrdiff_t memcpy memset memmove malloc free abort
    exit j0 j1 jn y0 y1 yn fma fabs fmin fmax round rint nearbyint ldexp frexp modf logb
    ilogb cbrt hypot tgamma gamma
"""

_PYTHON = """
    tl tldevice triton libdevice math float int bool complex range len min max abs sum
    round pow print map zip list tuple dict set str type
"""

# What the templates and the printers of index arithmetic call their own variables.
_TEMPLATES = """
    n i j k lane program pid block BLOCK block_size index indices offset offsets mask
    row rows inner begin end first last size sizes stride strides step status error
    start threads thread chunk grain rest go round_ kernel launch task range_
    compute useful share count left length rest_of_row top bottom whole tile tile_end
    heights widths batch ROWS COLUMNS bits_of float_of float16 bfloat16 blocks value
    noinline noclone
"""

# A target's own: `dim0`, `at_1`, `size_0`, `round_1`, `state_1_next`.
_NUMBERED = re.compile(
    r"(dim|at|size|stride|round|alive|offset|tile)_?\d+|.*_(next|lanes)"
    r"|b?float16_to_float|float_to_b?float16|(quotient|remainder)_u?int\d+_t"
    r"|single_\w+"
)

RESERVED: frozenset[str] = frozenset(
    {*_C.split(), *_PYTHON.split(), *_TEMPLATES.split()}
    | {*keyword.kwlist, *keyword.softkwlist}
    | {name + suffix for name in PRIMITIVES for suffix in ("", "f", "l")}
)

# The names that a target makes out of an operand's: its address, how it moves.
SUFFIXES = ("_ptr", "_base", "_stride", "_step", "_pad", "_total", "_re", "_im")


def identifier(text: str) -> str:
    """The text as an ASCII identifier (`add.Tensor` becomes `add_Tensor`)."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")
    return name if name and not name[0].isdigit() else f"x{name}"


class Namer:
    """Gives out names; each is given once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._count: dict[str, int] = {}

    def exactly(self, hint: str, *, suffixes: tuple[str, ...] = ()) -> str:
        """The hint itself where it is free, and every suffixed form of it is, too."""
        name = identifier(hint)
        stem = _stem(name)
        count = 0
        while not all(self._free(name + s) for s in ("", *suffixes)):
            count += 1
            name = f"{stem}_{count}"
        self._taken.update(name + s for s in ("", *suffixes))
        return name

    def numbered(self, hint: str) -> str:
        """The hint with the next number: `mul_1`, `mul_2`, ..."""
        stem = _stem(identifier(hint))
        while True:
            count = self._count[stem] = self._count.get(stem, 0) + 1
            name = f"{stem}_{count}"
            if self._free(name):
                self._taken.add(name)
                return name

    def _free(self, name: str) -> bool:
        reserved = name in RESERVED or _NUMBERED.fullmatch(name) is not None
        return not reserved and name not in self._taken


def _stem(name: str) -> str:
    """What a number can be added to: of `round`, `round_1` would be a target's own."""
    return f"{name}_value" if _NUMBERED.fullmatch(f"{name}_1") else name
