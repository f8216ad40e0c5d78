"""One overload of an operator, as something to call.

Comes in: a full name and what the catalogue says of it. Goes out: a `Fused` operator,
which computes by formulas; an `InPlace` one; a `Torch` one, where torch's own operator
runs; or a `NotYet`, which says why nothing does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.compiler import is_compiling

from atentriton import (
    autograd,
    binding,
    catalogue,
    gate,
    inplace,
    programs,
)
from atentriton.decisions import Ran, decided
from atentriton.registry import Registered, register
from atentriton.sites import MISS, Attempt, Sites, attempt
from atentriton.specs import split
from atentriton.targets import Run
from fuser.signatures import Signature

# Arguments about memory and place, not about values: torch's operator sees to them.
OF_PLACE = frozenset({"Layout", "Device", "MemoryFormat", "Generator"})


class Overload:
    """What all kinds have in common: a name, a signature, a readable description."""

    def __init__(self, name: str, signature: Signature) -> None:
        self.name = name
        self.signature = signature
        self.__name__ = self.__qualname__ = name
        self.__doc__ = "\n".join([str(signature), *self._lines()])

    def __repr__(self) -> str:
        return f"<atentriton operator {self.signature}>"

    def __reduce__(self) -> tuple[Any, ...]:
        from atentriton import ops  # which needs this module

        base, _, overload = self.name.partition(".")
        return ops._named, (base, overload or "default")

    def _lines(self) -> list[str]:
        return [f"    {line}" for line in catalogue.card_of(self.name).lines]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class Quick(Overload):
    """One that works a call out once, and repeats it for calls that look like it."""

    def __init__(self, name: str, signature: Signature) -> None:
        super().__init__(name, signature)
        self.sites = Sites()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        found = self.sites.call(args, kwargs)
        return self.anew(args, kwargs) if found is MISS else found

    def anew(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        also: Sites | None = None,
    ) -> Any:
        """A call that looks like none before; the next one like it will be quick.

        `also` are sites beside this operator's own that shall know it.
        """
        raise NotImplementedError

    def learn(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        also: Sites | None,
        values: Sequence[Any],
        run: Run,
    ) -> None:
        """Let `run` make calls that look like this one; a value for each argument."""
        for sites in (self.sites, also):
            if sites is not None and sites.has_room(args, kwargs):
                again = self._attempt(args, kwargs, values, run)
                if again is not None:
                    sites.add(args, kwargs, again)

    def _attempt(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        values: Sequence[Any],
        run: Run,
    ) -> Attempt | None:
        given = (*args, *kwargs.values())
        places: list[int | None] = list(range(len(args)))
        names = list(kwargs)
        for argument in self.signature.arguments[len(args) :]:
            named = argument.name in kwargs
            places.append(len(args) + names.index(argument.name) if named else None)
        return attempt(self.signature.arguments, places, given, values, run)


class Fused(Quick):
    """An operator whose value and derivatives are kernels made from formulas."""

    def __init__(self, name: str) -> None:
        self.registered: Registered = register(name)
        super().__init__(name, self.registered.signature)
        self.operator = self.registered.overload
        self._checked: set[tuple[type, ...]] = set()
        self._reduction = self._loss_reduction()
        self._of_place = tuple(
            i
            for i, a in enumerate(self.signature.arguments)
            if a.type.base in OF_PLACE or a.name == "pin_memory"
        )

    def anew(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        also: Sites | None = None,
    ) -> Any:
        if is_compiling():
            return self.operator(*args, **kwargs)
        values = self._bound(args, kwargs)
        if self._of_place and any(values[i] is not None for i in self._of_place):
            return catalogue.aten(self.name)(*args, **kwargs)
        if self.registered.along:
            values = self.registered.placed(values)
            return self.on(values)
        if self._reduction is not None and values[self._reduction]:
            return self._reduced(values, self._reduction)
        tensors, numbers = split(self.signature, values)
        decided(self.name, "fused")
        if not gate.direct(tensors):
            return self.registered.redispatch(values)
        routine = self.registered.routine(values)
        if any(t.is_conj() or t.is_neg() for t in tensors):
            return autograd.immediate(routine, tensors, numbers)
        run = autograd.runner(routine, tensors)
        self.learn(args, kwargs, also, values, run)
        return run(tensors, numbers)

    def _loss_reduction(self) -> int | None:
        """Where a loss has the argument that says how it is reduced."""
        if self.name.endswith("_backward"):
            return None
        return self.registered.places.get("reduction")

    def _reduced(self, values: Sequence[Any], place: int) -> Tensor:
        """The mean (1) or the sum (2) of the elements, PyTorch's own."""
        decided(self.name, "fused")
        elements = list(values)
        elements[place] = 0
        found = self.on(elements)
        return found.mean() if values[place] == 1 else found.sum()

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """One value an argument; types that have been checked are not checked again."""
        types = tuple(map(type, args))
        if not kwargs and types in self._checked:
            return [*args, *self.registered.defaults[len(args) :]]
        values = binding.bind(self.signature, args, kwargs)
        if not kwargs and all(v is a for v, a in zip(values, args, strict=False)):
            self._checked.add(types)
        return values

    def on(self, values: Sequence[Any]) -> Any:
        """The operator on one value an argument, in order."""
        tensors, numbers = split(self.signature, values)
        routine = self.registered.routine(values)
        found = autograd.immediate(routine, tensors, numbers)
        return self.registered.redispatch(values) if found is MISS else found


