"""Compile kernels before they are needed, several at a time.

For each operator its forward, and its backward where it has one, on contiguous tensors
of each dtype; all operators that are kernels of formulas, where none are named. What is
in the cache already is not compiled again. Exit status 1 if a kernel cannot be made.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter
from typing import Any

from rich.console import Console

from atentriton.commands._console import (
    add_jobs,
    add_json,
    console,
    counting,
    emit,
    escape,
    one_of,
    table,
)
from atentriton.commands._formulas import compiler_of, operator_names
from atentriton.workers import spread
from fuser.dtypes import DTYPES

NAME = "warm"
EXAMPLE = """
atentriton warm
atentriton warm gelu add --dtype float32 --jobs 4
"""

COMMON = ("float32", "float64", "bfloat16")
ELEMENTS = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("operators", metavar="OP", nargs="*", help="default: all")
    parser.add_argument(
        "--dtype",
        action="append",
        type=one_of("dtype", DTYPES),
        help=f"again for several; default: {', '.join(COMMON)}",
    )
    parser.add_argument("--device", help="default: cuda where there is a GPU, or cpu")
    add_jobs(parser)
    add_json(parser)


@dataclass(frozen=True, slots=True)
class Warmed:
    """An operator, how many kernels were compiled for it, and what went wrong."""

    name: str
    compiled: int
    seconds: float
    error: str = ""


def run(args: argparse.Namespace) -> int:
    names = chosen(args.operators)
    dtypes = tuple(args.dtype or COMMON)
    device = args.device or _device()
    begin, out = perf_counter(), console()
    jobs = min(args.jobs, len(names))
    work = partial(warm, dtypes=dtypes, device=device)
    with counting(out, len(names)) as finished:
        found = sorted(spread(work, names, jobs, finished), key=lambda one: one.name)
    seconds = perf_counter() - begin
    compiled = sum(one.compiled for one in found)
    if args.json:
        emit(
            {
                "device": device,
                "dtypes": list(dtypes),
                "jobs": jobs,
                "compiled": compiled,
                "seconds": round(seconds, 3),
                "operators": [asdict(one) for one in found],
            }
        )
    else:
        show(out, found)
        out.print(
            f"{len(found)} operators, {', '.join(dtypes)}, on {escape(device)}: "
            f"{compiled} kernels compiled in {seconds:.1f} s"
        )
    return 1 if any(one.error for one in found) else 0


def chosen(given: Sequence[str]) -> list[str]:
    """The full names of the operators asked for that are kernels; all, if none are."""
    from atentriton import catalogue

    made = compiler_of(None)
    if given:
        named = [name for text in given for name in operator_names(text, made)]
    else:
        named = [*made.entries, *sorted(catalogue.valued())]
    kinds = ("fused", "in_place")
    return [n for n in dict.fromkeys(named) if catalogue.card_of(n).kind in kinds]


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def warm(name: str, dtypes: Sequence[str], device: str) -> Warmed:
    """Call the operator, and its backward, with each dtype that PyTorch's takes."""
    import torch

    from atentriton.cache import default_cache

    built, begin = default_cache().built, perf_counter()
    before = built[".so"] + built[".py"]
    error = ""
    try:
        for dtype in dtypes:
            call = _call(name, getattr(torch, dtype), device)
            if call is not None:
                call()
    except Exception as problem:  # of whatever kind: the others go on
        error = f"{type(problem).__name__}: {problem}".splitlines()[0]
    compiled = built[".so"] + built[".py"] - before
    return Warmed(name, compiled, round(perf_counter() - begin, 3), error)


def _call(name: str, dtype: Any, device: str) -> Callable[[], object] | None:
    """What runs the operator forward and backward; None where it takes no such dtype,
    or nobody knows what arguments to give it."""
    import torch

    from atentriton import catalogue, operators, samples
    from atentriton.speed import Subject

    ours, theirs = operators.make(name), catalogue.aten(name)
    if theirs is None:
        return None
    signature = ours.signature
    setting = samples.settings(signature)[0]
    flat = samples.Arrangement("flat", ((ELEMENTS,),))
    try:
        values = samples.arguments(signature, dtype, setting, flat)
        values = [v.to(device) if isinstance(v, torch.Tensor) else v for v in values]
        subject = Subject(signature, tuple(values))
        args, named = subject.arguments(values)
        result = theirs(*args, **named)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None
    floating = isinstance(result, torch.Tensor) and result.is_floating_point()
    try:
        if floating:
            subject.call(theirs, "backward")()
    except (RuntimeError, NotImplementedError):
        floating = False

    def call() -> None:
        subject.call(ours, "forward")()
        if floating:
            subject.call(ours, "backward")()

    return call


def show(out: Console, found: Sequence[Warmed]) -> None:
    """A row for each operator for which something was compiled, or nothing could be."""
    rows = table(
        "operator",
        "kernels",
        "seconds",
        "",
        right=("kernels", "seconds"),
        whole=("operator",),
    )
    for one in found:
        if one.compiled or one.error:
            error = f"[red]{escape(one.error)}[/red]" if one.error else ""
            rows.add_row(one.name, str(one.compiled), f"{one.seconds:.2f}", error)
    if rows.row_count:
        out.print(rows)
