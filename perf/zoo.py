"""How fast are functions that people write kernels for by hand?

    python perf/zoo.py [--quick] [--only NAME ...] [--elements N] [--device cuda]
                       [--no-inductor] [--no-cold] [--seconds S]

The functions of perf/zoo.yaml: eager, by torch.compile (Inductor) and by
atentriton.fuse; forward, forward and backward, double backward (the gradient of the
gradients, which Inductor refuses) and jvp. In turns, medians; what is saved for the
backward, and the peak of memory; and in a process with empty caches how long the first
call of each function takes. Writes zoo.json, zoo_cold.json and the pictures zoo.png and
zoo_inductor.png to perf/results/.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import _common
import _memory
import _zoo
import torch
from _zoo import MODES, Entry, NoDerivative

from atentriton.fusing import FusedFunction
from atentriton.timing import Timing, interleaved, keep_memory

SIDES = ("eager", "inductor", "ours")


@dataclass(frozen=True, slots=True)
class Row:
    """A function in one mode: seconds and peak bytes by side; `refused` is what
    Inductor said where it did not take part."""

    entry: Entry
    mode: str
    elements: int
    times: dict[str, Timing]
    peaks: dict[str, int] = field(default_factory=dict)
    saved: dict[str, _memory.Saved] = field(default_factory=dict)
    refused: str = ""

    def over(self, side: str) -> float | None:
        """How many times faster than that side ours is."""
        if side not in self.times:
            return None
        return self.times["ours"].faster_than(self.times[side])

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.entry.name,
            "group": self.entry.group,
            "mode": self.mode,
            "seconds": {side: t.median for side, t in self.times.items()},
            "over_eager": self.over("eager"),
            "over_inductor": self.over("inductor"),
            "peak_bytes": self.peaks,
            "saved_bytes": {side: s.as_json() for side, s in self.saved.items()},
            "refused": self.refused,
        }


def measure(
    entry: Entry,
    elements: int,
    device: str,
    seconds: float,
    inductor: bool,
    modes: Iterable[str] = MODES,
) -> Iterator[Row]:
    """The function in each mode; a mode in which all is zero is left out."""
    given = entry.arguments(elements, device)
    theirs, ours = entry.function(), FusedFunction(entry.function())
    for mode in modes:
        refused = ""
        try:
            calls = {"eager": _zoo.call(theirs, given, mode)}
            calls["eager"]()
        except NoDerivative:
            continue
        calls["ours"] = _zoo.call(ours, given, mode)
        if inductor:
            try:
                call = _zoo.compiled(entry.function(), given, mode)
                call()
                calls["inductor"] = call
            except Exception as error:  # whatever keeps it from taking part
                refused = str(error).strip().partition("\n")[0]
        times = interleaved(calls, seconds=seconds)
        peaks = {side: _memory.peak(call, device) for side, call in calls.items()}
        saved = {}
        if mode == "backward":
            functions = {"eager": theirs, "ours": ours}
            if "inductor" in calls:
                functions["inductor"] = torch.compile(entry.function(), fullgraph=True)
            saved = {s: _memory.saved(f, given) for s, f in functions.items()}
        yield Row(entry, mode, elements, times, peaks, saved, refused)
    torch._dynamo.reset()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    _zoo.add_choice(parser)
    parser.add_argument("--seconds", type=float, help="for each mode of a function")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--no-cold", action="store_true", help="warm calls alone")
    args = parser.parse_args()

    from atentriton.commands._console import console, progress

    # Inductor says of every complex operator that it leaves it to eager.
    warnings.filterwarnings("ignore", module=r"torch\._inductor")
    keep_memory()
    out = console()
    inductor = not args.no_inductor
    entries = _zoo.chosen(args)
    seconds = args.seconds or (0.3 if args.quick else 1.0)
    rows: list[Row] = []
    for name in progress(out, [e.name for e in entries]):
        (entry,) = (e for e in entries if e.name == name)
        rows += measure(entry, args.elements, args.device, seconds, inductor)
    report(out, rows, args.elements, args.device, inductor)
    if not args.no_cold:
        import _cold_zoo

        sides = ["ours", *(["inductor"] if inductor else [])]
        _cold_zoo.report(out, [e.name for e in entries], sides, args.device)


def report(
    out: Any,
    rows: Sequence[Row],
    elements: int,
    device: str,
    inductor: bool,
    name: str = "zoo",
) -> None:
    """Print the tables, and write the results and the pictures, under that name."""
    known = _common.machine()
    out.print(
        f"{known['cpu']}, {known['threads']} threads, torch {known['torch']}; "
        f"{elements:,} float32 elements on {device}; load {known['load']:.1f}"
    )
    out.print(speed_table(rows, inductor))
    out.print()
    out.print(memory_table(rows, inductor))
    for line in losses(rows):
        out.print(line)
    settings = {"elements": elements, "device": device}
    path = _common.save(name, settings, [row.as_json() for row in rows])
    names = list(dict.fromkeys(row.entry.name for row in rows))
    found = {(r.entry.name, r.mode): r for r in rows}
    what = f"{elements:,} float32 elements, {known['cpu']}, load {known['load']:.1f}"
    for side in ("eager", *(["inductor"] if inductor else [])):
        series = {
            text: [found[n, m].over(side) if (n, m) in found else None for n in names]
            for m, text in MODES.items()
        }
        series = {t: v for t, v in series.items() if any(v)}
        end = "" if side == "eager" else "_inductor"
        picture = path.with_name(f"{name}{end}.png")
        if _common.bars(picture, what, names, series, side):
            out.print(f"[dim]{picture}[/dim]")
    out.print(f"[dim]{path}[/dim]")


def speed_table(rows: Sequence[Row], inductor: bool) -> Any:
    """A row a function, a column a mode: milliseconds, ours over eager and Inductor."""
    from atentriton.commands._console import table

    sides = ("eager", "inductor") if inductor else ("eager",)
    modes = [m for m in MODES if any(row.mode == m for row in rows)]
    made = table("function")
    for mode in modes:
        head = f"{MODES[mode]}\nms, x {', x '.join(sides)}"
        made.add_column(head, justify="right", no_wrap=True)
    found = {(row.entry.name, row.mode): row for row in rows}
    for name in dict.fromkeys(row.entry.name for row in rows):
        cells: list[str] = []
        for row in (found.get((name, m)) for m in modes):
            if row is None:
                cells.append("zero")
                continue
            ratios = [_zoo.shown(row.over(side)) for side in sides]
            if row.refused:
                ratios[-1] = "refused"
            cells.append(f"{row.times['ours'].median * 1e3:.3f} {' '.join(ratios)}")
        made.add_row(name, *cells)
    for side in sides:
        cells = [_zoo.shown(over(rows, m, side)) for m in modes]
        made.add_row(f"mean over {side}", *cells, style="bold")
    return made


def over(rows: Sequence[Row], mode: str, side: str) -> float | None:
    """The geometric mean of how many times faster ours is in that mode."""
    ratios = [row.over(side) for row in rows if row.mode == mode]
    return _zoo.mean([r for r in ratios if r is not None])


def memory_table(rows: Sequence[Row], inductor: bool) -> Any:
    """Bytes an element: saved for the backward, and the peaks of the modes."""
    from atentriton.commands._console import table

    sides = [s for s in SIDES if s != "inductor" or inductor]
    modes = [m for m in MODES if any(row.mode == m for row in rows)]
    made = table(f"bytes an element\n{' → '.join(sides)}")
    for head in ("saved\n+ of the inputs", *(f"peak,\n{MODES[m]}" for m in modes)):
        made.add_column(head, justify="right", no_wrap=True)
    found = {(row.entry.name, row.mode): row for row in rows}

    def peaks(row: Row | None) -> str:
        if row is None:
            return "-"
        counts = [row.peaks.get(side) for side in sides]
        return " → ".join("-" if c is None else _each(row, c) for c in counts)

    def saved(row: Row | None) -> str:
        kept = [row.saved.get(side) if row else None for side in sides]
        return " → ".join(
            "-"
            if k is None or row is None
            else f"{_each(row, k.own)}+{_each(row, k.given)}"
            for k in kept
        )

    for name in dict.fromkeys(row.entry.name for row in rows):
        cells = [peaks(found.get((name, mode))) for mode in modes]
        made.add_row(name, saved(found.get((name, "backward"))), *cells)
    return made


def _each(row: Row, count: int) -> str:
    return f"{count / row.elements:.3g}"


def losses(rows: Sequence[Row]) -> Iterator[str]:
    """Where we lose: slower than a side, or more bytes saved than Inductor saves."""
    for side in ("eager", "inductor"):
        slower = [(r, row) for row in rows if (r := row.over(side)) and r < 1]
        for ratio, row in sorted(slower, key=lambda pair: pair[0]):
            name, mode = row.entry.name, MODES[row.mode]
            yield f"we lose: {name}, {mode}: {_zoo.shown(ratio)} {side}"
    for row in rows:
        if {"ours", "inductor"} <= row.saved.keys():
            kept = [row.saved[side] for side in ("ours", "inductor")]
            ours, theirs = (k.own + k.given for k in kept)
            if ours > theirs:
                counts = [f"{_each(row, k.own)}+{_each(row, k.given)}" for k in kept]
                yield (
                    f"we lose: {row.entry.name} saves {counts[0]} bytes an element, "
                    f"Inductor {counts[1]}"
                )


if __name__ == "__main__":
    main()
