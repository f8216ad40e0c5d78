"""How fast are single operators, against PyTorch's eager ones?

    python perf/ops.py [--quick | --all] [--compile] [--elements N] [--dtype D]
                       [--layout L] [--device cuda] [OP ...]

Forward into a given buffer, forward, forward and backward, double backward; medians of
calls in turns, the ratio to eager, and for the forward into a buffer the bytes moved a
second beside what copying a buffer reaches. Writes perf/results/ops.json and ops.png.
"""

from __future__ import annotations

import argparse

import _common
import torch

NAMES = """
    add.Tensor mul.Tensor div.Tensor addcmul addcdiv lerp.Tensor clamp maximum
    where.self exp log1p tanh sigmoid acosh atan2 hypot logaddexp xlogy.Tensor
    hardswish erf digamma polygamma pow.Tensor_Scalar sgn
"""
QUICK = "add.Tensor addcmul exp acosh logaddexp xlogy.Tensor"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", metavar="OP", nargs="*")
    parser.add_argument("--quick", action="store_true", help="few operators, shorter")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    parser.add_argument("--all", action="store_true", help="every operator")
    parser.add_argument("--elements", type=int, default=1 << 20)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument(
        "--layout",
        choices=("contiguous", "transposed", "broadcast"),
        default="contiguous",
    )
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    from atentriton.commands._console import console, progress
    from atentriton.commands._speed import (
        bandwidth_table,
        losses,
        speed_table,
        summary_table,
    )
    from atentriton.speed import MODES, Row, measure
    from atentriton.timing import give_back, keep_memory

    named = _common.asked_for(parser, args.operators)
    chosen = (QUICK if args.quick else NAMES).split()
    if args.all:
        chosen = _common.floating(getattr(torch, args.dtype))
    keep_memory()
    out = console()
    rows: list[Row] = []
    for name in progress(out, named or chosen):
        rows += measure(
            name,
            tuple(MODES),
            elements=args.elements,
            dtype=getattr(torch, args.dtype),
            device=args.device,
            layout=args.layout,
            seconds=0.3 if args.quick or args.all else 1.0,
            compiled=args.compile,
        )
        give_back()
    known = _common.machine()
    out.print(
        f"{known['cpu']}, {known['threads']} threads, torch {known['torch']}; "
        f"{args.elements:,} {args.dtype} elements, {args.layout}; "
        f"load {known['load']:.1f}"
    )
    out.print(speed_table(rows))
    out.print()
    out.print(bandwidth_table(rows))
    out.print()
    out.print(summary_table(rows))
    out.print()
    for line in losses(rows):
        out.print(line)
    names = ("elements", "device", "dtype", "layout")
    settings = {name: getattr(args, name) for name in names}
    path = _common.save("ops", settings, [row.as_json() for row in rows])
    names = list(dict.fromkeys(row.name for row in rows))
    ratios = {(row.name, row.mode): row.ratio for row in rows}
    series = {t: [ratios.get((n, m)) for n in names] for m, t in MODES.items()}
    title = f"{args.elements:,} {args.dtype} elements, {known['cpu']}"
    drawn = _common.bars(path.with_suffix(".png"), title, names, series)
    out.print(f"[dim]{path}{' and ops.png' if drawn else ''}[/dim]")


if __name__ == "__main__":
    main()
