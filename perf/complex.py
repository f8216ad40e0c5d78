"""How fast are fused chains of complex numbers?

    python perf/complex.py [--quick] [--elements N] [--device cuda] [--only NAME ...]

Functions of complex networks and signals, complex64: eager against atentriton.fuse,
forward, and forward and backward, in turns; medians, ratios and the geometric mean.
Inductor takes no complex operator. Writes perf/results/complex.json and complex.png.
"""

from __future__ import annotations

import argparse

import _common
import _zoo

# What is aimed at, forward and backward over eager.
AIM = 3.0
MODES = ("forward", "backward")
Z = {"complex": [-2.0, 2.0]}
CHAINS = {
    "modrelu": ("torch.relu(torch.abs(z) + b) * torch.sgn(z)", {"z": Z, "b": [-1, 1]}),
    "soft_sign": ("z / (1 + torch.abs(z))", {"z": Z}),
    "oscillator": ("a * torch.exp(1j * w) + torch.conj(a)", {"a": Z, "w": [-3, 3]}),
    "exp_chain": ("torch.exp(-0.5 * z * z) * w * (z + 2 * w)", {"z": Z, "w": Z}),
    "gated_tanh": ("torch.tanh(0.4 * z) * z", {"z": Z}),
    "polar_mix": (
        "torch.polar(torch.abs(z) * g, torch.angle(z) + p) + 0.1 * z",
        {"z": Z, "g": [0.5, 1.5], "p": [-1, 1]},
    ),
    "phase_lock": (
        "torch.real(z * torch.conj(w)) / (torch.abs(z) * torch.abs(w) + 1)",
        {"z": Z, "w": Z},
    ),
    "moebius": ("(z - w) / (1 - torch.conj(w) * z + 3)", {"z": Z, "w": Z}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    _zoo.add_choice(parser)
    args = parser.parse_args()

    import zoo

    from atentriton.commands._console import console, progress, table
    from atentriton.timing import keep_memory

    keep_memory()
    out = console()
    names = args.only or [*CHAINS][: 3 if args.quick else None]
    for name in names:
        if name not in CHAINS:
            raise SystemExit(f'there is no chain "{name}"; see {", ".join(CHAINS)}')
    rows: list[zoo.Row] = []
    for name in progress(out, names):
        entry = _zoo.Entry(name, "complex", *CHAINS[name])
        seconds = 0.3 if args.quick else 1.0
        rows += zoo.measure(entry, args.elements, args.device, seconds, False, MODES)
    known = _common.machine()
    out.print(
        f"{known['cpu']}, {known['threads']} threads, torch {known['torch']}; "
        f"{args.elements:,} complex64 elements on {args.device}; "
        f"load {known['load']:.1f}"
    )
    made = table("chain", "formula")
    for mode in MODES:
        made.add_column(f"{_zoo.MODES[mode]}\neager → ours, ms", justify="right")
    found = {(row.entry.name, row.mode): row for row in rows}
    for name in names:
        cells: list[str] = []
        for row in (found[name, mode] for mode in MODES):
            eager, ours = (row.times[s].median * 1e3 for s in ("eager", "ours"))
            ratio = _zoo.shown(row.over("eager"))
            cells.append(f"{eager:.2f} → {ours:.2f} {ratio}")
        made.add_row(name, CHAINS[name][0].replace("torch.", ""), *cells)
    means = [zoo.over(rows, mode, "eager") for mode in MODES]
    made.add_row("geometric mean", "", *map(_zoo.shown, means), style="bold")
    out.print(made)
    if means[-1] is not None and means[-1] < AIM:
        out.print(f"we lose: {means[-1]:.2f}x forward and backward, the aim is {AIM}x")
    for line in zoo.losses(rows):
        out.print(line)
    settings = {"elements": args.elements, "device": args.device, "aim": AIM}
    path = _common.save("complex", settings, [row.as_json() for row in rows])
    series = {_zoo.MODES[m]: [found[n, m].over("eager") for n in names] for m in MODES}
    title = f"{args.elements:,} complex64 elements, {known['cpu']}"
    drawn = _common.bars(path.with_suffix(".png"), title, names, series)
    out.print(f"[dim]{path}{' and complex.png' if drawn else ''}[/dim]")


if __name__ == "__main__":
    main()
