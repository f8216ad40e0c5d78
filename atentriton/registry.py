"""The operators as PyTorch's dispatcher knows them: torch.ops.atentriton.*.

Comes in: the operators that have a value. Goes out: one functional operator for each,
with its entry's schema, and `derived`, which runs any program by its lineage. Each has
kernels for devices, for shapes alone (Meta and fake tensors), for vmap, and one above
autograd that applies THE Function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from atentriton import autograd, catalogue, domain, gate, launch, programs
from atentriton.autograd import Call, Compute, apply
from atentriton.batches import aligned, rebatched, unbatched
from atentriton.layouts import INTO, broadcast, check_fit, check_one_device
from atentriton.levels import below_autograd
from atentriton.programs import Routine
from atentriton.sites import MISS
from atentriton.specs import key_of, specs_of, split
from atentriton.tangents import at_level, jointly
from fuser.errors import FormulaError
from fuser.signatures import Signature

NAMESPACE = "atentriton"
# Without numbers there is no list of them: torch.export cannot save an empty one.
DERIVED = "derived(str lineage, Tensor[] inputs, Scalar[]? numbers=None) -> Tensor[]"

LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
DEFINING = RLock()  # an operator is defined by one thread, and once


def allocate(routine: Routine, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The outputs as empty tensors, from shapes alone."""
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    strides = routine.strides(tuple(shape), tensors)
    device = check_one_device(tensors)
    return [
        torch.empty_strided(shape, strides, dtype=d, device=device)
        for d in routine.dtypes
    ]


# Tensors along a dimension of `self`; first the argument that says which one.
ALONG: dict[str, tuple[str, ...]] = {
    "fake_quantize_per_channel_affine_cachemask": ("axis", "scale", "zero_point"),
    "_fake_quantize_learnable_per_channel_affine": ("axis", "scale", "zero_point"),
}


