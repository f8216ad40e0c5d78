"""The command line: `atentriton COMMAND ...`.

Comes in: the arguments. Goes out: text, or JSON where `--json` is given, and the exit
status: 0 ok, 1 something failed a check or a file has mistakes, 2 wrong usage. Each
command is a module of `atentriton.commands`; it is imported only when it is used.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from atentriton import __version__, commands
from atentriton.cache import CacheError
from atentriton.commands import Command, UsageError
from fuser.errors import FormulaFileError, nearest

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

DESCRIPTION = """\
PyTorch operators and all their derivatives, compiled from the formulas of
derivatives.yaml. Start with `atentriton demo`, or `atentriton show acosh`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; `argv` is without the program's name. Returns the exit status.

    `--help` and arguments that do not parse end in SystemExit, as argparse does.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    found = _command(given)
    if isinstance(found, str):
        return _complain(found, USAGE)
    args = _parser(found).parse_args(given)
    if found is None:
        _parser(None).print_help()
        return OK
    try:
        return found.run(args)
    except UsageError as error:
        return _complain(str(error), USAGE)
    except CacheError as error:
        return _complain(str(error), FAILED)
    except FormulaFileError as error:
        return _complain(str(error), FAILED, prefix="")
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _command(given: Sequence[str]) -> Command | str | None:
    """The command that is asked for, None for none, or what is wrong with its name."""
    if not given or given[0].startswith("-"):
        return None
    if given[0] in commands.NAMES:
        return commands.load(given[0])
    starts = [name for name in commands.NAMES if name.startswith(given[0])]
    guess = starts[0] if len(starts) == 1 else nearest(given[0], commands.NAMES)
    hint = f'did you mean "{guess}"?' if guess else f"there are {_names()}"
    return f'there is no command "{given[0]}"; {hint}'


def _parser(command: Command | None) -> argparse.ArgumentParser:
    """The parser; only the command that is used brings its arguments along."""
    parser = argparse.ArgumentParser(
        prog="atentriton",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"atentriton {__version__}"
    )
    added = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in commands.SUMMARIES.items():
        if command is None or name != command.NAME:
            added.add_parser(name, help=summary)
            continue
        chosen = added.add_parser(
            name,
            help=summary,
            description=command.__doc__,
            epilog=f"example:\n{_indented(command.EXAMPLE)}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(chosen)
    return parser


def _names() -> str:
    return ", ".join(commands.NAMES)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())


def _complain(message: str, status: int, prefix: str = "error: ") -> int:
    print(f"{prefix}{message}", file=sys.stderr)
    return status
