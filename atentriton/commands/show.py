"""One operator, from its formula to its kernels.

Without `--stage` a guided tour: the entry in derivatives.yaml, the graph of the value,
the derivatives that are made of it, and the source of the kernels for `--target`.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

from rich.console import Console

from atentriton.commands import UsageError
from atentriton.commands._console import (
    add_json,
    code,
    console,
    emit,
    escape,
    heading,
    one_of,
)
from atentriton.commands._formulas import (
    MEANING,
    compiler_of,
    file_of,
    operator_name,
    place,
)
from atentriton.commands._stages import Stages, setting, stages
from fuser.classify import Verdict, verdict
from fuser.dtypes import DTYPES, dtype

NAME = "show"
EXAMPLE = """
atentriton show acosh
atentriton show logaddexp --stage source --target sm_90
atentriton show div.Tensor_mode --set rounding_mode=floor --stage derive
atentriton show pow.Tensor_Scalar --set exponent=6 --stage source
"""
STAGES = ("formula", "ir", "derive", "schedule", "source", "ptx")
TARGETS = "native (C), or a GPU: sm_80, sm_90, gfx942, ..."
_GPU = re.compile(r"sm_\d+|gfx[0-9a-f]+")

# What the programs of a stage are called in headings.
TITLES = {
    "value": "the value",
    "backward": "the backward: gradients of the inputs",
    "second": "the second derivative: the backward of the backward",
    "jvp": "the forward derivative: tangents",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("operator", metavar="OP", help="such as acosh or add.Tensor")
    parser.add_argument(
        "--stage",
        type=one_of("stage", STAGES),
        help=f"only this one: {', '.join(STAGES)} (the assembly of a GPU)",
    )
    parser.add_argument("--target", type=_target, help=TARGETS)
    parser.add_argument(
        "--dtype",
        type=one_of("dtype", DTYPES),
        default="float32",
        help="of the tensors; default: float32",
    )
    parser.add_argument(
        "--set",
        dest="given",
        metavar="NAME=VALUE",
        action="append",
        type=_setting,
        default=[],
        help="show what a call with that value runs; may be given again",
    )
    parser.add_argument("--file", help="a file of derivatives; default: ours")
    add_json(parser)


def _target(text: str) -> str:
    if text == "native" or _GPU.fullmatch(text):
        return text
    raise argparse.ArgumentTypeError(
        f'there is no target "{text}"; there are {TARGETS}'
    )


def _setting(text: str) -> tuple[str, object]:
    try:
        return setting(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    made = compiler_of(file_of(args.file))
    name = operator_name(args.operator, made)
    target = args.target or ("sm_90" if args.stage == "ptx" else "native")
    if args.stage == "ptx":
        _check_assembly(target)
    found = stages(made, name, dtype(args.dtype), dict(args.given))
    entry = found.operator.entry
    from atentriton.catalogue import RUNTIME

    judged = verdict(made, entry, RUNTIME) if entry is not None else None
    if args.given and not found.programs:
        raise UsageError(f"{name}: {found.missing['value']}")
    if args.json:
        emit(as_json(found, judged, args.stage, target))
        return 0
    out = console()
    show(out, found, judged, args.stage, target)
    return 0


def _check_assembly(target: str) -> None:
    if target == "native":
        raise UsageError(
            "--stage ptx is the assembly of a GPU: give --target sm_90, ..."
        )
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise UsageError(
            "with TRITON_INTERPRET=1 set nothing can be compiled for a GPU"
        )


def show(
    out: Console, found: Stages, judged: Verdict | None, stage: str | None, target: str
) -> None:
    """Print one stage, or the tour."""
    operator = found.operator
    if stage is None:
        span = None if operator.entry is None else operator.entry.span
        heading(out, operator.name, "" if span is None else place(span))
        if judged is not None:
            out.print(f"[bold]{judged.kind}[/bold]: {escape(judged.reason)}")
            if judged.kind != "fused":
                out.print(escape(MEANING[judged.kind]))
            out.print(
                f"[dim]value {judged.forward}, backward {judged.backward}, ", end=""
            )
            out.print(f"[dim]second {judged.second}, jvp {judged.jvp}")
    for kind in (stage,) if stage else ("formula", "ir", "derive", "source"):
        for title, text, language in parts(found, kind, target):
            heading(out, title)
            code(out, text, language)
    if not found.programs:
        out.print()
        out.print(f"no kernel of our own: {escape(found.missing['value'])}")
    elif stage in (None, "derive"):
        for which, why in found.missing.items():
            out.print(f"\nno {which}: {escape(why)}")


def parts(found: Stages, stage: str, target: str) -> list[tuple[str, str, str]]:
    """Title, text and language of what a stage consists of."""
    if stage == "formula":
        return [("the formulas", found.formula(), "yaml")]
    language = "c" if target == "native" else "python"
    where = f"for {target}" if stage in ("source", "ptx") else ""
    wanted = {
        "ir": ("value",),
        "derive": ("backward", "second", "jvp"),
        "source": ("value", "backward"),
    }.get(stage, tuple(TITLES))
    return [
        (
            f"{stage}: {TITLES[which]} {where}".rstrip(),
            text_of(found, stage, which, target),
            "text" if stage == "ptx" else language if stage == "source" else "python",
        )
        for which in wanted
        if which in found.programs
    ]


def text_of(found: Stages, stage: str, which: str, target: str) -> str:
    """The text of one program at one stage."""
    if stage in ("ir", "derive"):
        return found.graph(which)
    if stage == "schedule":
        return found.pieces(which)
    if stage == "source":
        return found.source(which, target)
    return found.assembly(which, target)


def as_json(
    found: Stages, judged: Verdict | None, stage: str | None, target: str
) -> dict[str, Any]:
    """Every stage asked for, by the name of the program."""
    entry = found.operator.entry
    shown: dict[str, Any] = {}
    for kind in (stage,) if stage else STAGES[:-1]:
        if kind == "formula":
            shown[kind] = found.formula()
            continue
        shown[kind] = {
            which: text_of(found, kind, which, target) for which in found.programs
        }
    return {
        "name": found.operator.name,
        "signature": str(found.operator.signature),
        "class": None if judged is None else judged.kind,
        "reason": None if judged is None else judged.reason,
        "file": None if entry is None else entry.span.file,
        "line": None if entry is None else entry.span.line,
        "target": target,
        "missing": found.missing,
        "stages": shown,
    }
