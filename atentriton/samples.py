"""Arguments to try an operator with: where they come from, and how they lie in memory.

Comes in: a signature, a dtype, a setting of the arguments that are not tensors, and an
`Arrangement`. Goes out: one value an argument, the same in every run. Numbers are drawn
away from branch points, poles and ties: what happens there is a convention, and has
tests of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from atentriton.callables import ALIASES
from fuser.optable import BY_ATEN
from fuser.signatures import Argument, Signature

Setting = Mapping[str, Any]
Shape = tuple[int, ...]

# Keys of the tables: an operator's full or base name, without the underscore of one
# that works in place, or the name that it is an alias of; also with ":argument".

# The intervals that elements are drawn from, where it is not that of the op table.
INTERVALS: dict[str, tuple[float, float]] = {
    "acosh": (1.1, 9.0),
    "addcdiv:tensor2": (0.3, 3.0),
    "binary_cross_entropy:self": (0.1, 0.9),
    "binary_cross_entropy:target": (0.1, 0.9),
    "binary_cross_entropy:weight": (0.2, 2.0),
    "binary_cross_entropy_backward:self": (0.1, 0.9),
    "binary_cross_entropy_backward:target": (0.1, 0.9),
    "binary_cross_entropy_backward:weight": (0.2, 2.0),
    "binary_cross_entropy_with_logits:target": (0.1, 0.9),
    "bitwise_left_shift:other": (0, 7),
    "bitwise_right_shift:other": (0, 7),
    "cholesky": (0.1, 1.0),
    "digamma": (0.3, 5.0),
    "div:other": (0.3, 3.0),
    "erfinv": (-0.9, 0.9),
    "fake_quantize_per_tensor_affine_cachemask": (-3.0, 20.0),
    "floor_divide:other": (0.3, 3.0),
    "frexp": (0.1, 9.0),
    "hardsigmoid": (-5.0, 5.0),
    "hardswish": (-5.0, 5.0),
    "hardswish_backward:self": (-5.0, 5.0),
    "igamma": (0.3, 4.0),
    "igammac": (0.3, 4.0),
    "kl_div:target": (0.1, 0.9),
    "lerp:weight": (0.05, 0.95),
    "lgamma": (0.3, 5.0),
    "log_sigmoid_backward:buffer": (0.1, 0.9),
    "logit": (0.1, 0.9),
    "mvlgamma": (1.2, 5.0),
    "polar:abs": (0.2, 3.0),
    "polygamma": (0.3, 4.0),
    "pow": (0.2, 3.0),
    "reciprocal": (0.2, 3.0),
    "remainder": (0.2, 5.0),
    "special_entr": (0.1, 3.0),
    "special_erfcx": (-2.0, 5.0),
    "special_ndtri": (0.02, 0.98),
    "special_xlog1py": (0.2, 3.0),
    "special_zeta": (1.5, 4.0),
    "xlogy": (0.2, 3.0),
}

# Operators for which equality matters: elements are drawn from few values.
_FEW = """eq ne lt le gt ge logical_and logical_or logical_xor logical_not
isinf isfinite isnan"""
FEW = frozenset(_FEW.split())

# Numbers and flags, by argument; a signature's default is used for the others.
NUMBERS: dict[str, Any] = {
    "_fake_quantize_learnable_per_channel_affine:axis": 1,
    "fake_quantize_per_channel_affine_cachemask:axis": 1,
    "alpha": 2.5,
    "as_strided:size": [2, 3],
    "as_strided:stride": [1, 2],
    "beta": 0.5,
    "bitwise_and:other": 3,
    "__lshift__:other": 2,
    "__rshift__:other": 2,
    "bitwise_left_shift:other": 2,
    "bitwise_left_shift:self": 3,
    "bitwise_right_shift:self": 90,
    "bitwise_or:other": 3,
    "bitwise_right_shift:other": 2,
    "bitwise_xor:other": 3,
    "clamp_max:max": 1.2,
    "clamp_min:min": -1.0,
    "count_nonzero:dim": [0],
    "decimals": 1,
    "delta": 0.8,
    "dim": 0,
    "expand:size": [4, 6],
    "exponent": 2.5,
    "grad_factor": 0.5,
    "hardtanh_backward:max_val": 1.2,
    "hardtanh_backward:min_val": -1.0,
    "input_scale": 0.7,
    "lambd": 0.6,
    "max": 1.2,
    "min": -1.0,
    "mvlgamma:p": 3,
    "n": 1,
    "negative_slope": 0.2,
    "other": 1.7,
    "pow:self": 1.7,
    "quant_max": 127,
    "quant_min": 0,
    "reduction": 0,
    "scale": 0.1,
    "self": 1.7,
    "softplus_backward:threshold": 1.5,
    "special_zeta:other": 2.5,
    "special_zeta:self": 2.5,
    "threshold:threshold": 0.4,
    "threshold_backward:threshold": 0.4,
    "value": 0.7,
    "weight": 0.3,
    "zero_point": 10,
}

# Several ways to call an operator; by full name, then by base name.
SETTINGS: dict[str, tuple[Setting, ...]] = {
    "add": ({"alpha": 1}, {"alpha": 2.5}),
    "binary_cross_entropy": ({"weight": None}, {}),
    "binary_cross_entropy_backward": ({"weight": None}, {}),
    "binary_cross_entropy_with_logits": ({"weight": None, "pos_weight": None}, {}),
    "clamp": ({}, {"max": None}, {"min": None}),
    "div.Scalar_mode": tuple({"rounding_mode": m} for m in (None, "trunc", "floor")),
    "div.Tensor_mode": tuple({"rounding_mode": m} for m in (None, "trunc", "floor")),
    "elu_backward": ({"is_result": False}, {"is_result": True}),
    "gelu": ({}, {"approximate": "tanh"}),
    "gelu_backward": ({}, {"approximate": "tanh"}),
    "kl_div": ({}, {"log_target": True}),
    "leaky_relu_backward": ({"self_is_result": False}, {"self_is_result": True}),
    "lerp.Scalar": ({"weight": 0.3}, {"weight": 0.8}),
    "logit": ({}, {"eps": 0.2}),
    "polygamma": ({"n": 1}, {"n": 2}, {"n": 0}),
    "pow.Tensor_Scalar": tuple({"exponent": e} for e in (2.5, 3, 2, 0.5, -1.0, 0)),
    "round.decimals": ({"decimals": 1}, {"decimals": -1}, {"decimals": 0}),
    "rsub": ({"alpha": 1}, {"alpha": 2.5}),
    "softplus": ({}, {"threshold": 1.5}),
    "sub": ({"alpha": 1}, {"alpha": 2.5}),
}

# Tensors that are not like the others: their dtype (None: as the others) and values.
TENSORS: dict[str, tuple[torch.dtype | None, tuple[float, ...]]] = {
    "_fake_quantize_learnable_per_channel_affine:scale": (
        torch.float32,
        (0.1, 0.2, 0.3) * 2,
    ),
    "_fake_quantize_learnable_per_channel_affine:zero_point": (
        torch.float32,
        (9.0, 2.0) * 3,
    ),
    "_fake_quantize_learnable_per_tensor_affine:scale": (None, (0.1,)),
    "_fake_quantize_learnable_per_tensor_affine:zero_point": (None, (10.0,)),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams:fake_quant_enabled": (
        torch.int64,
        (1,),
    ),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams:scale": (None, (0.1,)),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams:zero_point": (
        torch.int32,
        (10,),
    ),
}

TENSORS |= {
    "fake_quantize_per_channel_affine_cachemask:scale": (
        torch.float32,
        (0.1, 0.2, 0.3) * 2,
    ),
    "fake_quantize_per_channel_affine_cachemask:zero_point": (torch.int32, (9, 2) * 3),
}

# The shapes of tensors that do not simply broadcast, by argument.
SHAPES: dict[str, dict[str, Shape]] = {
    "_fake_quantize_learnable_per_channel_affine": {"self": (4, 6)},
    "addmm": {"self": (3, 5), "mat1": (3, 4), "mat2": (4, 5)},
    "addmv": {"self": (3,), "mat": (3, 4), "vec": (4,)},
    "addr": {"self": (3, 4), "vec1": (3,), "vec2": (4,)},
    "baddbmm": {"self": (2, 3, 5), "batch1": (2, 3, 4), "batch2": (2, 4, 5)},
    "bmm": {"self": (2, 3, 4), "mat2": (2, 4, 5)},
    "fake_quantize_per_channel_affine_cachemask": {"self": (4, 6)},
    "dot": {"self": (7,), "tensor": (7,)},
    "fill.Tensor": {"value": ()},
    "masked_fill.Tensor": {"value": ()},
    "mm": {"self": (3, 4), "mat2": (4, 5)},
    "vdot": {"self": (7,), "other": (7,)},
}

BOOLEAN = frozenset({"mask", "condition"})

Arrange = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the tensors of a call lie in memory.

    `shapes` are those of the first, second, ... tensor, and begin anew where there are
    more of them; `arrange` lays the tensor of that number out.
    """

    name: str
    shapes: tuple[Shape, ...]
    arrange: Arrange = lambda _, tensor: tensor


