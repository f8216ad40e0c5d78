"""Where PyTorch's own result is not what an operator is held to, and why.

Comes in: an operator, the kind of check, the case, and what was found. Goes out: the
reason why this is no failure, if there is one. Reports count and show these.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from atentriton.callables import ALIASES


@dataclass(frozen=True, slots=True)
class Allowance:
    """Checks of `operators` and `kinds`, with these words in the case or message.

    Operators and kinds are blank-separated patterns, of full names. An operator that
    is another's alias is one of them where that is.
    """

    operators: str
    kinds: str
    words: str
    reason: str

    def covers(self, name: str, kind: str, text: str) -> bool:
        return (
            any(
                fnmatchcase(known, pattern)
                for known in names(name)
                for pattern in self.operators.split()
            )
            and any(fnmatchcase(kind, pattern) for pattern in self.kinds.split())
            and fnmatchcase(text, f"*{self.words}*")
        )


# Where torch's own operator is less accurate than its dtype: by how much, and why.
_FLOAT_SCALE = "torch has the scale in float32"
_ADDED = "torch adds 1e-12 to what the second derivative is divided by"
INACCURATE: dict[str, tuple[float, str]] = {
    "binary_cross_entropy": (1e-9, _ADDED),
    "binary_cross_entropy_backward": (1e-10, _ADDED),
    "digamma": (1e-8, "torch's trigamma is right to 9 digits only"),
    "_safe_softmax": (1e-12, "tangents are small differences"),
    "linalg_qr": (1e-12, "a sample is nearly singular"),
    "lgamma": (1e-8, "torch's trigamma is right to 9 digits only"),
    "mvlgamma": (1e-8, "torch's trigamma is right to 9 digits only"),
    "igamma": (1e-12, "torch's tiny powers lose the digits of their exponent"),
    "polygamma": (1e-8, "torch's trigamma is right to 9 digits only"),
    "polygamma_": (1e-8, "torch's trigamma is right to 9 digits only"),
    "hardsigmoid": (1e-7, "torch's backward has 1/6 as a float32"),
    "hardsigmoid_backward": (1e-7, "torch has 1/6 as a float32"),
    "special_log_ndtr": (1e-12, "torch's derivative has large numbers cancel"),
    "fake_quantize_per_tensor_affine_cachemask": (1e-7, _FLOAT_SCALE),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": (1e-7, _FLOAT_SCALE),
    "_fake_quantize_learnable_per_tensor_affine": (1e-7, _FLOAT_SCALE),
}

_LOGARITHM = (
    "the rounding of a large result is an error of the weights, in torch as here"
)
_OTHER_TRIANGLE = "the other triangle is not read: its gradient is 0"
_CERTAIN = "torch's quotient vanishes where self and target are 0 or tiny, or 1"

EXCEPTIONS: tuple[Allowance, ...] = (
    Allowance("logcumsumexp", "first second", "arguments *10000", _LOGARITHM),
    Allowance("logcumsumexp", "second", "arguments 9984.0", _LOGARITHM),
    Allowance("logcumsumexp", "second", "expected nan", "torch has inf - inf there"),
    Allowance(
        "logcumsumexp",
        "jvp",
        "got *",
        "torch adds 1e-13 to a divisor, and has NaN for large complex numbers",
    ),
    Allowance(
        "triangular_solve",
        "jvp",
        "got *",
        "torch's tangent is not the limit of differences; gradcheck confirms ours",
    ),
    Allowance(
        "as_strided_scatter",
        "first",
        "got *",
        "torch drops the gradient where nothing was written, and keeps the other; "
        "gradcheck confirms ours",
    ),
    Allowance(
        "native_layer_norm",
        "jvp",
        "Expected a proper Tensor but got None",
        "torch's second derivative of a layer norm needs a weight",
    ),
    Allowance(
        "cholesky linalg_cholesky_ex",
        "gradcheck",
        "Jacobian mismatch",
        "one triangle is read, and the gradient is Hermitian: differences by single "
        "elements are not it, in torch neither",
    ),
    Allowance("cholesky_solve", "first second jvp", "got *", _OTHER_TRIANGLE),
    Allowance("cholesky_inverse", "first second", "got *", _OTHER_TRIANGLE),
    Allowance(
        "cholesky_inverse",
        "jvp",
        "got *",
        "torch's tangent is not the limit of differences; gradcheck confirms ours",
    ),
    Allowance(
        "eig",
        "first second jvp gradcheck",
        "call it with eigenvectors=True",
        "the old operator had no gradient without eigenvectors",
    ),
    Allowance(
        "_to_sparse*",
        "jvp",
        "Cannot access storage of SparseTensorImpl",
        "PyTorch makes no sparse tensor of dual numbers",
    ),
    Allowance(
        "_coalesce _sparse_addmm",
        "jvp",
        "_sparse_coo_tensor_with_dims_and_tensors",
        "PyTorch makes no sparse tensor of dual numbers",
    ),
    Allowance(
        "silu silu_",
        "jvp",
        "complex",
        "torch's tangent of a complex silu is not the limit of its differences",
    ),
    Allowance(
        "i0 special_i1 special_modified_bessel_i0 special_modified_bessel_i1",
        "edges",
        "got *inf, torch has nan, at [[]*inf[]]",
        "the function is infinite at infinity",
    ),
    Allowance(
        "polygamma*",
        "edges",
        "got *0.0, torch has nan, at *[!-]inf*",
        "the function vanishes at infinity",
    ),
    *(
        Allowance(
            "special_zeta*",
            "edges",
            f"got 0.0, torch has nan, at [[]*{where}*",
            "the sum vanishes where its terms do",
        )
        for where in ("e+", "inf")
    ),
    Allowance(
        "special_zeta*",
        "edges",
        "got *e-*, torch has 0.0, at [[]*, *e+*",
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
        "got 1.0, torch has 0.0, at [[]5e-324, *[]]",
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
        "fmod.Tensor remainder.Tensor remainder.Scalar_Tensor",
        "edges",
        "got *0.0, torch has nan, at",
        "the quotient overflows in torch, but the remainder is exact",
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
        "got *e-09, torch has *e-08, at [[]*2.0, *0.5, 0.8[]]",
        "rounding and contraction leave something of 2 - 2.5 * 0.8",
    ),
    Allowance(
        "log_sigmoid log_sigmoid_forward",
        "layouts",
        "strides",
        "contiguous in torch on a CPU alone: on a GPU it keeps the layout, as we do",
    ),
    Allowance(
        "gelu_backward",
        "layouts",
        "broadcast float32(approximate='none')*torch refuses this",
        "torch leaves float32 to oneDNN, which does not broadcast; float64 it takes",
    ),
    Allowance(
        "binary_cross_entropy_backward",
        "layouts",
        "one without dimensions*output with shape [[][]] doesn't match",
        "of all elements torch gives the first alone, in the shape of self",
    ),
    Allowance(
        "igamma igammac",
        "edges",
        "at [[]100.0, 100.0[]]",
        "from 20 to 200 and near the diagonal torch's series is right to 9 digits",
    ),
    Allowance(
        "pow.Tensor_Tensor",
        "jvp",
        "OpInfo float64*at [[]1, 9, 4[]]",
        "the tangent's two terms cancel: the error is less than 2 eps of theirs",
    ),
    Allowance(
        "polygamma*",
        "edges",
        "got inf, *, at [[]*-[1-9]*.*[]]",
        "there is a pole at 0 and each negative integer, which torch's sum misses",
    ),
    Allowance(
        "polygamma*",
        "edges",
        "got inf, torch has nan, at [[]*-inf*",
        "between the poles there is no limit; infinite as the huge integers before",
    ),
    Allowance(
        "polygamma*",
        "edges",
        "got -0.23620*, torch has -0.23620*, at [[]*-1.5*[]]",
        "near a zero of the function: the error is one of the argument's rounding",
    ),
    Allowance(
        "igamma igammac igamma_ igammac_",
        "edges",
        "got [01].0, torch has nan, at [[]*e+308, *",
        "the limit at a huge argument, where torch's powers and exponentials overflow",
    ),
    Allowance(
        "igammac igammac_",
        "edges",
        "got *e-*, torch has *e-*, at [[]*e-*, *",
        "for a tiny first argument Q is its product with E1(x)",
    ),
    Allowance(
        "silu silu_ mish mish_ hardswish hardswish_ gelu gelu_",
        "edges",
        "got *0.0, torch has nan, at [[]-inf*",
        "the function vanishes at -inf, where torch has inf * 0 (deviations.md)",
    ),
    Allowance(
        "silu_backward mish_backward",
        "edges",
        "got *[!n], torch has nan, at [[]*, *inf[]]",
        "the slope is 0 or 1 at infinity, where torch has inf * 0",
    ),
    *(
        Allowance(
            "silu_backward mish_backward",
            "edges",
            f"float32*got *{found}*, torch has *, at [[]*e+*, -100.0[]]",
            "the slope is subnormal there: ours has few bits of it right, torch's none",
        )
        for found in ("0.00127", "6.909*e-23")
    ),
    Allowance(
        "mish_backward",
        "edges",
        "got *inf, torch has *e+308, at [[]*e+308, 20.0[]]",
        "the slope is above 1 by more than an eps: the product overflows",
    ),
    Allowance(
        "silu_backward",
        "value",
        "complex*got *",
        "torch's lacks the conjugate of the slope; gradcheck confirms our silu",
    ),
    Allowance(
        "logit_backward",
        "edges",
        "got nan, torch has *inf, at [[]*inf, -0.0, None[]]",
        "at -0 torch's vectors and its last elements have infinities of either sign",
    ),
    Allowance(
        "special_ndtr",
        "value",
        "OpInfo *got *e-*, expected *; arguments -[4-8].*",
        "far to the left torch's 1 + erf cancels",
    ),
    Allowance(
        "special_ndtr",
        "edges",
        "got *e-89, torch has 0.0, at [[]-20.0[]]",
        "far to the left torch's 1 + erf cancels",
    ),
    Allowance(
        "conj_physical",
        "layouts",
        "strides",
        "of real numbers torch returns its argument itself, of which ours is a copy",
    ),
    Allowance(
        "gelu gelu_",
        "edges",
        "got -*e-*, torch has -0.0, at [[]-20.0, *",
        "far to the left torch's 1 + erf and 1 + tanh cancel",
    ),
    Allowance(
        "gelu_backward",
        "edges",
        "got *[!n], torch has *, at [[]*, -20.0, '*'[]]",
        "far to the left torch's 1 + erf and 1 + tanh cancel",
    ),
    Allowance(
        "gelu_backward",
        "edges",
        "got *[!n], torch has nan, at [[]*, *inf, '*'[]]",
        "the slope is 0 or 1 at infinity, where torch has inf * 0",
    ),
    Allowance(
        "gelu_backward",
        "edges",
        "got *[!n], torch has nan, at [[]*, *e+308, 'tanh'[]]",
        "the slope is 0 or 1 far out, where torch's square overflows",
    ),
    Allowance(
        "ldexp.Tensor",
        "edges",
        "got *[!n], torch has nan, at [[]*, *e+*[]]",
        "zeros and infinities stay what they are; torch's power of 2 is inf or 0",
    ),
    Allowance(
        "round.decimals special_round",
        "edges",
        "got *1.7976931348623157e+308, torch has *inf, at",
        "a number as large is whole already; scaled by torch it overflows",
    ),
    Allowance(
        "sinc",
        "edges",
        "got *0.0, torch has *, at",
        "the function is 0 at whole numbers; torch takes the sine of a rounded product",
    ),
    Allowance(
        "sinc",
        "first second",
        "float64*arguments 0.0131*",
        "near 0 the terms of torch's derivative cancel",
    ),
    *(
        Allowance(
            "kl_div",
            "edges",
            f"got *inf, torch has nan, at [[]*, {target}, 0, False[]]",
            "target times the difference is infinite, where torch has inf - inf",
        )
        for target in ("inf", "*e+308")
    ),
    Allowance(
        "kl_div",
        "edges",
        "got -0.0853*, torch has -0.0853*, at [[]3.0, 20.0, 0, False[]]",
        "log(20) and 3 nearly cancel: the error is one of the logarithm's rounding",
    ),
    Allowance(
        "hardtanh_backward hardshrink_backward softshrink_backward",
        "edges",
        "got 0.0, torch has nan, at [[]nan, nan, *",
        "torch's vectors give 0 at NaN, and its last elements the gradient",
    ),
    Allowance(
        "soft_margin_loss",
        "edges",
        "got [0-9]*, torch has inf, at",
        "the exponential overflows in torch, its logarithm does not",
    ),
    Allowance(
        "soft_margin_loss_backward",
        "edges",
        "got *[!n], torch has nan, at",
        "the exponential overflows in torch, which then has inf / inf",
    ),
    *(
        Allowance(
            "soft_margin_loss_backward",
            "edges",
            f"got nan, torch has -inf, at [[]inf, *e+*, {least}, 0[]]",
            "half of the least number rounds to 0, and inf times that is NaN",
        )
        for least in ("1.401298464324817e-45", "5e-324")
    ),
    Allowance(
        "mse_loss_backward",
        "edges",
        "got *[!n], torch has *[nf], at [[]*, *1.7976931348623157e+308, *, 0[]]",
        "twice the difference overflows in torch before the gradient makes it small",
    ),
    *(
        Allowance(
            "binary_cross_entropy_backward",
            "edges",
            f"got *[!n], torch has *, at [[]*, {where}, *, 0[]]",
            _CERTAIN,
        )
        for where in (
            "*0.0, *0.0",
            "*0.0, *e-*",
            "*e-*, *0.0",
            "*e-*, *e-*",
            "1.0, 1.0",
        )
    ),
    *(
        Allowance(
            "binary_cross_entropy_with_logits",
            "edges",
            f"got *[!n], torch has *[!n], at [[]{where}, *, *, *, 0[]]",
            "far to the left torch's (1 - target) x and log_sigmoid(x) cancel",
        )
        for where in ("-20.0", "-100.0", "-[1-9].*e+*")
    ),
    Allowance(
        "binary_cross_entropy_with_logits",
        "edges",
        "got inf, torch has nan, at [[]-inf, *, 0[]]",
        "the loss is infinite there, where torch has inf - inf",
    ),
    Allowance(
        "binary_cross_entropy_with_logits",
        "edges",
        "got nan, torch has inf, at [[]-inf, 0.5, -inf, -inf, 0[]]",
        "an infinite pos_weight times a logarithm that is 0 is NaN",
    ),
    Allowance(
        "softplus_backward",
        "edges",
        "got *e+308, torch has *inf, at [[]*e+308, *",
        "the product with the gradient's gate overflows in torch before it is divided",
    ),
    Allowance(
        "polygamma*",
        "value",
        "int*got inf, expected 1.028248460518898e+31",
        "there is a pole at 0 and each negative integer, which torch's sum misses",
    ),
)


def inaccuracy(name: str) -> tuple[float, str] | None:
    """By how much torch's own result may be wrong, and why; None where it is right."""
    return next((INACCURATE[n] for n in names(name) if n in INACCURATE), None)


def names(name: str) -> tuple[str, ...]:
    """The operator's full name, and the name of what it is an alias of."""
    known = ALIASES.get(name.partition(".")[0])
    return (name,) if known is None else (name, known)


def reason(name: str, kind: str, case: str, message: str) -> str | None:
    """Why this difference is no failure of the operator; None where it is one."""
    text = f"{case}: {message}"
    return next((e.reason for e in EXCEPTIONS if e.covers(name, kind, text)), None)
