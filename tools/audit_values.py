"""What operators compute, in mpmath: `VALUES`, a function for each.

Their arguments are those of the operator, in the order of its signature, tensors as
single numbers of mpmath.
"""

from __future__ import annotations

import mpmath
from mpmath import mpf

from tools import accuracy_exact as exact
from tools import audit_functions as functions
from tools.audit_slopes import Value

_UNARY: dict[str, Value] = {
    "abs": abs,
    "acos": mpmath.acos,
    "acosh": mpmath.acosh,
    "angle": lambda x: mpmath.pi if x < 0 else mpf(0),
    "asin": mpmath.asin,
    "asinh": mpmath.asinh,
    "atan": mpmath.atan,
    "atanh": mpmath.atanh,
    "ceil": functions.step(mpmath.ceil),
    "cos": mpmath.cos,
    "cosh": mpmath.cosh,
    "deg2rad": lambda x: x * mpmath.pi / 180,
    "digamma": functions.digamma,
    "erf": mpmath.erf,
    "erfc": functions.erfc,
    "erfinv": mpmath.erfinv,
    "exp": mpmath.exp,
    "exp2": functions.exp2,
    "expm1": mpmath.expm1,
    "floor": functions.step(mpmath.floor),
    "frac": functions.step(lambda x: x - functions.trunc(x)),
    "frexp.Tensor": functions.frexp,
    "hardsigmoid": lambda x: functions.clamp(x + 3, 0, 6) / 6,
    "hardswish": functions.hardswish,
    "i0": lambda x: exact.bessel(0, x),
    "lgamma": functions.lgamma,
    "log": mpmath.log,
    "log10": functions.log10,
    "log1p": functions.log1p,
    "log2": functions.log2,
    "log_sigmoid_forward": lambda x: -mpmath.log1p(mpmath.exp(-x)),
    "mish": exact.mish,
    "neg": lambda x: -x,
    "rad2deg": lambda x: x * 180 / mpmath.pi,
    "reciprocal": lambda x: 1 / x,
    "relu": lambda x: functions.clamp(x, 0, None),
    "round": functions.step(mpmath.nint),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sgn": mpmath.sign,
    "sigmoid": exact.sigmoid,
    "sign": mpmath.sign,
    "silu": functions.silu,
    "sin": mpmath.sin,
    "sinc": mpmath.sincpi,
    "sinh": mpmath.sinh,
    "special_entr": functions.entr,
    "special_erfcx": exact.erfcx,
    "special_i0e": lambda x: exact.scaled_bessel(0, x),
    "special_i1": lambda x: exact.bessel(1, x),
    "special_i1e": lambda x: exact.scaled_bessel(1, x),
    "special_log_ndtr": functions.log_ndtr,
    "special_ndtri": functions.ndtri,
    "sqrt": mpmath.sqrt,
    "tan": mpmath.tan,
    "tanh": mpmath.tanh,
    "trunc": functions.step(functions.trunc),
}

