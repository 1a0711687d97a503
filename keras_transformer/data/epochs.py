"""Epochs of batches one after another, also as the `tf.data.Dataset` that `model.fit` reads."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor


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
