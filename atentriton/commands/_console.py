"""How commands speak: tables and code in a terminal, plain text and JSON elsewhere.

Comes in: what there is to say. Goes out: text on standard output. Where that is not a
terminal, or NO_COLOR is set, there are no colours and no control characters.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.syntax import Syntax
from rich.table import Table

from fuser.errors import nearest

# Columns of a table that goes to a file or a pipe, where none are given by COLUMNS.
PLAIN_WIDTH = 120


def console() -> Console:
    """The console on what is standard output now."""
    plain = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=PLAIN_WIDTH if plain else None)


def emit(value: Any) -> None:
    """The value as JSON, and nothing else, on standard output."""
    print(json.dumps(value, indent=2))


def table(
    *columns: str, right: Collection[str] = (), whole: Collection[str] = ()
) -> Table:
    """An empty table.

    The columns named in `right` hold numbers, those in `whole` are never broken.
    """
    made = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold",
            no_wrap=name in right or name in whole,
        )
    return made


def code(out: Console, text: str, language: str) -> None:
    """Source text, with colours where the console has any; never cut or padded."""
    if out.is_terminal and not out.no_color:
        out.print(
            Syntax(text, language, theme="ansi_dark", background_color="default"),
            soft_wrap=True,
        )
    elif not out.quiet:
        out.file.write(f"{text}\n")


def heading(out: Console, text: str, note: str = "") -> None:
    """A line that begins a part; `note` says where it comes from."""
    out.print()
    out.print(
        f"[bold]{escape(text)}[/bold]"
        + (f"  [dim]{escape(note)}[/dim]" if note else "")
    )


def escape(text: str) -> str:
    """The text with its brackets meaning themselves."""
    return text.replace("[", r"\[")


@contextmanager
def counting(out: Console, total: int) -> Iterator[Callable[[str], None]]:
    """A bar in a terminal; what it gives is called with the name of what is done."""
    shown = out.is_terminal and not out.quiet
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=out, transient=True, disable=not shown) as bar:
        task = bar.add_task("", total=total)
        yield lambda name: bar.update(task, description=name, advance=1)


def progress(out: Console, names: Sequence[str]) -> Iterator[str]:
    """The names, with a bar that counts those that are done, in a terminal."""
    with counting(out, len(names)) as finished:
        for name in names:
            yield name
            finished(name)


def one_of(what: str, names: Iterable[str]) -> Callable[[str], str]:
    """The type of an argument that is one of the names; says which is nearest."""
    known = tuple(names)

    def parse(text: str) -> str:
        if text in known:
            return text
        guess = nearest(text, known)
        hint = f'did you mean "{guess}"?' if guess else f"there are {', '.join(known)}"
        raise argparse.ArgumentTypeError(f'there is no {what} "{text}"; {hint}')

    return parse


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """The option --jobs."""
    parser.add_argument(
        "--jobs",
        type=_processes,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes to work in (default: %(default)s)",
    )


def _processes(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} is no number of processes")
    return count


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option --json."""
    parser.add_argument(
        "--json", action="store_true", help="JSON on standard output, for programs"
    )
