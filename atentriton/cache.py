"""The cache on disk: files that are made once and found again by what they were made
of.

Comes in: a text that says everything the file depends on, and a function that makes it.
Goes out: its path. Entries appear at once and whole, so that any number of processes
and threads may share the folder. It lies at ATENTRITON_CACHE_DIR, or else in the user's
cache folder (XDG_CACHE_HOME, ~/.cache), and must be nobody else's: code is loaded from
it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

# Part of every key: raised when what is stored changes its form or meaning.
FORMAT = 1

_NAME = re.compile(r"[0-9a-f]{64}\.\w+")


class CacheError(RuntimeError):
    """The cache folder cannot be made, or is not safe to load code from."""


class Cache:
    """A folder of files named after the hash of what they were made of."""

    def __init__(self, root: Path) -> None:
        """Use the folder, which is made if it is missing; CacheError if unsafe."""
        self.root = root
        self.built: Counter[str] = Counter()  # files this process has made, by suffix
        _make_private(root)

    def build(self, key: str, suffix: str, builder: Callable[[Path], None]) -> Path:
        """The file for `key`, which `builder` writes to the path it is given if
        missing.

        Of several processes that want the same file one builds it and the others wait.
        What the builder raises is passed on, and nothing is kept.
        """
        path = self.path(key, suffix)
        if path.exists():
            return path
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with _locked(path.with_suffix(f"{suffix}.lock")):
            if not path.exists():
                _write(path, suffix, builder)
                self.built[suffix] += 1
        return path

    def text(self, text: str, suffix: str) -> Path:
        """A file that holds the text, for compilers and debuggers to read."""
        return self.build(text, suffix, lambda path: _write_text(path, text))

    def path(self, key: str, suffix: str) -> Path:
        """Where the file for `key` is, or would be."""
        digest = sha256(f"{FORMAT}\n{suffix}\n{key}".encode()).hexdigest()
        return self.root / digest[:2] / f"{digest}{suffix}"

    def named(self, name: str) -> Path:
        """The file of that name, as `build` has named it; LookupError if it is not of
        this folder."""
        if not _NAME.fullmatch(name):
            raise LookupError(f"no file of the cache is called {name!r}")
        return self.root / name[:2] / name

    def entries(self) -> Iterator[Path]:
        """The files of this folder, but for those that Triton keeps in it."""
        for folder in self.root.iterdir():
            if len(folder.name) == 2 and folder.is_dir():
                yield from (p for p in folder.iterdir() if _NAME.fullmatch(p.name))

    @property
    def of_triton(self) -> Path:
        """The folder in which Triton keeps what it compiles."""
        return self.root / "triton"

    def clear(self) -> tuple[int, int]:
        """Remove every entry, and what Triton keeps: how many files, and their bytes.

        What else lies in the folder stays. Processes that have loaded a file keep it.
        """
        files = [*self.entries(), *filter(Path.is_file, self.of_triton.rglob("*"))]
        count = size = 0
        for path in files:
            with suppress(FileNotFoundError):  # another process was quicker
                bytes_ = path.lstat().st_size
                path.unlink()
                count, size = count + 1, size + bytes_
        shutil.rmtree(self.of_triton, ignore_errors=True)
        for folder in {path.parent for path in files} - {self.root}:
            with suppress(OSError):  # somebody is building there
                folder.rmdir()
        return count, size

    def discard(self, path: Path) -> None:
        """Forget a file that turned out to be damaged."""
        with suppress(FileNotFoundError):
            path.unlink()


def default_root() -> Path:
    """The cache folder of this user, whether it exists or not."""
    given = os.environ.get("ATENTRITON_CACHE_DIR")
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()
    return home / "atentriton"


def default_cache() -> Cache:
    """The cache that the environment asks for now."""
    return _at(default_root())


@cache
def _at(root: Path) -> Cache:
    return Cache(root)


def _write(path: Path, suffix: str, builder: Callable[[Path], None]) -> None:
    """Let the builder write elsewhere, then put the file in its place at once."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="building-") as folder:
        made = Path(folder) / f"{path.name[:16]}{suffix}"
        builder(made)
        os.replace(made, path)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file; where the file system knows no locks, go without.

    Each call opens the file anew, so that threads exclude one another, too. Without a
    lock the worst is that two processes build the same file. So it does no harm either
    that the lock file is removed while others may wait for it: what they want is there.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        os.close(handle)


def _make_private(root: Path) -> None:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.stat()
    except OSError as error:
        raise CacheError(
            f"cannot make the cache folder {root}: {error.strerror}\n"
            "  set ATENTRITON_CACHE_DIR to a folder that can be written"
        ) from error
    problem = _problem(status)
    if problem:
        raise CacheError(
            f"will not load code from the cache folder {root}: {problem}\n"
            "  set ATENTRITON_CACHE_DIR to a folder of your own with mode 0700"
        )


def _problem(status: os.stat_result) -> str | None:
    """Why others could put code there, or None if they cannot."""
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}, not to {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    return None