class Binder:
    """Between arguments as the dispatcher gives them and one value an argument."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.arguments = signature.arguments
        self.places = {a.name: i for i, a in enumerate(self.arguments)}
        self.defaults = tuple(
            a.default.value if a.default else None for a in self.arguments
        )

    @cached_property
    def overload(self) -> Any:
        """The operator in torch.ops."""
        packet = getattr(torch.ops.atentriton, self.signature.base)
        return getattr(packet, self.signature.overload or "default")

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        """All arguments in order: the dispatcher leaves defaults out at the end."""
        if len(args) == len(self.arguments):
            return args
        values = [*args, *self.defaults[len(args) :]]
        for name, value in kwargs.items():
            values[self.places[name]] = value
        return values

    def redispatch(self, values: Sequence[Any], operator: Any = None) -> Any:
        """The operator, or another of the same signature, on arguments in order."""
        places = self.places.items()
        named = {n: values[i] for n, i in places if self.arguments[i].kwarg_only}
        count = len(values) - len(named)
        return (operator or self.overload)(*values[:count], **named)


class Registered(Binder):
    """An operator of the registry, and how its arguments become a routine's."""

    def __init__(self, signature: Signature, operator: str) -> None:
        super().__init__(signature)
        self.operator = operator
        self.known: dict[Any, Routine] = {}
        self.along = tuple(self.places[name] for name in ALONG.get(operator, ()))
        self.into = tuple(self.places[name] for name in INTO.get(operator, ()))

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The same, with tensors along a dimension made to broadcast."""
        return self.placed(super().bind(args, kwargs))

    def placed(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values with tensors along a dimension of `self` as views that broadcast;
        those that do already stay as they are."""
        if not self.along:
            return values
        axis, *places = self.along
        whole, moved = values[0], list(values)
        for place in places:
            tensor = moved[place]
            if tensor.dim() == 1 and whole.dim() > 1:
                shape = [1] * whole.dim()
                shape[values[axis]] = -1
                moved[place] = tensor.view(shape)
        return moved

    def routine(
        self, values: Sequence[Any], batched: Sequence[bool] | None = None
    ) -> Routine:
        """The routine for arguments given in the order of the signature.

        RuntimeError in PyTorch's words where one is too large for the result.
        """
        if self.into and batched is None:
            whole = broadcast([tuple(values[i].shape) for i in self.into])
            tensors = [v for v in values if isinstance(v, Tensor)]
            check_fit(whole, [tuple(t.shape) for t in tensors])
        marks = batched or (False,) * len(values)
        key = (torch.get_default_dtype(), *map(key_of, self.arguments, values, marks))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._made(values, marks)
        return found

    def _made(self, values: Sequence[Any], marks: Sequence[bool]) -> Routine:
        given = self.operator, values, self.redispatch
        if not self.along:
            domain.check(*given)
        specs = specs_of(self.signature, values, marks)
        try:
            return programs.routine(self.operator, specs, programs.default_dtype())
        except FormulaError:
            domain.ask(*given)
            raise

    def device(self, /, *args: Any, **kwargs: Any) -> Any:
        """The kernel for memory."""
        values = self.bind(args, kwargs)
        tensors, numbers = split(self.signature, values)
        routine = self.routine(values)
        return _returned(routine, launch.run(routine, tensors, numbers))

    def fake(self, /, *args: Any, **kwargs: Any) -> Any:
        """The kernel for shapes alone."""
        values = self.bind(args, kwargs)
        tensors, _ = split(self.signature, values)
        routine = self.routine(values)
        return _returned(routine, allocate(routine, tensors))

    def autograd(self, /, *args: Any, **kwargs: Any) -> Any:
        """The kernel that records derivatives, and goes on below."""
        values = self.bind(args, kwargs)
        tensors, numbers = split(self.signature, values)

        def compute(given: Sequence[Tensor]) -> Sequence[Any]:
            items = iter(given)
            again = [next(items) if isinstance(v, Tensor) else v for v in values]
            found = below_autograd(lambda: self.redispatch(again))
            return (found,) if isinstance(found, Tensor) else found

        routine = self.routine(values)
        found = autograd.immediate(routine, tensors, numbers)
        if found is not MISS:
            return found
        if gate.records(tensors) and routine.derivable:
            return _returned(routine, _applied(routine, tensors, numbers, compute))
        return _returned(routine, compute(tensors))

    def vmap(
        self, info: Any, in_dims: Sequence[Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """The batching rule: the program of the unbatched arguments, on all at once."""
        values = self.bind(args, kwargs)
        dims = [*in_dims, *([None] * (len(values) - len(in_dims)))]
        routine = self.routine(values, [d is not None for d in dims])
        pairs = [
            (v, d) for v, d in zip(values, dims, strict=True) if isinstance(v, Tensor)
        ]
        _, numbers = split(self.signature, values)
        found = derived(routine.lineage, aligned(pairs), numbers)
        return _returned(routine, found), 0

    def legacy_vmap(self, /, *args: Any, **kwargs: Any) -> Any:
        """The same for the older vmap, which is_grads_batched still uses."""
        values = self.bind(args, kwargs)
        tensors, numbers = split(self.signature, values)
        routine = self.routine(values)
        return _returned(routine, _legacy_vmap(routine.lineage, tensors, numbers))


def _applied(
    routine: Routine,
    tensors: Sequence[Tensor],
    numbers: Sequence[Any],
    compute: Compute,
) -> Sequence[Tensor]:
    """The outputs, with what is recorded of derivatives at this level.

    Under torch.func.jvp tangents come with the outputs, by one program for both.
    """
    made = Call(routine, numbers)
    tangents = at_level(routine, tensors)
    if tangents is None:
        return apply(made, compute, tensors)

    def both(given: Sequence[Tensor]) -> Sequence[Tensor]:
        found, made.tangents = jointly(routine, given, tangents, numbers, _below)
        return found

    return apply(made, both, tensors)


def _below(
    routine: Routine, tensors: Sequence[Tensor], numbers: Sequence[Any]
) -> Sequence[Tensor]:
    return below_autograd(lambda: derived(routine.lineage, tensors, numbers))


def _returned(routine: Routine, outputs: Sequence[Tensor]) -> Any:
    return outputs[0] if routine.single else tuple(outputs)


def derived(
    lineage: str, inputs: Sequence[Tensor], numbers: Sequence[Any] | None
) -> list[Tensor]:
    """The outputs of any program, by its lineage, through the dispatcher."""
    operator = torch.ops.atentriton.derived.default
    return operator(lineage, list(inputs), list(numbers) if numbers else None)


def _derived_device(
    lineage: str, inputs: Sequence[Tensor], numbers: Sequence[Any] | None = None
) -> list[Tensor]:
    return launch.run(programs.of_lineage(lineage), inputs, numbers or ())


def _derived_fake(
    lineage: str, inputs: Sequence[Tensor], numbers: Sequence[Any] | None = None
) -> list[Tensor]:
    return allocate(programs.of_lineage(lineage), inputs)


def _derived_autograd(
    lineage: str, inputs: Sequence[Tensor], numbers: Sequence[Any] | None = None
) -> list[Tensor]:
    routine = programs.of_lineage(lineage)
    numbers = numbers or ()
    found = autograd.immediate(routine, inputs, numbers)
    if found is not MISS:
        return [found] if routine.single else list(found)

    def compute(given: Sequence[Tensor]) -> Sequence[Tensor]:
        return _below(routine, given, numbers)

    if gate.records(inputs) and routine.derivable:
        return list(_applied(routine, inputs, numbers, compute))
    return list(compute(inputs))


def _derived_vmap(
    info: Any,
    in_dims: Sequence[Any],
    lineage: str,
    inputs: Sequence[Tensor],
    numbers: Sequence[Any] | None = None,
) -> tuple[list[Tensor], int]:
    pairs = list(zip(inputs, in_dims[1], strict=True))
    return derived(lineage, aligned(pairs), numbers), 0


def _legacy_vmap(
    lineage: str, inputs: Sequence[Tensor], numbers: Sequence[Any] | None = None
) -> list[Tensor]:
    """The kernel for tensors that the older vmap has batched, at any of its levels."""
    return rebatched(derived(lineage, unbatched(inputs), numbers))


def _implement(
    name: str,
    device: Callable[..., Any],
    fake: Callable[..., Any],
    autograd: Callable[..., Any],
    vmap: Callable[..., Any],
    legacy_vmap: Callable[..., Any],
) -> None:
    LIBRARY.impl(name, device, "CPU")
    LIBRARY.impl(name, device, "CUDA")
    LIBRARY.impl(name, autograd, "Autograd")
    LIBRARY.impl(name, legacy_vmap, "Batched")
    qualified = f"{NAMESPACE}::{name}"
    torch.library.register_fake(qualified, fake, lib=LIBRARY)
    torch.library.register_vmap(qualified, vmap, lib=LIBRARY)


OPERATORS: dict[str, Registered] = {}


def register(operator: str) -> Registered:
    """Make the operator known to the dispatcher, once; its schema is its signature.

    An in-place operator becomes a functional one, `lt_in_place`, which has the in-place
    entry's derivative; writing over the argument is left to the caller. It is no
    overload of `lt`: where two have the same arguments, PyTorch takes one for the other
    when it forgets its operators at the end, and crashes.
    """
    with DEFINING:
        found = OPERATORS.get(operator)
        if found is not None:
            return found
        signature = functional(programs.signature_of(operator))
        found = Registered(signature, operator)
        LIBRARY.define(str(signature))
        _implement(
            signature.name,
            found.device,
            found.fake,
            found.autograd,
            found.vmap,
            found.legacy_vmap,
        )
        OPERATORS[operator] = found
        return found


def register_all() -> None:
    """Register every operator that computes by formulas, in-place ones included."""
    for name in sorted(catalogue.valued()):
        if not programs.signature_of(name).view:
            register(name)


def functional(signature: Signature) -> Signature:
    """The signature with its first argument left alone, under a name of its own."""
    if not signature.inplace:
        return signature
    first, *others = signature.arguments
    (returned,) = signature.returns
    return replace(
        signature,
        base=f"{signature.base.removesuffix('_')}_in_place",
        arguments=(replace(first, alias=None), *others),
        returns=(replace(returned, alias=None),),
    )


LIBRARY.define(DERIVED)
_implement(
    "derived",
    _derived_device,
    _derived_fake,
    _derived_autograd,
    _derived_vmap,
    _legacy_vmap,
)
