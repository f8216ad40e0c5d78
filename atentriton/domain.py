"""Dtypes and words that PyTorch's operator refuses, refused in its own words.

Comes in: an operator and the arguments of a call that is met for the first time. Goes
out: nothing, or PyTorch's error. Formulas would often give something for complex
numbers where a function is defined for real ones only; asking the operator itself, on
one element, keeps us from giving what PyTorch would not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes as plainly

from atentriton import catalogue

Call = Callable[[Sequence[Any], Any], Any]  # values in order, and an operator

# On a machine without a GPU some of PyTorch's operators lack half types, which ours
# take: for real numbers nothing is asked.
REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def check(name: str, values: Sequence[Any], call: Call) -> None:
    """NotImplementedError or RuntimeError where torch's operator refuses the dtypes, or
    what a string says (`approximate`, `rounding_mode`)."""
    dtypes = {v.dtype for v in values if isinstance(v, Tensor)}
    if dtypes.issubset(REAL) and not any(isinstance(v, str) for v in values):
        return
    if name.endswith("_backward") and not any(d.is_complex for d in dtypes):
        return  # some divide by an integer 0 that was a fraction, and end the process
    ask(name, values, call)


def ask(name: str, values: Sequence[Any], call: Call) -> None:
    """Let `call` call torch's operator, if there is one, on an element a tensor."""
    operator = catalogue.aten(name)
    if operator is None:
        return
    with torch.no_grad(), temporarily_clear_interpreter_stack(), plainly():
        call([_one(v) for v in values], operator)


def _one(value: Any) -> Any:
    """A tensor of one element and the same dtype, with dimensions or without."""
    if not isinstance(value, Tensor):
        return value
    return torch.ones((1,) * min(value.dim(), 1), dtype=value.dtype)
