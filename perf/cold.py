"""How long does the first result of an operator take in a fresh process?

    python perf/cold.py [--repeats N] [--inductor] [--json] [OP ...]

Every measurement is a process of its own: what importing torch takes, then, beyond
that, importing our operators, the first result of an operator and its first gradient,
once with an empty cache and once with what that process has left. Medians, in
milliseconds; the bar is 400 ms empty and 60 ms warm. With --inductor, the first result
of torch.compile beside it (8 s each). Writes perf/results/cold.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import _common

NAMES = "acosh add gelu lgamma addcmul logaddexp"
BARS = {"empty": 400.0, "warm": 60.0}
INDUCTOR = "torch.compile"
TENSORS = {"add": 2, "addcmul": 3, "logaddexp": 2}

OURS = """
import json, sys
from time import perf_counter as now
begin = now()
import torch
after_torch = now()
given = [torch.rand(8) + 1 for _ in range({tensors})]
leaves = [t.clone().requires_grad_() for t in given]
start = now()
from atentriton import ops
imported = now()
ops.{name}(*given)
first = now()
ops.{name}(*leaves).sum().backward()
second = now()
print(json.dumps(dict(torch=after_torch - begin, ours=imported - start,
                      first=first - start, gradient=second - first)))
"""

THEIRS = """
import json
from time import perf_counter as now
import torch
given = [torch.rand(8) + 1 for _ in range({tensors})]
function = getattr(torch, "{name}", None) or getattr(torch.nn.functional, "{name}")
start = now()
torch.compile(lambda *given: function(*given))(*given)
print(json.dumps(dict(first=now() - start)))
"""


def run(script: str, name: str, environment: Mapping[str, str]) -> dict[str, float]:
    """The milliseconds that the script prints when run for an operator."""
    text = script.format(name=name, tensors=TENSORS.get(name, 1))
    path = os.pathsep.join(filter(None, (str(_common.ROOT), os.getenv("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"{name}: {done.stderr.strip()}")
    return {what: 1e3 * taken for what, taken in json.loads(done.stdout).items()}


def measure(name: str, repeats: int, inductor: bool) -> list[dict[str, Any]]:
    """Rows of medians: with an empty cache, with a warm one, and torch.compile's."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(repeats):
        with TemporaryDirectory() as folder:
            ours = {"ATENTRITON_CACHE_DIR": str(Path(folder) / "ours")}
            for state in BARS:  # the second process finds what the first has left
                found.setdefault(state, []).append(run(OURS, name, ours))
            if inductor:
                theirs = {"TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "theirs")}
                found.setdefault(INDUCTOR, []).append(run(THEIRS, name, theirs))
    return [
        {"name": name, "cache": state}
        | {what: median(r[what] for r in runs) for what in runs[0]}
        for state, runs in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", metavar="OP", nargs="*")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--inductor", action="store_true", help="torch.compile as well")
    parser.add_argument("--json", action="store_true", help="print JSON, no table")
    args = parser.parse_args()

    from atentriton import ops
    from atentriton.commands._console import console, progress

    for name in args.operators:
        try:
            getattr(ops, name)
        except AttributeError as error:
            parser.error(str(error))
    out = console()
    rows: list[dict[str, Any]] = []
    for name in progress(out, args.operators or NAMES.split()):
        rows += measure(name, args.repeats, args.inductor)
    settings = {"repeats": args.repeats, "bars": BARS}
    path = _common.save("cold", settings, rows)
    if args.json:
        print(path.read_text(encoding="utf-8"))
        return
    known = _common.machine()
    out.print(f"{known['cpu']}, torch {known['torch']}; load {known['load']:.1f}")
    out.print(_table(rows))
    out.print(f"[dim]{path}[/dim]")


def _table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(box=None, title="milliseconds of a fresh process", title_style="")
    table.add_column("operator")
    table.add_column("cache")
    for title in ("import torch", "import ops", "first result", "first gradient"):
        table.add_column(title, justify="right")
    for row in rows:
        bar = BARS.get(row["cache"])
        style = "red" if bar is not None and row["first"] > bar else ""
        cells = [_cell(row, what) for what in ("torch", "ours", "first", "gradient")]
        table.add_row(row["name"], row["cache"], *cells, style=style)
    return table


def _cell(row: Mapping[str, Any], what: str) -> str:
    return f"{row[what]:.0f}" if what in row else ""


if __name__ == "__main__":
    main()
