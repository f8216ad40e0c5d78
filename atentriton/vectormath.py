"""Which functions of libm this machine has vector forms of.

Comes in: nothing. Goes out: the text of a C header that declares them, for a compiler
to vectorise loops that call them. glibc keeps them in libmvec (most only since 2.35,
none before 2.22, and with errors of up to 4 ULP); other C libraries have none. The
exponential function of float32, which most formulas call, is our own.
"""

from __future__ import annotations

import ctypes
import platform

from fuser.optable import PRIMITIVES
from fuser.resources import resource

# The names of vector functions begin so: one a width, for float and for double.
_PREFIXES = {
    "x86_64": (
        ("_ZGVbN4", "_ZGVcN8", "_ZGVdN8", "_ZGVeN16"),
        ("_ZGVbN2", "_ZGVcN4", "_ZGVdN4", "_ZGVeN8"),
    ),
    "aarch64": (("_ZGVnN4",), ("_ZGVnN2",)),
}

# GCC makes one call of the sine and the cosine of a number, of which there is no vector
# form, unless the function goes by a name that it does not know.
_APART = ("cosf", "cos")


def vectorised() -> tuple[str, ...]:
    """Those of the op table's functions that libmvec has in every width, as C calls
    them.

    `expf` for float, `exp` for double.
    """
    prefixes = _PREFIXES.get(platform.machine())
    try:
        library = ctypes.CDLL("libmvec.so.1")
    except OSError:
        return ()
    if prefixes is None:
        return ()
    return tuple(
        name + suffix
        for name in PRIMITIVES
        for suffix, widths in zip(("f", ""), prefixes, strict=True)
        if all(hasattr(library, _symbol(w, name, suffix)) for w in widths)
    )


def _symbol(width: str, name: str, suffix: str) -> str:
    arguments = "v" * PRIMITIVES[name].arity
    return f"{width}{arguments}_{name}{suffix}"


def vector_header() -> str:
    """C declarations of the vectorised functions, to be included before all else."""
    lines = ["// Functions of libm that have vector forms."]
    lines += ["#include <math.h>", "#include <stdint.h>"]
    for name in vectorised():
        float_ = name.endswith("f") and name not in PRIMITIVES
        real = "float" if float_ else "double"
        arity = PRIMITIVES[name[:-1] if float_ else name].arity
        arguments = ", ".join([real] * arity)
        lines.append("#pragma omp declare simd notinbranch")
        if name in _APART:
            lines.append(f"__attribute__((const)) {real} apart_{name}({arguments})")
            lines.append(f'    __asm__("{name}");')
            lines.append(f"#define {name} apart_{name}")
        else:
            lines.append(f"{real} {name}({arguments});")
    own = resource("templates/native_exp.h").read_text(encoding="utf-8")
    return "\n".join(lines) + "\n" + own
