"""What do the kernels for a GPU do for an element? No GPU is needed.

    python perf/kernels.py [--quick] [--only NAME ...] [--target sm_90 ...]
                           [--no-inductor]

Compiles the Triton kernels of the functions in perf/zoo.yaml for sm_90 and gfx942:
bytes read and written for an element against the least there can be (inputs and outputs
once), the width of the narrowest access, registers, spills, the machine's instructions,
and how long 2^26 elements take by memory and by instructions. Beside them the kernels
that Inductor writes. Writes perf/results/kernels.json.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import _assembly
import _common
import _inductor
import _zoo
import torch
from _assembly import Figures

from atentriton.fusing import FusedFunction
from fuser.dtypes import int32
from fuser.kernel import Access, Layout
from fuser.schedule import schedule

ELEMENTS = 1 << 26
MODES = ("forward", "backward", "second", "jvp")


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU by its data sheet: bytes a second, and instructions of 32-bit lanes."""

    name: str
    lanes: int
    bandwidth: float
    issue: float

    def seconds(self, found: Figures) -> tuple[float, float]:
        """What ELEMENTS take by memory, and by instructions, where all goes well."""
        moved = ELEMENTS * (found.loaded + found.stored) / self.bandwidth
        return moved, ELEMENTS * found.instructions / self.issue


# 132 units of 4 x 32 lanes at 1.755 GHz; 304 units of 4 x 16 lanes at 2.1 GHz.
MACHINES = {
    "sm_90": Machine("H100 SXM", 32, 3.35e12, 132 * 128 * 1.755e9),
    "gfx942": Machine("MI300X", 64, 5.3e12, 304 * 64 * 2.1e9),
}


@dataclass(frozen=True, slots=True)
class Row:
    """The kernels of one derivative for one machine; `least` is bytes an element, and
    `outside` how many of eager's operators are called besides."""

    name: str
    mode: str
    target: str
    by: str
    kernels: int
    least: float
    figures: Figures | None
    outside: int = 0
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        found = self.figures
        times = MACHINES[self.target].seconds(found) if found else (None, None)
        return {
            "name": self.name,
            "mode": self.mode,
            "target": self.target,
            "by": self.by,
            "kernels": self.kernels,
            "least_bytes": self.least,
            **(found.as_json() if found else {}),
            "seconds_memory": times[0],
            "seconds_instructions": times[1],
            "outside": self.outside,
            "note": self.note,
        }


def ours(entry: _zoo.Entry, targets: Sequence[str]) -> Iterator[Row]:
    """Our kernels, by derivative and machine."""
    given = entry.arguments(64)
    found = FusedFunction(entry.function()).rewritten(*given).kernels
    if len(found) != 1:
        raise SystemExit(f"{entry.name} is {len(found)} regions, not one")
    routine = found[0].routine
    for mode, derived in _derivatives(routine, found[0], given):
        for target in targets:
            made = [_figures(p.program, target) for p in _pieces(derived)]
            whole = made[0]
            for other in made[1:]:
                whole = whole + other
            yield Row(
                entry.name, mode, target, "ours", len(made), _least(derived), whole
            )


def _pieces(routine: Any) -> Any:
    from atentriton.pieces import pieces_of

    return pieces_of(routine).items


def _derivatives(
    routine: Any, kernel: Any, given: Sequence[torch.Tensor]
) -> Iterator[tuple[str, Any]]:
    """The routines of the MODES; those without anything to compute are left out."""
    holders = [n for n in kernel.tensors[0].graph.nodes if n.op == "placeholder"]
    wanted = tuple(
        able and (node not in holders or given[holders.index(node)].requires_grad)
        for able, node in zip(routine.able, kernel.tensors, strict=True)
    )
    yield "forward", routine
    first = routine.vjp(wanted, routine.differentiable)
    if (again := first.routine) is not None:
        yield "backward", again
        # Cotangents are given: all that is asked for is by way of what was saved.
        kept = tuple(
            able and (kind == "output" or (kind == "input" and wanted[i]))
            for able, (kind, i) in zip(again.able, first.sources, strict=True)
        )
        if any(kept) and any(again.differentiable):
            second = again.vjp(kept, again.differentiable)
            if second.routine is not None:
                yield "second", second.routine
    along = routine.jvp(wanted)
    if along.routine is not None:
        yield "jvp", along.routine


def _least(routine: Any) -> float:
    kinds = [*routine.input_dtypes, *routine.dtypes]
    return float(sum(kind.itemsize for kind in kinds))


