"""What is kept on disk: where it lies, how much it is, and how to be rid of it.

Kernels that were compiled are found again by later processes; so are records of what
was worked out about operators. `clear` removes all of it, without asking: what is
needed is made again.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console

from atentriton.commands._console import add_json, console, emit, escape, table

NAME = "cache"
EXAMPLE = """
atentriton cache info
atentriton cache clear
"""

# What the files are, by their ends; what is left are records.
SOURCES = (".c", ".h", ".py")
LIBRARIES = (".so",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("info", "clear"))
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from atentriton.cache import default_cache

    kept, out = default_cache(), console()
    if args.action == "clear":
        files, size = kept.clear()
        removed = {"folder": str(kept.root), "removed": files, "bytes": size}
        if args.json:
            emit(removed)
        else:
            place = escape(str(kept.root))
            out.print(f"removed {files} files, {_mebibytes(size)}, from {place}")
        return 0
    found = examine(kept)
    if args.json:
        emit(found)
    else:
        show(out, found)
    return 0


def examine(kept: Any) -> dict[str, Any]:
    """The folder, its files and bytes, kernels and bytes by target, and records."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for path in kept.entries():
        kind = _kind(path)
        counts[kind] += 1
        sizes[kind] += path.stat().st_size
    targets: dict[str, dict[str, int]] = {}
    if counts["library"]:
        targets["native"] = {"kernels": counts["library"], "bytes": sizes["library"]}
    compiled = _of_triton(kept.of_triton)
    files = sum(counts.values()) + sum(t.pop("files") for t in compiled.values())
    targets |= {t: found for t, found in sorted(compiled.items()) if found["kernels"]}
    others = compiled.get("", {"bytes": 0})["bytes"]
    return {
        "folder": str(kept.root),
        "entries": files,
        "bytes": sum(sizes.values()) + sum(t["bytes"] for t in compiled.values()),
        "targets": targets,
        "sources": {"files": counts["source"], "bytes": sizes["source"]},
        "records": {"files": counts["record"], "bytes": sizes["record"] + others},
    }


def _kind(path: Path) -> str:
    if path.suffix in LIBRARIES:
        return "library"
    return "source" if path.suffix in SOURCES else "record"


def _of_triton(folder: Path) -> dict[str, dict[str, int]]:
    """Triton's kernels by the machine they are for; files of no kernel under "".

    Each kernel has a folder, with its code for every stage and a description.
    """
    found: dict[str, dict[str, int]] = defaultdict(
        lambda: {"kernels": 0, "bytes": 0, "files": 0}
    )
    for place in folder.iterdir() if folder.is_dir() else ():
        files = [path for path in place.rglob("*") if path.is_file()]
        machines = [m for m in map(_machine, files) if m]
        entry = found[machines[0] if machines else ""]
        entry["kernels"] += len(machines)
        entry["files"] += len(files)
        entry["bytes"] += sum(path.stat().st_size for path in files)
    return found


def _machine(path: Path) -> str:
    """The machine that Triton's description of a kernel names; empty for another."""
    if path.suffix != ".json" or path.name.startswith("__grp__"):
        return ""
    try:
        target = json.loads(path.read_bytes())["target"]
        arch = target["arch"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f"sm_{arch}" if isinstance(arch, int) else str(arch)


def show(out: Console, found: dict[str, Any]) -> None:
    """The folder, then a line for each kind of file."""
    size = _mebibytes(found["bytes"])
    out.print(escape(f"{found['folder']}: {found['entries']} files, {size}"))
    rows = table("", "count", "size", right=("count", "size"))
    for target, kernels in found["targets"].items():
        rows.add_row(
            f"kernels, {escape(target)}",
            str(kernels["kernels"]),
            _mebibytes(kernels["bytes"]),
        )
    for kind in ("sources", "records"):
        rows.add_row(kind, str(found[kind]["files"]), _mebibytes(found[kind]["bytes"]))
    out.print(rows)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
