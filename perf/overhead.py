"""What does a call cost where there is nothing to compute?

    python perf/overhead.py [--quick] [--elements N] [--device cuda] [OP ...]

Calls on 8 elements, in microseconds, in turns: PyTorch's function; ours through
`atentriton.ops`; and PyTorch's under `atentriton.use()`. Without gradients, recording
one, and with the backward. Medians, and over eager the median of the operators. Writes
perf/results/overhead.json and overhead.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import _common

NAMES = """
    add.Tensor mul.Tensor mul.Scalar sub.Tensor div.Tensor pow.Tensor_Scalar maximum
    where.self exp log tanh sigmoid sin sqrt abs neg relu gelu silu hardswish erf acosh
    atan2 addcmul lerp.Tensor clamp
"""
QUICK = "mul.Tensor add.Tensor tanh gelu clamp addcmul"
MODES = {"silent": "no grad", "recording": "recording", "backward": "with backward"}
# Microseconds over eager that are aimed at, by way and mode.
AIMS = {("ops", "silent"): 4.0, ("use", "silent"): 5.5, ("ops", "backward"): 9.0}
# Calls a turn is made of: entering `use` is not a part of one.
CALLS = 50


@dataclass(frozen=True, slots=True)
class Row:
    """Microseconds a call of one operator."""

    name: str
    mode: str
    eager: float
    ops: float
    use: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", metavar="OP", nargs="*")
    parser.add_argument("--quick", action="store_true", help="few operators, shorter")
    parser.add_argument("--elements", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    from atentriton.commands._console import console, progress

    out = console()
    names = _common.asked_for(parser, args.operators)
    names = names or (QUICK if args.quick else NAMES).split()
    rows: list[Row] = []
    for name in progress(out, names):
        rows += measure(name, args.elements, args.device, 0.15 if args.quick else 0.5)
    known = _common.machine()
    out.print(
        f"{known['cpu']}, {known['threads']} threads, torch {known['torch']}; "
        f"{args.elements:,} float32 elements; load {known['load']:.1f}"
    )
    out.print(each(rows))
    out.print()
    out.print(over_eager(rows))
    settings = {"elements": args.elements, "device": args.device}
    path = _common.save("overhead", settings, [asdict(row) for row in rows])
    title = f"over eager, {args.elements:,} float32 elements, {known['cpu']}"
    drawn = draw(path.with_suffix(".png"), title, rows)
    out.print(f"[dim]{path}{' and overhead.png' if drawn else ''}[/dim]")


def measure(name: str, elements: int, device: str, seconds: float) -> Iterator[Row]:
    """The operator in each mode; a mode that PyTorch's does not have is left out."""
    import torch

    from atentriton import callables, operators, ops, samples, use
    from atentriton.samples import Arrangement
    from atentriton.speed import Subject
    from atentriton.timing import interleaved

    base = name.partition(".")[0]
    signature = operators.make(name).signature
    flat = Arrangement("flat", ((elements,),))
    setting = samples.settings(signature)[0]
    values = samples.arguments(signature, torch.float32, setting, flat)
    values = [v.to(device) if isinstance(v, torch.Tensor) else v for v in values]
    subject = Subject(signature, tuple(values))
    theirs = next(callables._called(base))
    functions = {"eager": theirs, "ops": getattr(ops, base), "use": theirs}
    for mode in MODES:
        calls = {
            way: repeated(
                call_of(subject, function, mode), use if way == "use" else nullcontext
            )
            for way, function in functions.items()
        }
        try:
            calls["eager"]()
        except RuntimeError:
            continue
        found = interleaved(calls, seconds=seconds)
        times = {way: t.median / CALLS * 1e6 for way, t in found.items()}
        yield Row(name, mode, **times)


def call_of(subject: Any, function: Callable[..., Any], mode: str) -> Callable[[], Any]:
    """A call without arguments; `recording` is the forward of what requires grad."""
    import torch

    if mode == "recording":
        args, named = subject.arguments(
            [
                v.detach().requires_grad_()
                if isinstance(v, torch.Tensor) and v.is_floating_point()
                else v
                for v in subject.values
            ]
        )
        return lambda: function(*args, **named)
    return subject.call(function, "forward" if mode == "silent" else mode)


def repeated(
    call: Callable[[], Any], context: Callable[[], Any]
) -> Callable[[], object]:
    def many() -> None:
        with context():
            for _ in range(CALLS):
                call()

    return many


def each(rows: Sequence[Row]) -> Any:
    """A row an operator, a column a mode: eager, then what ours cost."""
    from atentriton.commands._console import table

    made = table("operator")
    for text in MODES.values():
        made.add_column(f"{text}, µs\neager → ops, use", justify="right")
    found = {(row.name, row.mode): row for row in rows}
    for name in dict.fromkeys(row.name for row in rows):
        cells = [found.get((name, mode)) for mode in MODES]
        made.add_row(
            name,
            *(
                f"{c.eager:5.1f} → {c.ops:5.1f}, {c.use:5.1f}" if c else ""
                for c in cells
            ),
        )
    return made


def over_eager(rows: Sequence[Row]) -> Any:
    """The median over the operators, beside what is aimed at."""
    from atentriton.commands._console import table

    made = table("over eager, µs", *MODES.values(), right=[*MODES.values()])
    for way in ("ops", "use"):
        cells: list[str] = []
        for mode in MODES:
            over = [getattr(r, way) - r.eager for r in rows if r.mode == mode]
            if not over:
                cells.append("")
                continue
            aim = AIMS.get((way, mode))
            colour = "red" if aim is not None and median(over) > aim else "green"
            aimed = f" (aim {aim:g})" if aim is not None else ""
            cells.append(f"[{colour}]{median(over):.1f}[/{colour}]{aimed}")
        made.add_row(f"through {way}" if way == "ops" else "under use", *cells)
    return made


def draw(path: Path, title: str, rows: Sequence[Row]) -> bool:
    """Bars of what a call costs over eager; False where matplotlib is missing."""
    names = list(dict.fromkeys(row.name for row in rows))
    found = {(row.name, row.mode): row for row in rows}
    series: dict[str, list[float | None]] = {}
    for mode in MODES:
        for way in ("ops", "use"):
            cells = [found.get((name, mode)) for name in names]
            over = [getattr(c, way) - c.eager if c else None for c in cells]
            series[f"{MODES[mode]}, {way}"] = over
    return _common.grouped(path, title, names, series, "µs over eager")


if __name__ == "__main__":
    main()