def _transposed(_: int, tensor: Tensor) -> Tensor:
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def _first_transposed(number: int, tensor: Tensor) -> Tensor:
    return tensor if number else _transposed(number, tensor)


def _every_other(_: int, tensor: Tensor) -> Tensor:
    return torch.stack((tensor, tensor), -1)[..., 0] if tensor.dim() else tensor


def _expanded(number: int, tensor: Tensor) -> Tensor:
    return tensor if number or not tensor.dim() else tensor[:1].expand(tensor.shape)


def _channels_last(_: int, tensor: Tensor) -> Tensor:
    if tensor.dim() != 4:
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)


def _misaligned(_: int, tensor: Tensor) -> Tensor:
    whole = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    return whole[1:].view(tensor.shape).copy_(tensor)


CONTIGUOUS = Arrangement("contiguous", ((4, 6),))
ARRANGEMENTS = (
    Arrangement("long", ((1037,),)),
    Arrangement("transposed", ((4, 6),), _transposed),
    Arrangement("first transposed", ((4, 6),), _first_transposed),
    Arrangement("every other element", ((4, 6),), _every_other),
    Arrangement("expanded, stride 0", ((4, 6),), _expanded),
    Arrangement("broadcast", ((4, 1), (6,), (1, 6))),
    Arrangement("channels last", ((2, 3, 4, 5),), _channels_last),
    Arrangement("without dimensions", ((),)),
    Arrangement("one without dimensions", ((4, 6), (), ())),
    Arrangement("empty", ((0, 6),)),
    Arrangement("misaligned", ((4, 6),), _misaligned),
)


