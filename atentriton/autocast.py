"""Arguments under autocast, cast as eager would cast them on their device.

Comes in: an operator and the arguments of a call. Goes out: arguments whose dtypes give
the result the dtype that PyTorch's operator gives it. PyTorch keeps its lists of
operators to itself; what they say is seen from the dtype of a result, once a kind of
call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from atentriton import catalogue

Arguments = tuple[Sequence[Any], Mapping[str, Any]]

_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
_HALF = (torch.float16, torch.bfloat16)
_known: dict[Any, torch.dtype | None] = {}


@contextmanager
def as_eager(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Any]:
    """The arguments for our operator, meanwhile without autocast; differentiable."""
    device = concerned(name, args, kwargs)
    if device is None:
        yield args, kwargs
        return
    wanted = _cast_to(name, device, args, kwargs)
    with torch.autocast(device, enabled=False):
        yield (
            [_cast(v, wanted) for v in args],
            {k: _cast(v, wanted) for k, v in kwargs.items()},
        )


def concerned(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The type of the device whose autocast has something to say of the operator."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and value.device.type in _KEYS:
            device = value.device.type
            if not torch.is_autocast_enabled(device):
                continue
            operator = catalogue.aten(name)
            if operator is None:
                return None
            has = torch._C._dispatch_has_kernel_for_dispatch_key
            return device if has(operator.name(), _KEYS[device]) else None
    return None


def _cast(value: Any, dtype: torch.dtype | None) -> Any:
    """Autocast takes no float64, and leaves integers alone."""
    if dtype is None or not isinstance(value, Tensor) or value.dtype == dtype:
        return value
    return value.to(dtype) if value.dtype in (torch.float32, *_HALF) else value


def _cast_to(
    name: str, device: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> torch.dtype | None:
    """What floats are cast to; None where they stay what they are."""
    low = torch.get_autocast_dtype(device)
    given = [v.dtype for v in (*args, *kwargs.values()) if isinstance(v, Tensor)]
    key = (name, device, low, *given)
    if key not in _known:
        _known[key] = _seen(catalogue.aten(name), device, low, args, kwargs)
    return _known[key]


def _seen(
    operator: Any,
    device: str,
    low: torch.dtype,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> torch.dtype | None:
    with torch.no_grad():
        wanted = _first(operator(*args, **kwargs)).dtype
        with torch.autocast(device, enabled=False):
            for dtype in (None, low, torch.float32):
                again = [_cast(v, dtype) for v in args]
                named = {k: _cast(v, dtype) for k, v in kwargs.items()}
                try:
                    found = _first(operator(*again, **named)).dtype
                except RuntimeError:  # this operator takes no mixed dtypes
                    continue
                if found == wanted:
                    return dtype
    return None


def _first(result: Any) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]
