"""Epochs of batches in the forms that `model.fit` reads, on TensorFlow and on any backend."""

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
        x = np.pad(x, ((0, empty), *[(0, 0)] * (x.ndim - 1))) if empty else x
        size = len(x) // self.num_processes
        return x[self.process * size : (self.process + 1) * size]


class EpochSequence(keras.utils.PyDataset):
    """The batches of one epoch, which goes on to the next one at its end.

    Args:
        batches: has `num_batches` and `plan(index)`, whose `batch(step)` makes any batch.
        first_epoch: the first epoch that is read.
        share: the rows to take.
    """

    def __init__(self, batches, first_epoch: int = 0, share: Share | None = None):
        super().__init__()
        self.batches, self.epoch, self.share = batches, first_epoch, share or Share()
        self._plan = None

    def __len__(self):
        return self.batches.num_batches

    def __getitem__(self, index):
        self._plan = self._plan or self.batches.plan(self.epoch)
        return self.share.of(self._plan.batch(index))

    def on_epoch_end(self):
        self.epoch, self._plan = self.epoch + 1, None


def endless(batches, first_epoch: int = 0, first_step: int = 0) -> Iterator[tuple]:
    """Yields the batches of all epochs, from any step of any epoch on.

    Args:
        batches: has `epoch(index, first_step)`, such as a `TokenBatches`.
        first_epoch: the epoch to begin in, from 0.
        first_step: how many of its batches to leave out.
    """
    yield from batches.epoch(first_epoch, first_step)
    for index in itertools.count(first_epoch + 1):
        yield from batches.epoch(index, 0)


def endless_ahead(batches, first_epoch=0, first_step=0, num_steps=None) -> Iterator[tuple]:
    """Yields what `endless` does; each of the first `num_steps` is made while another is read."""
    items = endless(batches, first_epoch, first_step)
    yield from _one_ahead(itertools.islice(items, num_steps))
    yield from items


def epochs_dataset(batches, signature, first_epoch):
    """Makes a `tf.data.Dataset` of `num_batches` that gives the next epoch at each iteration."""
    state = {"epoch": first_epoch}

    def generate():
        for i, batch in enumerate(_one_ahead(batches.epoch(state["epoch"], 0)), start=1):
            if i == batches.num_batches:
                state["epoch"] += 1
            yield batch

    return _dataset(generate, signature, batches.num_batches)


def epochs_stream(batches, signature, first_epoch, first_step, num_steps=None):
    """Makes an endless `tf.data.Dataset` of all batches, epoch after epoch."""
    import tensorflow as tf

    def generate():
        return endless_ahead(batches, first_epoch, first_step, num_steps)

    return _dataset(generate, signature, tf.data.experimental.INFINITE_CARDINALITY)


def _dataset(generate, signature, num_batches):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    cardinality = tf.data.experimental.assert_cardinality(num_batches)
    options = tf.data.Options()
    # `fit` drops iterators before their last batch. Each would wait for the thread that tunes it,
    # which sleeps longer and longer, up to a minute.
    options.autotune.enabled = False
    # Not `prefetch`: if its thread waits for Python when the interpreter ends, the process hangs.
    return dataset.apply(cardinality).with_options(options)


def _one_ahead(items):
    """Yields the items of an iterator, none of them None; a thread makes the next one meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
