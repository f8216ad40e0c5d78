"""The comparison on a GPU, in one command of less than ten minutes.

    python perf/gpu.py [--minutes M] [--elements N] [--quick] [--only NAME ...]

The functions of perf/zoo.yaml on the GPU as perf/zoo.py measures them: eager,
torch.compile and atentriton.fuse; what a call costs at 8 elements; the first calls from
empty caches; and what a copy reaches. What the time does not suffice for is named. Ends
with 2 where there is no GPU. Writes gpu.json, gpu_overhead.json, zoo_cold.json and the
pictures gpu.png, gpu_inductor.png and gpu_overhead.png to perf/results/.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from time import monotonic
from typing import Any

import _cold_zoo
import _common
import _zoo
import overhead
import torch
import zoo
from _zoo import Entry

from atentriton.timing import interleaved

SMALL = 8
COLD = ["silu", "swiglu", "huber", "lennard_jones"]
# Parts of the time after which the zoo, and the calls at 8 elements, are cut short.
ZOO_ENDS, SMALL_ENDS = 0.65, 0.85


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    _zoo.add_choice(parser)
    parser.set_defaults(elements=1 << 24, device="cuda")
    parser.add_argument("--minutes", type=float, default=9.0)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print(
            "perf/gpu.py needs a GPU that this PyTorch can use: "
            f"torch {torch.__version__} sees none (torch.cuda.is_available() is False)",
            file=sys.stderr,
        )
        raise SystemExit(2)

    from atentriton.commands._console import console

    warnings.filterwarnings("ignore", module=r"torch\._inductor")
    out, begin = console(), monotonic()

    def left(part: float) -> bool:
        return monotonic() - begin < part * args.minutes * 60

    out.print(f"{torch.cuda.get_device_name()}; a copy: {copied(args) / 1e9:.0f} GB/s")
    entries = by_turns(_zoo.chosen(args))
    rows: list[zoo.Row] = []
    seconds = 0.1 if args.quick else 0.3
    for entry in shown(out, entries):
        if not left(ZOO_ENDS):
            break
        rows += zoo.measure(entry, args.elements, args.device, seconds, True)
    done = {row.entry.name for row in rows}
    skipped = [e.name for e in entries if e.name not in done]
    zoo.report(out, rows, args.elements, args.device, True, "gpu")
    if skipped:
        out.print(f"not measured, for want of time: {', '.join(skipped)}")

    small: list[zoo.Row] = []
    for entry in _zoo.load(_zoo.QUICK):
        if left(SMALL_ENDS):
            modes = ("forward", "backward")
            small += zoo.measure(entry, SMALL, args.device, seconds, True, modes)
    calls: list[overhead.Row] = []
    for name in overhead.QUICK.split():
        if left(SMALL_ENDS):
            calls += overhead.measure(name, SMALL, args.device, seconds)
    report_small(out, small, calls)
    if left(SMALL_ENDS):
        _cold_zoo.report(out, COLD, ("ours", "inductor"), args.device)
    out.print(f"{(monotonic() - begin) / 60:.1f} minutes")


def report_small(
    out: Any, small: Sequence[zoo.Row], calls: Sequence[overhead.Row]
) -> None:
    """What a call costs where there is next to nothing to compute."""
    if small:
        out.print(f"\nat {SMALL} elements")
        out.print(zoo.speed_table(small, True))
    if calls:
        out.print(overhead.each(calls))
        out.print(overhead.over_eager(calls))
    found = [row.as_json() for row in small]
    path = _common.save(
        "gpu_overhead", {"elements": SMALL}, [*found, *(asdict(row) for row in calls)]
    )
    if calls:
        overhead.draw(path.with_suffix(".png"), f"{SMALL} elements", calls)
    out.print(f"[dim]{path}[/dim]")


def by_turns(entries: Sequence[Entry]) -> list[Entry]:
    """One of each group, then another of each: whatever is cut off, all are there."""
    place: dict[str, int] = {}
    turns: list[tuple[int, Entry]] = []
    for entry in entries:
        turn = place[entry.group] = place.get(entry.group, -1) + 1
        turns.append((turn, entry))
    return [entry for _, entry in sorted(turns, key=lambda pair: pair[0])]


def shown(out: Any, entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries, with a bar that counts them."""
    from atentriton.commands._console import progress

    by_name = {e.name: e for e in entries}
    for name in progress(out, [*by_name]):
        yield by_name[name]


def copied(args: argparse.Namespace) -> float:
    """Bytes a second, read and written, of copying a buffer into another."""
    source = torch.ones(args.elements, device=args.device)
    target = torch.empty_like(source)
    found = interleaved({"copy": lambda: target.copy_(source)}, seconds=0.3)
    return 2 * source.nbytes / found["copy"].median


if __name__ == "__main__":
    main()