def settings(signature: Signature) -> tuple[Setting, ...]:
    """The ways to call the operator."""
    return _look_up(SETTINGS, _names(signature), ({},))


def arguments(
    signature: Signature,
    dtype: torch.dtype,
    setting: Setting | None = None,
    arrangement: Arrangement = CONTIGUOUS,
    seed: int = 0,
) -> list[Any]:
    """One value for each argument; NotImplementedError for one that is not known how to
    draw."""
    values: list[Any] = []
    number = 0
    for argument in signature.arguments:
        if (
            setting is not None
            and argument.name in setting
            and setting[argument.name] is None
        ):
            values.append(None)
        elif argument.type.base == "Tensor" and not argument.is_list:
            shape = _shape(signature, argument, arrangement, number)
            drawn = _tensor(signature, argument, dtype, shape, seed)
            values.append(arrangement.arrange(number, drawn))
            number += 1
        else:
            values.append(_number(signature, argument, dtype, setting or {}))
    return values


def _shape(
    signature: Signature, argument: Argument, arrangement: Arrangement, number: int
) -> Shape:
    fixed: dict[str, Shape] = _look_up(SHAPES, _names(signature), {})
    shapes = arrangement.shapes
    return fixed.get(argument.name, shapes[number % len(shapes)])


def _tensor(
    signature: Signature,
    argument: Argument,
    dtype: torch.dtype,
    shape: Shape,
    seed: int,
) -> Tensor:
    key = f"{signature.name}:{argument.name}:{seed}"
    generator = torch.Generator().manual_seed(crc32(key.encode()))
    special = _look_up(TENSORS, _with_argument(signature, argument.name), None)
    if special is not None:
        return torch.tensor(special[1], dtype=special[0] or dtype)
    if argument.name in BOOLEAN or dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    low, high = _interval(signature, argument)
    few = signature.base.removesuffix("_") in FEW
    if few or not (dtype.is_floating_point or dtype.is_complex):
        first = 0 if few else math.ceil(low)
        first = max(first, 0) if dtype == torch.uint8 else first
        last = 2 if few else max(math.floor(high), first)
        return torch.randint(first, last + 1, shape, generator=generator).to(dtype)
    real = torch.rand(shape, generator=generator, dtype=torch.float64)
    real = real * (high - low) + low
    if not dtype.is_complex:
        return real.to(dtype)
    imaginary = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
    return torch.complex(real, imaginary).to(dtype)


