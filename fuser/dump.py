"""Stages made visible: ATENTRITON_DUMP=ir,derive,schedule,source (or all).

Comes in: a program. Goes out: the same program, and its text on standard error where
its stage was asked for. The text is that of the golden files.
"""

from __future__ import annotations

import os
import sys

from fuser import ir
from fuser.ir import CallTarget, Loop, Node
from fuser.program import Program

STAGES = ("ir", "derive", "schedule", "source")


def asked(stage: str) -> bool:
    """Whether the stage is to be shown."""
    wanted = os.environ.get("ATENTRITON_DUMP", "")
    return bool(wanted) and (wanted == "all" or stage in wanted.split(","))


def dump(stage: str, program: Program) -> Program:
    """The program, shown where its stage is asked for."""
    if asked(stage):
        print(f"# {stage}: {program.lineage}\n{text(program)}", file=sys.stderr)
    return program


def text(program: Program) -> str:
    """The program as lines: what it computes, its nodes, its outputs."""
    lines = [f"# {line}" for line in program.formulas]
    arguments = [f"{n.attrs}: {n.dtype}" for n in (*program.inputs, *program.scalars)]
    lines.append(f"{program.name}({', '.join(arguments)}):")
    names: dict[Node, str] = {}
    lines += _statements(program.roots, names, "    ")
    for output in program.outputs:
        stored = "" if output.node.dtype == output.dtype else f" as {output.dtype}"
        lines.append(f"    {output.name} = {names[output.node]}{stored}")
    return "\n".join(lines)


def _statements(
    roots: tuple[Node, ...], names: dict[Node, str], indent: str
) -> list[str]:
    lines: list[str] = []
    for node in ir.topological(roots):
        match node.op:
            case "input" | "scalar":
                names[node] = str(node.attrs)
            case "param":
                names[node] = f"%{node.attrs}"
            case "const":
                names[node] = str(ir.value_of(node))
            case _:
                names[node] = f"v{len(lines)}"
                shown = ", ".join(names[a] for a in node.args)
                lines.append(
                    f"{indent}{names[node]}: {node.dtype} = {_head(node)}({shown})"
                )
                if isinstance(node.attrs, Loop):
                    lines += _body(node.attrs, indent + "    ")
    return lines


def _head(node: Node) -> str:
    if isinstance(node.attrs, CallTarget):
        static = [s.value for s in node.attrs.arguments if s is not None]
        suffix = f"[{', '.join(map(repr, static))}]" if static else ""
        return f"{node.attrs.name}{suffix}"
    if node.op == "item":
        return f"item {node.attrs} of "
    if isinstance(node.attrs, Loop):
        return f"iterate at most {node.attrs.limit} "
    return node.op


def _body(loop: Loop, indent: str) -> list[str]:
    names: dict[Node, str] = {}
    roots = loop.step if loop.proceed is None else (*loop.step, loop.proceed)
    lines = _statements(roots, names, indent)
    if loop.proceed is not None:
        lines.append(f"{indent}while {names[loop.proceed]}")
    lines.append(f"{indent}next {', '.join(names[s] for s in loop.step)}")
    return lines
