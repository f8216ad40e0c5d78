"""Work spread over processes.

Comes in: a function, names to call it with, and how many processes there may be. Goes
out: what it gives for each, in that order. Processes are started afresh, each with one
thread of torch's; they end with this one, also if it is interrupted.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import TypeVar

from atentriton.reports import Report

T = TypeVar("T")


def spread(
    work: Callable[[str], T],
    names: Sequence[str],
    jobs: int,
    finished: Callable[[str], None] = lambda name: None,
) -> Iterator[T]:
    """What `work` gives for each name; `finished` is called with each that is done.

    `work` and what it gives are pickled where there are several processes.
    """
    if jobs <= 1 or len(names) <= 1:
        for name in names:
            yield work(name)
            finished(name)
        return
    # What torch says of its own operators, such as of buffers that it resizes.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    pool = ProcessPoolExecutor(
        min(jobs, len(names)), multiprocessing.get_context("spawn"), _begin
    )
    processes = None
    try:
        found = {pool.submit(work, name): name for name in names}
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


def checked(
    names: Sequence[str],
    quick: bool,
    jobs: int,
    finished: Callable[[str], None] = lambda name: None,
) -> Iterator[Report]:
    """The report on each operator."""
    return spread(partial(_check, quick=quick), names, jobs, finished)


def _check(name: str, quick: bool) -> Report:
    from atentriton.checking import check

    return check(name, quick=quick)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    import torch

    torch.set_num_threads(1)
