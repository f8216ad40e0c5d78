"""How many registers the values of a kernel take at once.

Comes in: a `Kernel`. Goes out: a number, of 32-bit words an element. A target that
gives several elements to a thread gives it fewer of a kernel whose values are many:
registers that are spilled to memory cost more than anything a kernel computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fuser.dtypes import DType
from fuser.kernel import Assign, Kernel, Load, Repeat, Statement, reads, writes


def live_words(kernel: Kernel) -> int:
    """The most words that are alive at one place of the kernel's body, for one element.

    What is computed before the elements, once a call, does not count, nor do the
    results that a function of the vendor's library holds while it runs.
    """
    words = {name: count for s in kernel.body for name, count in _sizes(s)}
    stored = {v for s in kernel.stores for v in s.values if isinstance(v, str)}
    offsets = 0
    if not kernel.layout.flat:
        offsets = len(kernel.operands) * _words(kernel.layout.index)
    return _peak(kernel.body, stored, words) + offsets


def _peak(
    statements: Sequence[Statement], after: set[str], words: Mapping[str, int]
) -> int:
    """The most words alive at one place, if the names in `after` are read
    afterwards."""

    def weight(names: Iterable[str]) -> int:
        return sum(words.get(name, 0) for name in names)

    alive = set(after)
    most = weight(alive)
    for statement in reversed(statements):
        alive.update(writes(statement))
        inside = 0
        if isinstance(statement, Repeat):
            rounds = (*statement.guard, *statement.body)
            following = {v for v in statement.next if isinstance(v, str)}
            inside = _peak(rounds, following - alive, words)
        most = max(most, weight(alive) + inside)
        alive.difference_update(writes(statement))
        alive |= reads(statement)
    return max(most, weight(alive))


def _sizes(statement: Statement) -> Iterable[tuple[str, int]]:
    """The names that the statement makes, inside of it as well, and their words."""
    if isinstance(statement, Repeat):
        yield from zip(statement.state, map(_words, statement.dtypes), strict=True)
        for inner in (*statement.guard, *statement.body):
            yield from _sizes(inner)
    elif isinstance(statement, Assign):
        yield statement.name, _words(statement.node.dtype)
    else:
        assert isinstance(statement, Load)
        yield statement.name, _words(statement.dtype)


def _words(dtype: DType) -> int:
    return max(1, dtype.bits // 32)
