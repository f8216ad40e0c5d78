"""Where PyTorch's own result is not what an operator is held to, and why.

Comes in: an operator, the kind of check, the case, and what was found. Goes out: the
reason why this is no failure, if there is one. Reports count and show these.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Allowance:
    """Checks of `operators` and `kinds`, with these words in the case or message.

    Operators and kinds are blank-separated patterns, of full names.
    """

    operators: str
    kinds: str
    words: str
    reason: str

    def covers(self, name: str, kind: str, text: str) -> bool:
        return (
            any(fnmatchcase(name, pattern) for pattern in self.operators.split())
            and any(fnmatchcase(kind, pattern) for pattern in self.kinds.split())
            and fnmatchcase(text, f"*{self.words}*")
        )


# Where torch's own operator is less accurate than its dtype: by how much, and why.
_FLOAT_SCALE = "torch has the scale in float32"
_ADDED = "torch adds 1e-12 to what the second derivative is divided by"
INACCURATE: dict[str, tuple[float, str]] = {
    "binary_cross_entropy": (1e-10, _ADDED),
    "binary_cross_entropy_backward": (1e-10, _ADDED),
    "digamma": (1e-8, "torch's trigamma is right to 9 digits only"),
    "lgamma": (1e-8, "torch's trigamma is right to 9 digits only"),
    "mvlgamma": (1e-8, "torch's trigamma is right to 9 digits only"),
    "igamma": (1e-8, "torch's series end at 9 digits"),
    "igammac": (1e-8, "torch's series end at 9 digits"),
    "polygamma": (1e-8, "torch's trigamma is right to 9 digits only"),
    "polygamma_": (1e-8, "torch's trigamma is right to 9 digits only"),
    "hardsigmoid": (1e-7, "torch's backward has 1/6 as a float32"),
    "fake_quantize_per_tensor_affine_cachemask": (1e-6, _FLOAT_SCALE),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": (1e-6, _FLOAT_SCALE),
    "_fake_quantize_learnable_per_tensor_affine": (1e-6, _FLOAT_SCALE),
}

EXCEPTIONS: tuple[Allowance, ...] = (
    Allowance(
        "silu silu_",
        "jvp",
        "complex",
        "torch's tangent of a complex silu is not the limit of its differences",
    ),
    Allowance(
        "i0 special_i0* special_i1* special_modified_bessel_*",
        "edges",
        "got *inf, torch has nan, at [[]*inf[]]",
        "the function is infinite at infinity",
    ),
    Allowance(
        "polygamma*",
        "edges",
        "got *0.0, torch has nan, at [[]*inf*",
        "the function vanishes at infinity",
    ),
    Allowance(
        "special_zeta*",
        "edges",
        "got *0.0, torch has nan, at",
        "the sum vanishes where its terms do",
    ),
    Allowance(
        "special_zeta*",
        "edges",
        "got *e-*, torch has 0.0, at",
        "what is left of the sum, q^(1-s) / (s-1), is not 0 yet",
    ),
    Allowance(
        "special_zeta",
        "edges",
        "at [[]3.0, -1.5[]]",
        "terms of both signs cancel: the error is one of the argument's rounding",
    ),
    Allowance(
        "igamma igamma_",
        "edges",
        "got 1.0, torch has 0.0, at [[]*e-*, *[]]",
        "for a tiny first argument P is 1 - a E1(x)",
    ),
    Allowance(
        "igamma* special_zeta*",
        "edges",
        "got nan, torch has *, at [[]*nan*",
        "a NaN stays one (deviations.md)",
    ),
    Allowance(
        "*fake_quantize_*",
        "edges",
        "got nan, torch has -1.0, at [[]nan*",
        "a NaN stays one; torch makes the lowest integer of it",
    ),
    Allowance(
        "*fake_quantize_*",
        "layouts",
        "without dimensions*shape [[]1[]], torch has [[][]]",
        "torch gives the result the shape of self, whatever that of the scale",
    ),
    Allowance(
        "fmod* remainder*",
        "edges",
        "torch has nan, at",
        "the quotient is infinite, the remainder is not",
    ),
    Allowance(
        "logaddexp2*",
        "edges",
        "got 0.0, torch has -*e-*, at [[]-1.0, -1.0[]]",
        "log2(1/2 + 1/2) is 0",
    ),
    Allowance(
        "lerp*",
        "edges",
        "at [[]*2.0, *0.5, 0.8[]]",
        "rounding and contraction leave something of 2 - 2.5 * 0.8",
    ),
    Allowance(
        "rsub.Tensor threshold_backward",
        "layouts",
        "first transposed*strides",
        "torch has the second tensor first, whose layout is taken",
    ),
    Allowance(
        "polygamma*",
        "value edges",
        "got *inf, *, at [[]*-*[]]",
        "there is a pole at 0 and each negative integer, which torch's sum misses",
    ),
    Allowance(
        "polygamma*",
        "edges",
        "at [[]*-1.5*[]]",
        "near a zero of the function: the error is one of the argument's rounding",
    ),
    Allowance(
        "igamma igammac igamma_ igammac_",
        "edges",
        "got [01].0, torch has nan, at",
        "the limit at a huge argument, where torch's powers and exponentials overflow",
    ),
    Allowance(
        "igammac igammac_",
        "edges",
        "at [[]*e-*, *[]]",
        "for a tiny first argument Q is its product with E1(x)",
    ),
    Allowance(
        "silu silu_ mish mish_ hardswish hardswish_ gelu gelu_",
        "edges",
        "got *0.0, torch has nan, at [[]-*",
        "the function vanishes at -inf, where torch has inf * 0 (deviations.md)",
    ),
    Allowance(
        "softplus_backward",
        "edges",
        "got *e+*, torch has *inf, at",
        "the product with the gradient's gate overflows in torch before it is divided",
    ),
    Allowance(
        "polygamma*",
        "value",
        "int*got inf, expected 1.028248460518898e+31",
        "there is a pole at 0 and each negative integer, which torch's sum misses",
    ),
)


def reason(name: str, kind: str, case: str, message: str) -> str | None:
    """Why this difference is no failure of the operator; None where it is one."""
    text = f"{case}: {message}"
    return next((e.reason for e in EXCEPTIONS if e.covers(name, kind, text)), None)
