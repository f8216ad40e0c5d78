"""What this machine has, and what will run on it.

Versions, devices, the C compiler and what it takes, the cache folder; which target
kernels run on for tensors of each device, and what to install where something is
missing.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import stat
from importlib import metadata
from typing import Any

from rich.console import Console

from atentriton import __version__
from atentriton.commands._console import add_json, console, emit, escape, heading

NAME = "doctor"
EXAMPLE = """
atentriton doctor
atentriton doctor --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    found = examine()
    if args.json:
        emit(found)
    else:
        show(console(), found)
    return 0 if not found["errors"] else 1


def examine() -> dict[str, Any]:
    """Everything that is known, ready for JSON; `errors` keep kernels from running."""
    warnings: list[str] = []
    errors: list[str] = []
    found: dict[str, Any] = {
        "versions": versions(),
        "devices": devices(),
        "compiler": compiler(warnings),
        "triton": triton(warnings),
        "cache": cache(errors),
    }
    found["runs"] = runs(found)
    return found | {"warnings": warnings, "errors": errors}


def versions() -> dict[str, str | None]:
    """The versions of what takes part; None for what is not installed."""
    found: dict[str, str | None] = {
        "atentriton": __version__,
        "python": platform.python_version(),
    }
    for name in ("torch", "triton", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found | {"system": platform.platform()}


def devices() -> dict[str, Any]:
    """The processor with the threads that torch uses, and the GPUs."""
    import torch

    from atentriton.toolchain import processor

    lines = processor().splitlines()
    model = next((x.split(":", 1)[1].strip() for x in lines if "model name" in x), "")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "cpu": model or platform.machine(),
        "threads": torch.get_num_threads(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "gpus": gpus,
    }


def compiler(warnings: list[str]) -> dict[str, Any] | None:
    """The C compiler and what it takes; None where there is none."""
    from atentriton.cache import CacheError
    from atentriton.toolchain import NoCompilerError, toolchain
    from atentriton.vectormath import vectorised

    try:
        tools = toolchain()
    except NoCompilerError as error:
        warnings.append(str(error))
        return None
    except CacheError:  # there is no telling; `cache` says why
        return None
    functions = vectorised()
    if not functions:
        warnings.append(
            "the C library has no vector functions: log, sin and their like are "
            "called once an element (glibc 2.35 or newer has them)"
        )
    openmp = tools.findings.openmp
    if openmp == "none":
        warnings.append("kernels run in one thread: there is no OpenMP library")
    elif openmp == "own":
        warnings.append(
            "kernels bring an OpenMP library of their own: torch's threads are others"
        )
    return {
        "command": shlex.join(tools.command),
        "version": tools.identity.splitlines()[len(tools.command)],
        "flags": list(tools.findings.flags),
        "libraries": list(tools.findings.libraries),
        "openmp": openmp,
        "vector_functions": list(functions),
    }


def triton(warnings: list[str]) -> dict[str, Any]:
    """Whether Triton is there, and whether it interprets."""
    import torch

    try:
        metadata.version("triton")
    except metadata.PackageNotFoundError:
        if torch.cuda.is_available():
            warnings.append(
                "there is a GPU, but no Triton: pip install triton (kernels for GPU "
                "tensors are PyTorch's own until then)"
            )
        return {"installed": False, "interprets": False}
    interprets = os.environ.get("TRITON_INTERPRET") == "1"
    if interprets:
        warnings.append(
            "TRITON_INTERPRET=1: kernels run in Triton's interpreter, slowly"
        )
    return {"installed": True, "interprets": interprets}


def cache(errors: list[str]) -> dict[str, Any]:
    """The cache folder, how much is in it, and who may use it."""
    from atentriton.cache import CacheError, default_cache, default_root

    root = default_root()
    try:
        default_cache()
    except CacheError as error:
        errors.append(str(error))
        return {"folder": str(root), "files": 0, "bytes": 0, "mode": None}
    sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    mode = stat.S_IMODE(root.stat().st_mode)
    return {
        "folder": str(root),
        "files": len(sizes),
        "bytes": sum(sizes),
        "mode": f"{mode:04o}",
    }


def runs(found: dict[str, Any]) -> dict[str, str]:
    """What kernels run as, by the device of the tensors."""
    if found["cache"]["mode"] is None:
        return dict.fromkeys(("cpu", "cuda"), "nothing without the cache folder")
    reference = "the reference: PyTorch's operators, one for each step of a formula"
    interprets = found["triton"]["interprets"]
    native = "compiled C" if found["compiler"] else reference
    cpu = "Triton's interpreter" if interprets else native
    if not found["devices"]["gpus"]:
        return {"cpu": cpu, "cuda": "no GPU here"}
    return {"cpu": cpu, "cuda": "Triton" if found["triton"]["installed"] else reference}


def show(out: Console, found: dict[str, Any]) -> None:
    """The findings as a person reads them."""
    heading(out, "versions")
    for name, text in found["versions"].items():
        _line(out, name, text or "not installed")
    heading(out, "devices")
    device = found["devices"]
    threads = f"{device['threads']} threads, {device['vectors']}"
    _line(out, "cpu", f"{device['cpu']}, {threads}")
    _line(out, "gpu", ", ".join(device["gpus"]) or "none here")
    heading(out, "C compiler")
    tools = found["compiler"]
    if tools is None:
        _line(out, "command", "none")
    else:
        _line(out, "command", f"{tools['command']} ({tools['version']})")
        _line(out, "flags", " ".join(tools["flags"]))
        _line(out, "libraries", " ".join(tools["libraries"]) or "none")
        _line(out, "OpenMP", tools["openmp"])
        _line(out, "vectorised", " ".join(tools["vector_functions"]) or "nothing")
    heading(out, "cache")
    kept = found["cache"]
    _line(out, "folder", kept["folder"])
    size = f"{kept['files']} files, {kept['bytes'] / 2**20:.1f} MiB"
    _line(out, "content", f"{size}, mode {kept['mode']}")
    heading(out, "what runs")
    for name, text in found["runs"].items():
        _line(out, f"{name} tensors", text)
    for kind, colour in (("warnings", "yellow"), ("errors", "red")):
        for text in found[kind]:
            line = f"\n[{colour}]{kind[:-1]}[/{colour}]: {escape(text)}"
            out.print(line, soft_wrap=True)


def _line(out: Console, name: str, text: str) -> None:
    out.print(f"  [dim]{name:13}[/dim] {escape(text)}", soft_wrap=True)