_SEVERAL: dict[str, Value] = {
    "_prelu_kernel": lambda x, w: x if x > 0 else x * w,
    "_prelu_kernel_backward": functions.prelu_backward,
    "add.Scalar": lambda x, y, alpha: x + mpf(alpha) * y,
    "add.Tensor": lambda x, y, alpha: x + mpf(alpha) * y,
    "addcdiv": lambda x, y, z, value: x + mpf(value) * y / z,
    "addcmul": lambda x, y, z, value: x + mpf(value) * y * z,
    "atan2": mpmath.atan2,
    "binary_cross_entropy_backward": functions.cross_entropy_backward,
    "celu": functions.celu,
    "celu_": functions.celu,
    "clamp": functions.clamp,
    "clamp.Tensor": functions.clamp,
    "clamp_max": lambda x, y: functions.clamp(x, None, y),
    "clamp_max.Tensor": lambda x, y: functions.clamp(x, None, y),
    "clamp_min": lambda x, y: functions.clamp(x, y, None),
    "clamp_min.Tensor": lambda x, y: functions.clamp(x, y, None),
    "copysign.Scalar": functions.copysign,
    "copysign.Tensor": functions.copysign,
    "div.Scalar": functions.div,
    "div.Scalar_mode": functions.div,
    "div.Tensor": functions.div,
    "div.Tensor_mode": functions.div,
    "elu": functions.elu,
    "elu_": functions.elu,
    "elu_backward": functions.elu_backward,
    "fmax": max,
    "fmin": min,
    "fmod.Scalar": functions.fmod,
    "fmod.Tensor": functions.fmod,
    "gelu": functions.gelu,
    "gelu_backward": lambda grad, x, approximate: (
        grad * functions.gelu_slope(x, approximate)
    ),
    "hardshrink": functions.hardshrink,
    "hardshrink_backward": functions.shrink_backward,
    "hardswish_backward": functions.hardswish_backward,
    "hardtanh": functions.clamp,
    "hardtanh_backward": functions.inside,
    "huber_loss_backward": lambda grad, x, target, reduction, delta: (
        grad * functions.clamp(x - target, -delta, delta)
    ),
    "hypot": mpmath.hypot,
    "igamma": functions.igamma,
    "igammac": functions.igammac,
    "ldexp.Tensor": lambda x, y: x * functions.exp2(y),
    "leaky_relu": lambda x, slope: x if x > 0 else x * slope,
    "leaky_relu_": lambda x, slope: x if x > 0 else x * slope,
    "leaky_relu_backward": functions.leaky_backward,
    "lerp.Scalar": lambda x, end, weight: x + mpf(weight) * (end - x),
    "lerp.Tensor": lambda x, end, weight: x + weight * (end - x),
    "log_sigmoid_backward": lambda grad, x, buffer: grad * exact.sigmoid(-x),
    "logaddexp": exact.logaddexp,
    "logaddexp2": exact.logaddexp2,
    "logit": functions.logit,
    "masked_fill.Scalar": lambda x, mask, value: mpf(value) if mask else x,
    "maximum": max,
    "minimum": min,
    "mse_loss_backward": lambda grad, x, target, reduction: 2 * grad * (x - target),
    "mul.Scalar": lambda x, y: x * y,
    "mul.Tensor": lambda x, y: x * y,
    "mvlgamma": functions.mvlgamma,
    "nan_to_num": lambda x, *_: x,
    "native_dropout_backward": lambda grad, mask, scale: grad * int(mask) * mpf(scale),
    "polygamma": functions.polygamma,
    "polygamma_": lambda x, n: functions.polygamma(n, x),
    "pow.Scalar": functions.power,
    "pow.Tensor_Scalar": functions.power,
    "pow.Tensor_Tensor": functions.power,
    "remainder.Scalar": functions.remainder,
    "remainder.Tensor": functions.remainder,
    "rsub.Scalar": lambda x, y, alpha: y - mpf(alpha) * x,
    "rsub.Tensor": lambda x, y, alpha: y - mpf(alpha) * x,
    "sigmoid_backward": lambda grad, y: grad * y * (1 - y),
    "smooth_l1_loss_backward": lambda grad, x, target, reduction, beta: (
        grad * functions.clamp((x - target) / beta, -1, 1)
    ),
    "soft_margin_loss_backward": lambda grad, x, target, reduction: (
        -grad * target * exact.sigmoid(-target * x)
    ),
    "softplus": exact.softplus,
    "softplus_backward": functions.softplus_backward,
    "softshrink": functions.softshrink,
    "softshrink_backward": functions.shrink_backward,
    "special_xlog1py": functions.xlog1py,
    "special_xlog1py.other_scalar": functions.xlog1py,
    "special_xlog1py.self_scalar": functions.xlog1py,
    "special_zeta": functions.zeta,
    "special_zeta.self_scalar": functions.zeta,
    "sub.Scalar": lambda x, y, alpha: x - mpf(alpha) * y,
    "sub.Tensor": lambda x, y, alpha: x - mpf(alpha) * y,
    "tanh_backward": lambda grad, y: grad * (1 - y * y),
    "threshold": lambda x, threshold, value: x if x > threshold else mpf(value),
    "threshold_": lambda x, threshold, value: x if x > threshold else mpf(value),
    "threshold_backward": lambda grad, x, threshold: grad if x > threshold else mpf(0),
    "where.self": lambda condition, x, y: x if condition else y,
    "xlogy.Scalar_Other": functions.xlogy,
    "xlogy.Scalar_Self": functions.xlogy,
    "xlogy.Tensor": functions.xlogy,
}

VALUES: dict[str, Value] = {**_UNARY, **_SEVERAL}

# Operators that are holomorphic, and whose value above is that of complex numbers, too.
_NAMES = """acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10
log1p log2 neg reciprocal rsqrt sigmoid silu sin sinh sqrt tan tanh addcdiv addcmul
div.Tensor mul.Tensor pow.Tensor_Tensor xlogy.Tensor"""
HOLOMORPHIC = frozenset(_NAMES.split())