def _figures(program: Any, target: str) -> Figures:
    from atentriton.tritonkernels import WARPS, block_size, compile_only

    count = len(program.inputs) + len(program.outputs)
    kernel = schedule(program, Layout(1, (Access.LINEAR,) * count, int32))
    made = compile_only(kernel, target)
    taken = made.resources()
    each = max(1, block_size(kernel) // (WARPS * MACHINES[target].lanes))
    return _assembly.figures(made.asm, (taken.registers, taken.stack), each)


def theirs(entry: _zoo.Entry, targets: Sequence[str]) -> Iterator[Row]:
    """Inductor's kernels of forward and backward; a note where there are none."""
    from triton.backends.compiler import GPUTarget

    given = entry.arguments(1 << 20)
    try:
        found, _ = _inductor.kernels(entry.function(), given)
    except _inductor.Unavailable as error:
        for mode in ("forward", "backward"):
            for target in targets:
                yield Row(
                    entry.name, mode, target, "inductor", 0, 0, None, 0, str(error)
                )
        return
    for mode, made in found.items():
        for target in targets:
            lanes = MACHINES[target].lanes
            kind = "cuda" if lanes == 32 else "hip"
            number: Any = int(target[3:]) if kind == "cuda" else target
            whole: Figures | None = None
            for source, signature in made.kernels:
                machine = GPUTarget(kind, number, lanes)
                one = _inductor.compiled(source, signature, machine)
                taken = _resources(target, one)
                each = _inductor.BLOCK // (_inductor.WARPS * lanes)
                figures = _assembly.figures(one.asm, taken, each)
                whole = figures if whole is None else whole + figures
            count = len(made.kernels)
            yield Row(
                entry.name, mode, target, "inductor", count, 0, whole, made.outside
            )


def _resources(target: str, made: Any) -> tuple[int, int]:
    from atentriton.tritonkernels import Compiled

    taken = Compiled(target, made.asm, {}, made.metadata.shared).resources()
    return taken.registers, taken.stack


def table(rows: Sequence[Row], target: str) -> Any:
    """Ours beside Inductor's for one machine."""
    from atentriton.commands._console import table

    heads = [
        "kernels",
        "bytes\nin + out",
        "least",
        "width",
        "regs",
        "spilled",
        "instr.",
    ]
    heads += ["µs", "bound by", "Inductor:\nbytes", "regs", "instr."]
    made = table("function", "derivative")
    for head in heads:
        made.add_column(head, justify="right", no_wrap=True)
    found = {(r.name, r.mode, r.by): r for r in rows if r.target == target}
    for (name, mode, by), row in found.items():
        if by != "ours" or row.figures is None:
            continue
        f = row.figures
        moved, issued = MACHINES[target].seconds(f)
        bound = "memory" if moved >= issued else "[red]instr.[/red]"
        over = f.loaded + f.stored > row.least
        cells = [f"{f.loaded:g} + {f.stored:g}", f"{row.least:g}", str(f.width)]
        if over:
            cells[1] = f"[red]{cells[1]}[/red]"
        cells += [str(f.registers), _stack(f.spilled), f"{f.instructions:.1f}"]
        cells += [f"{1e6 * max(moved, issued):.0f}", bound]
        made.add_row(
            name,
            mode,
            str(row.kernels),
            *cells,
            *_beside(found.get((name, mode, "inductor"))),
        )
    return made


def _stack(count: int) -> str:
    return f"[red]{count}[/red]" if count else "0"


def _beside(row: Row | None) -> list[str]:
    if row is None:
        return ["-", "", ""]
    if row.figures is None:
        return ["none" if row.note else "*" if row.outside else "0", "", ""]
    f = row.figures
    mark = "*" if row.outside else ""
    return [f"{f.loaded + f.stored:g}{mark}", str(f.registers), f"{f.instructions:.1f}"]


def summary(rows: Sequence[Row], target: str) -> Iterator[str]:
    """What holds over all functions, and where it does not."""
    mine = [r for r in rows if r.target == target and r.by == "ours" and r.figures]
    figures = [(r, r.figures) for r in mine if r.figures]
    if not figures:
        return
    exact = sum(f.loaded + f.stored <= r.least for r, f in figures)
    spilled = [r for r, f in figures if f.spilled]
    memory = 0
    for _, f in figures:
        moved, issued = MACHINES[target].seconds(f)
        memory += moved >= issued
    yield (
        f"{target} ({MACHINES[target].name}): {len(figures)} derivatives, {exact} move "
        f"the least there is, {memory} are bound by memory, {len(spilled)} spill"
    )
    found = {(r.name, r.mode, r.by): r for r in rows if r.target == target}
    ratios = [
        other.figures.instructions / r.figures.instructions
        for r in mine
        if r.figures
        and (other := found.get((r.name, r.mode, "inductor"))) is not None
        and other.figures is not None
        and not other.outside
    ]
    if ratios:
        yield (
            f"Inductor's instructions over ours, {len(ratios)} derivatives that are "
            f"all its own: {_zoo.mean(ratios):.2f}x"
        )
    for row in spilled:
        yield f"we lose: {row.name}, {row.mode}, spills"
    for note in dict.fromkeys(r.note for r in found.values() if r.note):
        yield f"Inductor's kernels cannot be had: {note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few functions")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="only these")
    parser.add_argument("--target", nargs="+", choices=MACHINES, default=[*MACHINES])
    parser.add_argument("--no-inductor", action="store_true")
    args = parser.parse_args()

    from atentriton.commands._console import console, progress

    # Inductor says of every complex operator that it leaves it to eager.
    warnings.filterwarnings("ignore", module=r"torch\._inductor")
    out = console()
    rows: list[Row] = []
    entries = {e.name: e for e in _zoo.chosen(args)}
    for name in progress(out, [*entries]):
        rows += ours(entries[name], args.target)
        if not args.no_inductor:
            rows += theirs(entries[name], args.target)
    for target in args.target:
        out.print(table(rows, target))
        for line in summary(rows, target):
            out.print(line)
        out.print()
    out.print(
        f"[dim]µs of {ELEMENTS:,} elements by the data sheet; bytes and instructions "
        "an element; * operators of eager's come on top[/dim]"
    )
    path = _common.save("kernels", {"elements": ELEMENTS}, [r.as_json() for r in rows])
    out.print(f"[dim]{path}[/dim]")


if __name__ == "__main__":
    main()
