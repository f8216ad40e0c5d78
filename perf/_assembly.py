"""What a compiled Triton kernel does for an element, read off its assembly.

Comes in: what Triton made of a kernel for NVIDIA or AMD, and how many elements a thread
works on. Goes out: `Figures`. The kernels are straight lines, but for the few with
loops: instructions are counted once each, as they stand.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

# Triton writes [ %rd1 + 0 ] for what the kernel itself reads or writes; the tables of
# NVIDIA's library, for sines of huge numbers, are read otherwise. .b32 to .f64 are the
# bits of an item, .v2 and .v4 how many.
_PTX = re.compile(
    r"\b(ld|st)\.global(?:\.[a-zA-Z_:0-9]+?)*?(?:\.v(\d))?\.[bfsu](\d+)\s"
    r"[^;]*?\[ %rd\d+ \+ \d+ \][^;]*;"
)
_ARRAYS = re.compile(r"\.local\s.*\[(\d+)\];")
_AMD = re.compile(
    r"^\s+(?:global|buffer|flat|scratch)_(load|store)_"
    r"(dword|ubyte|sbyte|ushort|sshort|short|byte|b)(?:_d16\w*)?(?:x?(\d+))?\b",
    re.MULTILINE,
)
_WIDTHS = {"dword": 4, "ubyte": 1, "sbyte": 1, "byte": 1}
_WIDTHS |= {"ushort": 2, "sshort": 2, "short": 2}


@dataclass(frozen=True, slots=True)
class Figures:
    """`loaded` and `stored` are bytes an element; `width` is the bytes that the
    narrowest access of a thread to an operand moves; `spilled` the bytes of registers
    that a thread keeps in memory; `instructions` those of the machine, an element."""

    loaded: float
    stored: float
    width: int
    registers: int
    spilled: int
    instructions: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __add__(self, other: Figures) -> Figures:
        """Of two kernels that run one after the other."""
        return Figures(
            self.loaded + other.loaded,
            self.stored + other.stored,
            min(self.width, other.width),
            max(self.registers, other.registers),
            max(self.spilled, other.spilled),
            self.instructions + other.instructions,
        )


def figures(asm: Mapping[str, Any], resources: tuple[int, int], each: int) -> Figures:
    """Of a kernel of which a thread does `each` elements; `resources` are registers
    and bytes of stack."""
    nvidia = "ptx" in asm
    text = asm["ptx"] if nvidia else asm["amdgcn"]
    moved = {"load": 0, "store": 0}
    widths: list[int] = []
    for what, size in _accesses(text, nvidia):
        moved[what] += size
        widths.append(size)
    count = _sass(asm["cubin"]) if nvidia else _gcn(text)
    registers, stack = resources
    # Arrays that the source has are on the stack, too; what is beyond was spilled.
    arrays = sum(-(-int(size) // 16) * 16 for size in _ARRAYS.findall(text))
    return Figures(
        moved["load"] / each,
        moved["store"] / each,
        min(widths, default=0),
        registers,
        max(0, stack - arrays),
        count / each,
    )


def _accesses(text: str, nvidia: bool) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    if nvidia:
        for what, lanes, bits in _PTX.findall(text):
            size = int(lanes or 1) * int(bits) // 8
            found.append(("load" if what == "ld" else "store", size))
        return found
    for what, unit, count in _AMD.findall(text):
        if unit == "b":  # of later machines: global_load_b128
            found.append((what, int(count) // 8))
        else:
            found.append((what, _WIDTHS[unit] * int(count or 1)))
    return found


@cache
def _sass(cubin: bytes) -> int:
    """The instructions of the machine; those after the last exit only fill up."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = Path(knobs.nvidia.nvdisasm.path)
        command = [str(tool), "-c", file.name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [x for x in done.stdout.splitlines() if re.match(r"\s+/\*[0-9a-f]+\*/", x)]
    while lines and re.search(r"\b(NOP|BRA)\b", lines[-1]):
        lines.pop()
    return len(lines)


def _gcn(text: str) -> int:
    body = text.partition("s_endpgm")[0]
    return len(re.findall(r"^\s+[svgbdf]\w*_\w+", body, re.MULTILINE))
