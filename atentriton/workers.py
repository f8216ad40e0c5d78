"""Checks spread over processes.

Comes in: names of operators and how many processes there may be. Goes out: a report for
each, in that order, as they come. Processes are started afresh, each with one thread of
torch's; they end with this one, also if it is interrupted.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from atentriton.reports import Report


def checked(
    names: Sequence[str],
    quick: bool,
    jobs: int,
    finished: Callable[[str], None] = lambda name: None,
) -> Iterator[Report]:
    """The report on each; `finished` is called with each name once it is done."""
    if jobs <= 1 or len(names) <= 1:
        from atentriton.checking import check

        for name in names:
            yield check(name, quick=quick)
            finished(name)
        return
    # What torch says of its own operators, such as of buffers that it resizes.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    pool = ProcessPoolExecutor(
        min(jobs, len(names)), multiprocessing.get_context("spawn"), _begin
    )
    processes = None
    try:
        found = {pool.submit(_check, name, quick): name for name in names}
        processes = dict(pool._processes)
        for future in as_completed(found):
            finished(found[future])
        for future in found:
            yield future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in (processes or {}).values():
            process.terminate()
        raise
    pool.shutdown()


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    import torch

    torch.set_num_threads(1)


def _check(name: str, quick: bool) -> Report:
    from atentriton.checking import check

    return check(name, quick=quick)
