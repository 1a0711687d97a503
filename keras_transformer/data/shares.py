"""Batches as NumPy arrays for JAX, of which each process takes its rows."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np


class Share:
    """Which rows of a batch a process takes: equal blocks, in the order of the processes.

    Args:
        process: the number of this process, from 0.
        num_processes: the number of processes.
        multiple: each batch gets empty rows until its rows are a multiple of it, such as the number
            of devices of all processes.
    """

    def __init__(self, process: int = 0, num_processes: int = 1, multiple: int = 1):
        self.process, self.num_processes, self.multiple = process, num_processes, multiple

    def of(self, batch):
        """Returns the rows of a nested structure of arrays (B, ...)."""
        return keras.tree.map_structure(self._rows, batch)

    def _rows(self, x):
        empty = -len(x) % self.multiple
        x = np.pad(x, ((0, empty), *[(0, 0)] * (x.ndim - 1)))
        size = len(x) // self.num_processes
        return x[self.process * size : (self.process + 1) * size]


def endless(batches, share: Share, first_epoch: int = 0, first_step: int = 0) -> Iterator[tuple]:
    """Yields a share of the batches of all epochs, from any step of any epoch on.

    Args:
        batches: has `epoch(index, first_step)`, such as a `TokenBatches`.
        share: the rows to take.
        first_epoch: the epoch to begin in, from 0.
        first_step: how many of its batches to leave out.
    """

    def epochs():
        yield from batches.epoch(first_epoch, first_step)
        for index in itertools.count(first_epoch + 1):
            yield from batches.epoch(index)

    return one_ahead(map(share.of, epochs()))


class Epoch(keras.utils.PyDataset):
    """A share of the batches of the first epoch, in memory, to validate on as often as you like.

    Args:
        batches: has `epoch(index)`, such as a `TokenBatches`.
        share: the rows to take.
    """

    def __init__(self, batches, share: Share):
        super().__init__()
        self.batches = [share.of(batch) for batch in batches.epoch(0)]

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def one_ahead(items):
    """Yields the items of an iterator, none of them None; a thread makes the next one meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