def _interval(signature: Signature, argument: Argument) -> tuple[float, float]:
    names = _names(signature)
    keys = (*_with_argument(signature, argument.name), *names)
    tensors = (f"{name}.Tensor" for name in names[1:])
    rows = (BY_ATEN.get(name) for name in (*names, *tensors))
    row = next((r for r in rows if r is not None), None)
    return _look_up(INTERVALS, keys, (-3.0, 3.0) if row is None else row.domain)


def _number(
    signature: Signature, argument: Argument, dtype: torch.dtype, setting: Setting
) -> Any:
    name = argument.name
    value = argument.default.value if argument.default else None
    if name in setting:
        value = setting[name]
    elif argument.type.base in ("Scalar", "float", "int", "SymInt"):
        value = _look_up(
            NUMBERS, _with_argument(signature, name), NUMBERS.get(name, value)
        )
    if value is None and not argument.optional:
        raise NotImplementedError(f"no values are known for {argument}")
    if argument.type.base != "Scalar" or not isinstance(value, float):
        return value
    if dtype.is_complex:
        return complex(value, 0.5)
    whole = not dtype.is_floating_point and name in ("alpha", "beta", "value")
    return round(value) if whole else value


def _look_up(data: Mapping[str, Any], keys: Iterable[str], default: Any) -> Any:
    """What stands under the first of the keys that is there."""
    return next((data[key] for key in keys if key in data), default)


def _names(signature: Signature) -> tuple[str, ...]:
    """The full and the base name, without the underscore of an in-place operator, and
    the base name of what it is an alias of."""
    base, dot, overload = signature.name.partition(".")
    base = base if base.endswith("__") else base.removesuffix("_")
    known = (ALIASES[base],) if base in ALIASES else ()
    return f"{base}{dot}{overload}", base, *known


def _with_argument(signature: Signature, argument: str) -> tuple[str, ...]:
    return tuple(f"{name}:{argument}" for name in _names(signature))


def has_parameters(signature: Signature) -> bool:
    """Whether some of the tensors are parameters, with values of their own."""
    return any(
        key in TENSORS
        for argument in signature.arguments
        for key in _with_argument(signature, argument.name)
    )
