"""How long the first calls of the zoo's functions take, from nothing.

Comes in: names of functions. Goes out: for each side a process of its own with empty
caches, in which the functions are called for the first time one after the other; the
first one pays for what all need, imports included. Kernels are counted.

Run as a script, it is that process: it prints a line of JSON for each function.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import _common

SIDES = {"ours": ("forward", "backward", "second", "jvp")}
SIDES["inductor"] = ("forward", "backward")


def run(names: Sequence[str], side: str, device: str) -> Iterator[dict[str, Any]]:
    """The rows of one side, in milliseconds; SystemExit with what went wrong."""
    path = os.pathsep.join(filter(None, (str(_common.ROOT), os.getenv("PYTHONPATH"))))
    with TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, side, device, *names],
            env={
                **os.environ,
                "PYTHONPATH": path,
                "ATENTRITON_CACHE_DIR": str(Path(folder) / "ours"),
                "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "theirs"),
                "TRITON_CACHE_DIR": str(Path(folder) / "triton"),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
        if process.wait() != 0:
            raise SystemExit(
                f"the cold start of {side} ended with {process.returncode}"
            )


def report(out: Any, names: Sequence[str], sides: Sequence[str], device: str) -> None:
    """Measure, print the table, and write zoo_cold.json."""
    from atentriton.commands._console import counting, table

    rows: list[dict[str, Any]] = []
    with counting(out, len(names) * len(sides)) as finished:
        for side in sides:
            for row in run(names, side, device):
                rows.append(row)
                finished(f"{side}, {row['name']}")
    made = table("first calls, ms", *_heads(sides), right=_heads(sides))
    found = {(row["side"], row["name"]): row for row in rows}
    for name in names:
        cells: list[str] = []
        for side in sides:
            row = found[side, name]
            cells += [_cell(row, mode) for mode in SIDES[side]]
            cells.append(str(row["kernels"]))
        made.add_row(name, *cells)
    out.print()
    out.print(made)
    if len(sides) > 1:
        ratios = [_both(found["inductor", n]) / _both(found["ours", n]) for n in names]
        first, *further = ratios
        text = (
            f"forward and backward, Inductor's time over ours: the first {first:.1f}x"
        )
        if further:
            text += f", each further one {geometric_mean(further):.1f}x"
            text += f" (at least {min(further):.1f}x)"
        out.print(text)
    path = _common.save("zoo_cold", {"device": device}, rows)
    out.print(f"[dim]{path}[/dim]")


def _heads(sides: Sequence[str]) -> list[str]:
    return [f"{s}\n{what}" for s in sides for what in (*SIDES[s], "kernels")]


def _cell(row: dict[str, Any], mode: str) -> str:
    return f"{row['ms'][mode]:.0f}" if mode in row["ms"] else "-"


def _both(row: dict[str, Any]) -> float:
    return row["ms"].get("forward", 0) + row["ms"].get("backward", 0)


def measure(side: str, device: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """In this process: the first calls, after torch has been imported and is warm."""
    import _zoo
    import torch

    # What the derivatives and a GPU need of PyTorch itself is nobody's compile time.
    warm = torch.ones(1, device=device, requires_grad=True)
    torch.autograd.grad(warm * warm, warm)
    for entry in _zoo.load(names):
        given = entry.arguments(64, device)
        spent: dict[str, float] = {}
        before = _kernels(side)
        function: Any = None
        for mode in SIDES[side]:
            begin = perf_counter()
            if function is None:
                function = _made(side, entry.function())
            try:
                _zoo.call(function, given, mode)()
            except _zoo.NoDerivative:
                continue
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            spent[mode] = 1e3 * (perf_counter() - begin)
        counts = {"kernels": _kernels(side) - before}
        yield {"name": entry.name, "side": side, "ms": spent, **counts}


def _made(side: str, function: Any) -> Any:
    if side == "ours":
        from atentriton import fuse

        return fuse(function)
    import torch

    return torch.compile(function, fullgraph=True)


def _kernels(side: str) -> int:
    """How many kernels this process has made."""
    if side == "ours":
        from atentriton.cache import default_cache

        built = default_cache().built
        return built[".so"] + built[".py"]
    if "torch._inductor" not in sys.modules:
        return 0
    from torch._inductor import metrics

    return metrics.generated_kernel_count


if __name__ == "__main__":
    for found in measure(sys.argv[1], sys.argv[2], sys.argv[3:]):
        print(json.dumps(found), flush=True)
