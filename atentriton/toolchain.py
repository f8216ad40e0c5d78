"""The C compiler: which one, with which flags, and what it can vectorise.

Comes in: C source from the native target. Goes out: shared libraries. What this
machine's compiler takes is tried once and remembered in the cache.

ATENTRITON_CC, else CC, names the compiler (with arguments, if any); else the first of
cc, gcc and clang on the path is taken.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from atentriton import openmp, records
from atentriton.cache import default_cache

# NaN, infinities and the sign of zero keep their meaning: never -ffast-math. Integers
# wrap around. Without errno and traps the calls of libm are pure and can be vectorised.
BASE = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fno-strict-aliasing",
)

# Each is taken if the compiler knows it. Three passes of GCC are left out that follow a
# condition through the choices it makes, or move what is computed behind it: what is
# left of them is not vectorised. A fourth makes a call of memcpy of a loop that copies,
# whose halves of a register are then read as one before they are written.
OPTIONAL = (
    "-march=native",
    "-mprefer-vector-width=512",
    "-fno-thread-jumps",
    "-fno-tree-pre",
    "-fno-tree-sink",
    "-fno-tree-loop-distribute-patterns",
    "-fopenmp-simd",
)

# The libraries of mathematics: the first line that links is taken.
LIBRARIES = (("-l:libmvec.so.1", "-lm"), ("-lm",), ())


class NoCompilerError(RuntimeError):
    """There is no C compiler, or none that works."""


class CompileError(RuntimeError):
    """The compiler refused a kernel; the message holds the command and what it said."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the compiler turned out to take. `openmp` is how parallel loops link:

    "loaded" against the OpenMP library that the process has loaded, "own" against the
    compiler's, "none" not at all: kernels then run in one thread.
    """

    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    openmp: str


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler that works; `identity` says which one, and on which processor."""

    command: tuple[str, ...]
    identity: str
    header: Path
    findings: Findings

    @property
    def key(self) -> str:
        """What the kernels that it makes depend on."""
        return "\n".join((self.identity, *self.findings.flags, self.header.name))

    def flags(self, *, contract: bool) -> tuple[str, ...]:
        """The flags; `contract` allows multiplications and additions to be fused."""
        fused = f"-ffp-contract={'fast' if contract else 'off'}"
        return (*self.findings.flags, fused, "-include", str(self.header))

    def library(self, source: str, *, contract: bool = True) -> Path:
        """The shared library made of the source, from the cache if it is there.

        CompileError if the compiler refuses.
        """
        cache = default_cache()
        flags, libraries = self.flags(contract=contract), self.findings.libraries
        key = "\n".join(("library", self.identity, *flags, *libraries, source))

        def build(path: Path) -> None:
            file = cache.text(source, ".c")
            try:
                compile_library(self.command, flags, libraries, file, path)
            except CompileError as error:
                if "internal compiler error" not in str(error):
                    raise
                # A crash of the compiler, of which the vectoriser has most.
                plain = (*flags, "-fno-tree-vectorize")
                compile_library(self.command, plain, libraries, file, path)

        return cache.build(key, ".so", build)


def compile_library(
    command: tuple[str, ...],
    flags: tuple[str, ...],
    libraries: tuple[str, ...],
    source: Path,
    path: Path,
) -> None:
    """Compile and link in two steps: in one, -fopenmp would link the compiler's own
    OpenMP library beside the one that is loaded. CompileError says what went wrong."""
    objects = path.with_suffix(".o")
    for step in (
        [*command, *flags, "-c", str(source), "-o", str(objects)],
        [*command, "-shared", str(objects), "-o", str(path), *libraries],
    ):
        result = run(step)
        if result.returncode != 0:
            raise CompileError(
                f"the C compiler failed with status {result.returncode}\n"
                f"  source  {source}\n"
                f"  command {shlex.join(step)}\n{result.stderr.strip()}"
            )


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the compiler; its messages are in English, whatever the user's language."""
    environment = os.environ | {"LC_ALL": "C"}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment
        )
    except OSError as error:
        raise NoCompilerError(
            f'the C compiler "{command[0]}" cannot be run: {error.strerror}\n{ADVICE}'
        ) from error


ADVICE = (
    "  install GCC or Clang (Debian and Ubuntu: apt install gcc libc6-dev; Fedora:\n"
    "  dnf install gcc glibc-devel), or name a compiler in ATENTRITON_CC"
)


