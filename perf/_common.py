"""What the scripts in this folder share: the machine, results, pictures.

Comes in: rows of measurements. Goes out: perf/results/NAME.json and NAME.png. Nothing
here measures; that is in atentriton.timing and atentriton.speed.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

# The scripts run from a checkout, installed or not.
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

RESULTS = Path(os.getenv("PERF_RESULTS") or ROOT / "perf" / "results")


def machine() -> dict[str, Any]:
    """What the numbers hold for."""
    import torch

    from atentriton.commands.doctor import devices, versions

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        **versions(),
        **devices(),
        "cuda": torch.version.cuda,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": load,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def asked_for(parser: ArgumentParser, names: Sequence[str]) -> Sequence[str]:
    """The operators named on the command line; ends with the parser's error, before
    anything is measured, where one is unknown or has no kernel of its own."""
    from atentriton import operators

    for name in names:
        try:
            made = operators.make(name)
        except KeyError as error:
            parser.error(error.args[0])
        if not isinstance(made, operators.Fused):
            parser.error(f"{name} has no kernel of its own to time")
    return names


def floating(dtype: Any) -> list[str]:
    """The operators that run by kernels of ours on tensors of that dtype."""
    from atentriton import catalogue, samples
    from atentriton.programs import compiler
    from atentriton.speed import Subject

    found: list[str] = []
    for name in sorted(catalogue.valued()):
        signature, theirs = compiler().operator(name).signature, catalogue.aten(name)
        if theirs is None or signature.view or signature.inplace:
            continue
        try:
            values = samples.arguments(signature, dtype, samples.settings(signature)[0])
            args, named = Subject(signature, tuple(values)).arguments(values)
            theirs(*args, **named)
        except (RuntimeError, NotImplementedError, TypeError):
            continue
        found.append(name)
    return found


def save(name: str, settings: Mapping[str, Any], rows: Sequence[Any]) -> Path:
    """Write the results as JSON; the path."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / ".gitignore").write_text("*\n")  # they belong to this machine
    path = RESULTS / f"{name}.json"
    content = {"machine": machine(), "settings": dict(settings), "rows": list(rows)}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def bars(
    path: Path,
    title: str,
    names: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    over: str = "eager",
) -> bool:
    """Draw ratios to `over` as bars on a logarithmic scale, a group for each name.

    False where matplotlib is not installed.
    """
    return grouped(path, title, names, series, f"times as fast as {over}", True)


def grouped(
    path: Path,
    title: str,
    names: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    label: str,
    ratios: bool = False,
) -> bool:
    """Draw bars, a group for each name; as for `bars` if they are ratios."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    figure, axes = pyplot.subplots(figsize=(max(6.0, 0.8 * len(names)), 4.0))
    width = 0.8 / max(len(series), 1)
    base = 1 if ratios else 0
    for k, (called, values) in enumerate(series.items()):
        places = [i + (k - (len(series) - 1) / 2) * width for i in range(len(names))]
        shown = [v if v is not None else float("nan") for v in values]
        axes.bar(places, [v - base for v in shown], width, bottom=base, label=called)
    axes.axhline(base, color="black", linewidth=0.8)
    if ratios:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda v, _: f"{v:g}x")
        axes.yaxis.set_minor_formatter(
            lambda v, _: f"{v:g}x" if v in (2, 5, 0.5) else ""
        )
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_ylabel(label)
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, ncols=2, fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
