"""What one process has worked out and the next need not: records, as JSON in the cache.

Comes in: a key, how a thing is made, and how it is written and read as JSON. Goes out:
the thing, from its record where there is one. A record holds facts and names, never
code, and is made anew where it cannot be read. Every key goes with the source files of
both packages and with torch's version: after any change there are no records.

A process that shows its stages (ATENTRITON_DUMP) goes through them all: no records.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import torch

from atentriton import __version__
from atentriton.cache import Cache, CacheError, default_cache
from fuser.resources import resource, search_path

T = TypeVar("T")


def remembered(
    key: str,
    encode: Callable[[T], Any],
    decode: Callable[[Any], T],
    make: Callable[[], T],
) -> T:
    """What `make` gives, or gave to a process before; its errors are passed on."""
    if showing():
        return make()
    found = recall(key, decode)
    if found is None:
        with uncollected():
            found = make()
        keep(key, encode(found))
    return found


@contextmanager
def uncollected() -> Iterator[None]:
    """Put off the collection of garbage: of what is worked out for the first time
    nearly everything stays, and going through all that torch holds takes 70 ms."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def showing() -> bool:
    """Whether all stages are to be gone through, because they are shown."""
    return bool(os.environ.get("ATENTRITON_DUMP"))


def recall(key: str, decode: Callable[[Any], T]) -> T | None:
    """The thing whose record was kept under that key, or None."""
    cache = _cache()
    if cache is None:
        return None
    path = cache.path(_whole(key), ".json")
    try:
        of, content = json.loads(path.read_bytes())
        if of != key:
            raise ValueError(of)
        return decode(content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        forget(key)
        return None


def keep(key: str, content: Any) -> None:
    """Leave a record for other processes, where the cache takes it."""
    cache = _cache()
    if cache is None:
        return
    try:
        text = json.dumps([key, content])
        cache.build(_whole(key), ".json", lambda path: _write(path, text))
    except OSError:
        return


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def forget(key: str) -> None:
    """Remove the record: what it says does not hold."""
    cache = _cache()
    if cache is not None:
        with suppress(OSError):
            cache.discard(cache.path(_whole(key), ".json"))


def _cache() -> Cache | None:
    """The cache; None where it cannot be used, which whoever needs it will say."""
    try:
        return default_cache()
    except CacheError:
        return None


def _whole(key: str) -> str:
    return f"record\n{sources()}\n{key}"


@cache
def sources() -> str:
    """The state of all source files, taken as Python takes that of a module: by size
    and time of change."""
    roots = [Path(__file__).parent, search_path()[0]]
    roots += [resource("derivatives.yaml"), resource("templates")]
    lines = [__version__, torch.__version__]
    for root in roots:
        lines += sorted(_states(root))
    return sha256("\n".join(lines).encode()).hexdigest()


def _states(path: Path | os.DirEntry[str]) -> Iterator[str]:
    if path.is_dir():
        with os.scandir(path) as found:
            for entry in found:
                if entry.name != "__pycache__":
                    yield from _states(entry)
        return
    status = path.stat()
    yield f"{os.fspath(path)} {status.st_size} {status.st_mtime_ns}"


sources()  # now: what is recorded must not pass for the work of files changed since