class InPlace(Quick):
    """An operator that writes its result over its first argument.

    It computes what the functional operator does; the derivative is the functional
    one's, unless derivatives.yaml has an entry for the in-place operator itself.
    """

    def __init__(self, name: str) -> None:
        self.functional = Fused(catalogue.card_of(name).functional)
        super().__init__(name, self.functional.signature)

    def __repr__(self) -> str:
        return f"<atentriton operator {self.name}, {self.signature} in place>"

    def anew(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        also: Sites | None = None,
    ) -> Tensor:
        if is_compiling():  # a copy that nothing needs falls away there
            target = args[0] if args else kwargs.pop("self")
            result = self.functional(target.clone(), *args[1:], **kwargs)
            return target.copy_(result)
        values = binding.bind(self.signature, args, kwargs)
        tensors, numbers = split(self.signature, values)
        routine = self.functional.registered.routine(values)
        decided(self.name, "fused")

        def functional(given: Sequence[Tensor]) -> Tensor:
            items = iter(given)
            again = [next(items) if isinstance(v, Tensor) else v for v in values]
            return self.functional.on(again)

        run = inplace.runner(routine, tensors)
        if run is None:
            return inplace.run(routine, tensors, numbers, functional)
        self.learn(args, kwargs, also, values, run)
        return run(tensors, numbers)


class Torch(Overload):
    """torch's own operator; `reason` says why it is the one to run."""

    def __init__(self, name: str, signature: Signature, reason: str) -> None:
        self.reason = reason
        self.operator = catalogue.aten(name)
        super().__init__(name, signature)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        decided(self.name, "torch", self.reason)
        return self.operator(*args, **kwargs)

    def _lines(self) -> list[str]:
        return [f"    torch's own operator: {self.reason}", *super()._lines()]


class Composite(Overload):
    """torch's own value, with derivatives by the formulas."""

    def __init__(self, name: str, signature: Signature) -> None:
        from atentriton import composite

        super().__init__(name, signature)
        self.made = composite.make(name)
        self.operator = self.made.overload
        kind = catalogue.card_of(name).kind
        self.kind: Ran = "matrix" if kind == "matrix" else "composite"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        decided(self.name, self.kind)
        operator = self.operator if is_compiling() else self.made
        if not self.signature.inplace:
            return operator(*args, **kwargs)
        target = args[0] if args else kwargs["self"]
        return target.copy_(operator(*args, **kwargs))


class NotYet(Overload):
    """An operator that cannot be run; calling it says why."""

    def __init__(self, name: str, signature: Signature, reason: str) -> None:
        self.reason = reason
        super().__init__(name, signature)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.name} is not there yet: {self.reason}")

    def _lines(self) -> list[str]:
        return [f"    not there yet: {self.reason}", *super()._lines()]


def make(name: str) -> Overload:
    """The operator of that full name, of the kind that the catalogue says."""
    card = catalogue.card_of(name)
    match card.kind:
        case "fused":
            return Fused(name)
        case "in_place":
            return InPlace(name)
    signature = programs.signature_of(name)
    match card.kind:
        case "matrix" | "composite":
            return Composite(name, signature)
        case "torch":
            return Torch(name, signature, card.reason)
    return NotYet(name, signature, card.reason)
