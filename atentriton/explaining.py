"""What a function's operators ran as, and why: `atentriton.explain`.

Comes in: a function and arguments for it. Goes out: an `Explanation`, which prints as a
table: each operator, what ran for it, from which formula, and why PyTorch's own ran
where it did; then each program that ran, with its kernels and the bytes it moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from atentriton.decisions import Decision, Event, Launched, watched
from atentriton.graphs.accounts import FusedGraph, dot
from atentriton.override import replacing


@dataclass(frozen=True)
class Explanation:
    """`result` is what the function gave; `events` is what happened, in order."""

    result: Any
    events: tuple[Event, ...]

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What ran for each operator that was called."""
        return tuple(e for e in self.events if isinstance(e, Decision))

    @property
    def launches(self) -> tuple[Launched, ...]:
        """The programs that ran, derivatives included."""
        return tuple(e for e in self.events if isinstance(e, Launched))

    @property
    def graphs(self) -> tuple[FusedGraph, ...]:
        """The graphs with fused regions that ran: `fuse`, and torch.compile's."""
        return tuple(e for e in self.events if isinstance(e, FusedGraph))

    def dot(self) -> str:
        """The regions of all graphs, for Graphviz."""
        return "\n".join(dot(graph.rewritten) for graph in self.graphs)

    @property
    def fell_back(self) -> tuple[Decision, ...]:
        """The operators that were PyTorch's own."""
        return tuple(d for d in self.decisions if d.ran == "torch")

    @property
    def kernels(self) -> int:
        return sum(launch.kernels for launch in self.launches)

    def __str__(self) -> str:
        console = Console(width=100, no_color=True)
        with console.capture() as captured:
            console.print(self)
        return captured.get()

    def __rich_console__(self, console: Any, options: Any) -> Any:
        if not self.events:
            yield "no operator of those that are replaced was called"
            return
        if self.decisions:
            yield _operators(self.decisions)
        for graph in {id(g.rewritten): g for g in self.graphs}.values():
            yield _regions(graph)
            for operator, why in graph.outside.items():
                yield f"{graph.name}, in no region: {why or operator}"
        if self.launches:
            yield _programs(self.launches)
        read = sum(launch.read for launch in self.launches)
        written = sum(launch.written for launch in self.launches)
        yield (
            f"{len(self.decisions)} operators, {len(self.fell_back)} PyTorch's own; "
            f"{self.kernels} kernels, {read:,} bytes read, {written:,} written"
        )


def explain(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
    """Call `fn(*args, **kwargs)` and tell what ran where, and why.

    Operators are replaced as in `atentriton.use()`, unless a `use` or `enable` holds
    already. Derivatives that `fn` takes are seen as well.
    """
    with replacing(), watched() as events:
        result = fn(*args, **kwargs)
    return Explanation(result, tuple(events))


def _operators(decisions: tuple[Decision, ...]) -> Table:
    table = _table("operator", "ran as", "why")
    for decision, times in Counter(decisions).items():
        why = decision.reason.strip().splitlines()
        name = decision.operator + _times(times)
        table.add_row(name, decision.ran, why[0] if why else "")
    return table


def _regions(graph: FusedGraph) -> Table:
    """The regions of a graph, with what they save over the operators one by one."""
    table = _table("region", "read", "written", "saved", "unfused", "ends at")
    for account in graph.accounts:
        unfused = " + ".join(f"{n:,}" for n in account.unfused)
        names = ", ".join(account.operators)
        moved = (account.read, account.written, account.saved)
        ends = "; ".join(account.ends)
        table.add_row(names, *(f"{n:,}" for n in moved), unfused, ends)
    return table


def _programs(launches: tuple[Launched, ...]) -> Table:
    table = _table("program", "kernels", "elements", "read", "written", "formulas")
    for launch, times in Counter(launches).items():
        table.add_row(
            launch.lineage + _times(times),
            f"{launch.kernels} {launch.target}",
            f"{launch.elements:,}",
            f"{launch.read:,}",
            f"{launch.written:,}",
            "; ".join(f for f in launch.formulas if " -> " not in f),
        )
    return table


# Columns of numbers.
_NUMBERS = ("elements", "read", "written", "saved", "unfused")


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="bold", title_justify="left")
    for heading in headings:
        justify = "right" if heading in _NUMBERS else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    return table


def _times(count: int) -> str:
    return f" x{count}" if count > 1 else ""