@cache
def toolchain() -> Toolchain:
    """The compiler of this machine; NoCompilerError where there is none that works."""
    command = find_compiler()
    shared = openmp.share()
    key = "\n".join(("toolchain", *map(state, command), processor(), str(shared)))
    found = records.recall(key, partial(_recalled, command))
    if found is None:
        found = _tried(command, shared)
        facts = [found.identity, found.header.name, asdict(found.findings)]
        records.keep(key, facts)
    return found


def _tried(command: tuple[str, ...], shared: bool) -> Toolchain:
    from atentriton.vectormath import vector_header

    version = run([*command, "--version"]).stdout.strip()
    identity = "\n".join((*command, version, processor()))
    header = default_cache().text(vector_header(), ".h")
    return Toolchain(command, identity, header, probe(command, header, shared))


def _recalled(command: tuple[str, ...], found: Any) -> Toolchain:
    """The toolchain of a record; LookupError or the like where it does not hold."""
    identity, name, findings = found
    header = default_cache().named(str(name))
    if not header.exists():
        raise LookupError(name)
    flags, libraries = tuple(findings["flags"]), tuple(findings["libraries"])
    taken = Findings(flags, libraries, str(findings["openmp"]))
    return Toolchain(command, str(identity), header, taken)


def state(word: str) -> str:
    """A word of the command; of a program with its size and time of change."""
    path = shutil.which(word)
    if path is None:
        return word
    status = os.stat(path)
    return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns}"


def find_compiler() -> tuple[str, ...]:
    """The command that runs the compiler; NoCompilerError where none is installed."""
    for variable in ("ATENTRITON_CC", "CC"):
        given = shlex.split(os.environ.get(variable, ""))
        if given:
            path = shutil.which(given[0])
            if path is None:
                raise NoCompilerError(
                    f'{variable} names the C compiler "{given[0]}", '
                    f"which is not on the path\n{ADVICE}"
                )
            return (path, *given[1:])
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            return (path,)
    raise NoCompilerError(f"there is no C compiler on the path\n{ADVICE}")


def processor() -> str:
    """What -march=native depends on, and the version of the C library."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    lines = [platform.machine()]
    with suppress(OSError, ValueError, AttributeError):
        lines.append(os.confstr("CS_GNU_LIBC_VERSION") or "")
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = takewhile(str.strip, file)  # the lines of one core
            lines += [line.rstrip() for line in first if line.startswith(wanted)]
    except OSError:
        lines.append(platform.processor())
    return "\n".join(lines)


_PROBE = """
#include <math.h>
#include <stdint.h>
int32_t probe(int64_t n, const float *x_ptr, float *y_ptr)
{
    int32_t status = 0;
#pragma omp parallel for reduction(|: status)
    for (int64_t i = 0; i < n; i++) status |= x_ptr[i] != x_ptr[i];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y_ptr[i] = expf(x_ptr[i]);
    return status;
}
"""


def probe(command: tuple[str, ...], header: Path, shared: bool) -> Findings:
    """Try what the compiler takes; `shared` if an OpenMP library is loaded already.

    NoCompilerError if it cannot even compile without options.
    """
    with TemporaryDirectory(prefix="atentriton-") as folder:
        source = Path(folder) / "probe.c"
        source.write_text(_PROBE)
        path = source.with_suffix(".so")

        def fails(flags: tuple[str, ...], libraries: tuple[str, ...]) -> str | None:
            flags = (*flags, "-include", str(header))
            try:
                compile_library(command, flags, libraries, source, path)
            except CompileError as error:
                return str(error)
            return None

        everything = (*BASE, *OPTIONAL, "-fopenmp")
        if shared and fails(everything, LIBRARIES[0]) is None:
            return Findings(everything, LIBRARIES[0], "loaded")
        libraries = next((ls for ls in LIBRARIES if fails(BASE, ls) is None), None)
        if libraries is None:
            problem = fails(BASE, ())
            raise NoCompilerError(f"the C compiler does not work\n{problem}\n{ADVICE}")
        flags = BASE
        for flag in OPTIONAL:
            if fails((*flags, flag), libraries) is None:
                flags = (*flags, flag)
        parallel = (*flags, "-fopenmp")
        if shared and fails(parallel, libraries) is None:
            return Findings(parallel, libraries, "loaded")
        for name in ("-lgomp", "-lomp"):
            if fails(parallel, (*libraries, name, "-Wl,-z,defs")) is None:
                return Findings(parallel, (*libraries, name), "own")
        return Findings(flags, libraries, "none")
