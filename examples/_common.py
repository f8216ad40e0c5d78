"""What the examples share: how a function is run, the training, the command line.

Comes in: `build`, which makes a Problem for a Setting. Goes out: the losses and times
of training it in one way or, side by side, in all, as a table, JSON and a picture.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from torch import Tensor

# The examples run from a checkout, installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from atentriton import fuse
from atentriton.dynamo import atentriton as backend

Wrapper = Callable[[Any], Any]
WARM_UP = 3  # steps that may still compile


def unchanged(function: Any) -> Any:
    return function


def inductor(loss: Any) -> Any:
    """With the gradients that the loss takes as part of the graph, where Dynamo can.

    By default it cannot, and Inductor refuses: the loss is then differentiated through
    what is a backward already.
    """
    config: Any = torch._dynamo.config
    compiled = torch.compile(loss)

    def run(*args: Tensor) -> Tensor:
        if not hasattr(config, "trace_autograd_ops"):
            return compiled(*args)
        with config.patch(trace_autograd_ops=True):
            return compiled(*args)

    return run


@dataclass(frozen=True)
class Way:
    """What becomes of an elementwise function, and of the loss as a whole."""

    function: Wrapper = unchanged
    loss: Wrapper = unchanged


WAYS = {
    "fuse": Way(function=fuse),
    "backend": Way(loss=lambda loss: torch.compile(loss, backend=backend)),
    "eager": Way(),
    "inductor": Way(loss=inductor),
}


@dataclass(frozen=True)
class Setting:
    """What a problem is built for; `size` and `width` are None for the usual ones."""

    way: Way
    size: int | None = None
    width: int | None = None
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    seed: int = 0

    @property
    def place(self) -> dict[str, Any]:
        return {"device": self.device, "dtype": self.dtype}


@dataclass(frozen=True)
class Problem:
    """What is trained: the loss of the next step, and how to draw what was learned."""

    parameters: Sequence[Tensor]
    loss: Callable[[], Tensor]
    draw: Callable[[Any], None]
    rate: float = 1e-3


@dataclass
class Session:
    """The training of a problem, a step at a time."""

    problem: Problem
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failure: str | None = None

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.problem.parameters, self.problem.rate)

    def step(self) -> None:
        start = perf_counter()
        self.optimizer.zero_grad()
        loss = self.problem.loss()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())  # waits for the device
        self.seconds.append(perf_counter() - start)

    def try_step(self) -> None:
        """A step, unless one has failed: a compiler may refuse what it is given."""
        if self.failure is None:
            try:
                self.step()
            except Exception as error:
                self.failure = str(error).strip().splitlines()[0]

    @property
    def steady(self) -> list[float]:
        return self.seconds[WARM_UP:] or self.seconds

    def as_json(self, eager: Session | None) -> dict[str, Any]:
        found: dict[str, Any] = {"losses": self.losses, "failure": self.failure}
        if self.failure is None:
            found["first_step_s"] = self.seconds[0]
            found["step_ms"] = 1e3 * statistics.median(self.steady)
            if eager is not None:
                pairs = zip(eager.steady, self.steady, strict=True)
                found["times_eager"] = statistics.median(e / s for e, s in pairs)
                found["loss_difference"] = difference(self.losses, eager.losses)
        return found


def difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The largest relative difference of two curves of losses."""
    pairs = zip(ours, theirs, strict=True)
    return max(abs(a - b) / max(abs(b), 1e-300) for a, b in pairs)


def main(
    build: Callable[[Setting], Problem],
    about: str,
    argv: Sequence[str] | None = None,
) -> int:
    """Run an example from the command line; `about` is its docstring."""
    args = _arguments(about, argv)
    names = list(WAYS) if args.compare else ["eager" if args.eager else args.way]
    sessions: dict[str, Session] = {}
    for name in names:
        torch.manual_seed(args.seed)
        setting = Setting(
            WAYS[name],
            args.size,
            args.width,
            args.device,
            getattr(torch, args.dtype),
            args.seed,
        )
        sessions[name] = Session(build(setting))
    _train(sessions, args.steps, strict=not args.compare)
    eager = sessions.get("eager") if args.compare else None
    results = {name: s.as_json(eager) for name, s in sessions.items()}
    if args.json:
        settings = {**vars(args), "threads": torch.get_num_threads()}
        print(json.dumps({"settings": settings, "ways": results}, indent=2))
    else:
        _report(Console(), results)
    if args.plot is not None:
        _plot(args.plot, about.splitlines()[0], sessions)
    return 0


def _arguments(about: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=_positive, default=500, help="of the optimizer")
    add("--size", type=_positive, help="how many points, systems or sequences")
    add("--width", type=_positive, help="of the network")
    add("--device", default="cpu")
    add("--dtype", choices=("float32", "float64"), default="float32")
    add("--seed", type=int, default=0)
    add("--way", choices=tuple(WAYS), default="fuse", help="what runs it")
    add("--eager", action="store_true", help="PyTorch's own operators: --way eager")
    add("--compare", action="store_true", help="train in every way, side by side")
    add("--plot", metavar="FILE", help="draw the losses, and what was learned")
    add("--json", action="store_true", help="print JSON")
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def _train(sessions: dict[str, Session], steps: int, strict: bool) -> None:
    """All sessions in turns, so that what disturbs the machine disturbs all alike."""
    out = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    first = next(iter(sessions.values()))
    with Progress(
        *columns, console=out, transient=True, disable=not out.is_terminal
    ) as bar:
        task = bar.add_task("", total=steps)
        for _ in range(steps):
            for session in sessions.values():
                session.step() if strict else session.try_step()
            loss = f"loss {first.losses[-1]:.3g}" if first.losses else ""
            bar.update(task, advance=1, description=loss)


def _report(out: Console, results: dict[str, dict[str, Any]]) -> None:
    table = Table("way", box=None, header_style="bold")
    heads = "first step", "a step", "times eager", "last loss", "apart from eager"
    for head in heads:
        table.add_column(head, justify="right")
    for name, found in results.items():
        if found["failure"] is not None:
            table.add_row(name, "refuses")
            continue
        cells = [f"{found['first_step_s']:.2f} s", f"{found['step_ms']:.2f} ms"]
        cells.append(f"{found['times_eager']:.2f}x" if "times_eager" in found else "")
        cells.append(f"{found['losses'][-1]:.4g}")
        if "loss_difference" in found:
            cells.append(f"{found['loss_difference']:.1e}")
        table.add_row(name, *cells)
    out.print(table)
    for name, found in results.items():
        if found["failure"] is not None:
            out.print(f"{name} refuses: {found['failure']}", markup=False)


def _plot(path: str, title: str, sessions: dict[str, Session]) -> None:
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("--plot needs matplotlib, which is missing") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (curves, picture) = pyplot.subplots(1, 2, figsize=(10, 4))
    for k, (name, session) in enumerate(sessions.items()):
        if session.failure is None:
            style = ("-", "--", ":", "-.")[k % 4]  # they lie on one another
            curves.plot(session.losses, style, label=name, linewidth=2.2 - 0.4 * k)
    curves.set(xlabel="step", ylabel="loss", yscale="log")
    curves.legend(frameon=False)
    next(s for s in sessions.values() if s.failure is None).problem.draw(picture)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
