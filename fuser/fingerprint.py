"""What a program is, in short: the same text in every process, another for any other.

Comes in: a program. Goes out: a hash of all that its kernels and derivatives follow
from, which are its nodes, names and dtypes, and the formulas that it is said to be made
of. Its lineage, which may be made of this, is left out.
"""

from __future__ import annotations

from hashlib import sha256

from fuser import ir
from fuser.ir import Loop, Node
from fuser.program import Program


def fingerprint(program: Program) -> str:
    """The hash, as hexadecimal digits."""
    numbers: dict[Node, int] = {}
    lines = [program.name, str(program.order), *program.formulas]
    roots = (*program.inputs, *program.scalars, *program.roots)
    _describe(roots, numbers, lines)
    lines.append(" ".join(str(numbers[n]) for n in program.inputs))
    lines.append(" ".join(str(numbers[n]) for n in program.scalars))
    lines += [f"{o.name} {numbers[o.node]} {o.dtype.name}" for o in program.outputs]
    return sha256("\n".join(map(repr, lines)).encode()).hexdigest()


def _describe(
    roots: tuple[Node, ...], numbers: dict[Node, int], lines: list[str]
) -> None:
    """A line for each node that the roots reach, with the numbers of its arguments."""
    for node in ir.topological(roots):
        if node in numbers:
            continue
        attrs = repr(node.attrs)
        if isinstance(node.attrs, Loop):
            loop = node.attrs
            _describe(loop.roots, numbers, lines)
            body = " ".join(str(numbers[n]) for n in loop.roots)
            attrs = f"loop {len(loop.step)} {loop.limit} {body}"
        numbers[node] = len(numbers)
        args = " ".join(str(numbers[a]) for a in node.args)
        lines.append(f"{node.op} {node.dtype.name} {args} {attrs}")
