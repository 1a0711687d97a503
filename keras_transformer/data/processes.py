"""Work for all cores: processes beside this one, which end with it, however it ends."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

AHEAD = 2  # jobs of each process that are made before it needs them


def num_cores() -> int:
    """Counts the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def work(function: Callable, jobs: Iterable[tuple], processes: int) -> Iterator:
    """Calls `function(*job)` for each job, and yields the results in the order of the jobs.

    Only a few jobs are made ahead, so they may be many and large. With one process all is done in
    this one.

    Args:
        function: a function of a module that imports no TensorFlow.
        jobs: tuples of arguments.
        processes: how many.

    Raises:
        ValueError: if a process was ended from outside.
    """
    if processes == 1:
        yield from (function(*job) for job in jobs)
        return
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    pool = ProcessPoolExecutor(processes, context, _end_with_parent)
    coming = deque()
    try:
        for job in jobs:
            coming.append(pool.submit(function, *job))
            if len(coming) > AHEAD * processes:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    except BrokenProcessPool:
        raise ValueError(
            "a process that helps was ended from outside, perhaps for want of memory; start again, "
            "with fewer processes. What is done is kept."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent():
    """Leaves Ctrl-C to the main process, and ends when that has ended, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
