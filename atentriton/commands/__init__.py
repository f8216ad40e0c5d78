"""The commands, one module each: what it is called, takes, and does.

Comes in: a name. Goes out: the module, as a `Command`. Its docstring is the text of
`--help`, and `run` returns the exit status.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Protocol, cast

SUMMARIES = {
    "demo": "the tour: coverage, formulas turned into kernels, accuracy, speed",
    "coverage": "what becomes of each entry of a file of derivatives",
    "list": "the operators, by class",
    "show": "one operator, from its formula to its kernels",
    "check": "hold operators against PyTorch's own: values and derivatives",
    "warm": "compile kernels before they are needed, several at a time",
    "cache": "what is kept on disk: info, or clear",
    "doctor": "what this machine has, and what will run on it",
}
NAMES = tuple(SUMMARIES)


class UsageError(Exception):
    """Something was asked for in a way that has no answer; exit status 2."""


class Command(Protocol):
    """What the module of a command has."""

    __doc__: str | None
    NAME: str
    EXAMPLE: str

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None: ...

    @staticmethod
    def run(args: argparse.Namespace) -> int: ...


def load(name: str) -> Command:
    """The command of that name, one of NAMES."""
    module = {"list": "listing"}.get(name, name)
    return cast(Command, import_module(f"{__name__}.{module}"))
