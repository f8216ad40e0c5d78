"""Rendering: a kernel becomes source text through its target and a template.

Comes in: a `Kernel` and a `Target`. Goes out: the source, ready to compile. Templates
do no arithmetic and index nothing; a name that a template misses is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fuser.kernel import Kernel
from fuser.resources import resource
from fuser.targets.base import Target


def render(kernel: Kernel, target: Target) -> str:
    """The source of the kernel in the target's language."""
    return render_template(target.template, **target.context(kernel))


def render_template(name: str, /, **context: object) -> str:
    """The template `name` of templates/ with the names it asks for filled in."""
    return _environment().get_template(name).render(lines=lines, **context)


def lines(items: Iterable[str], indent: int = 0) -> str:
    """The lines as one text, each but an empty one indented by so many spaces.

    In a template: `{{ lines(body, 8) }}` at the start of a line.
    """
    return "\n".join(" " * indent + item if item else "" for item in items)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(resource("templates"))),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment
