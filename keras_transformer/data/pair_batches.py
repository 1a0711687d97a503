"""Pairs of token ids to padded batches: few shapes, about the same number of tokens per batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_transformer import checks
from keras_transformer.data.epochs import epochs_dataset, epochs_stream
from keras_transformer.data.special_tokens import END_ID, START_ID
from keras_transformer.data.token_rows import TokenPairs
from keras_transformer.type_hints import Integers

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

ROWS_MULTIPLE = 8


def bucket_widths(lengths: Iterable[int], num_buckets: int) -> list[int]:
    """Finds the `num_buckets` widths that pad `lengths` with the fewest tokens.

    The result is exact, by dynamic programming over the distinct lengths: the best split of the n
    shortest into k buckets extends the best split of fewer lengths into k - 1.

    Args:
        lengths: integers, at least one.
        num_buckets: the largest number of widths.

    Returns:
        Increasing widths; the last is the largest length.

    Example:
        >>> bucket_widths([2, 2, 2, 3, 9, 10], 2)
        [3, 10]
    """
    widths, counts = np.unique(lengths, return_counts=True)
    rows = np.concatenate([[0], np.cumsum(counts)])  # rows[n]: sentences in the shortest n lengths
    cost = np.where(np.arange(len(widths) + 1) == 0, 0.0, np.inf)
    choices = []
    for _ in range(min(num_buckets, len(widths))):
        # totals[m, n]: lengths m to n - 1 form the last bucket, as wide as the last of them.
        totals = cost[:, None] + (rows[None, :] - rows[:, None]) * np.append(0, widths)[None, :]
        totals[np.tril_indices(len(widths) + 1)] = np.inf
        choices.append(np.argmin(totals, axis=0))
        cost = np.min(totals, axis=0)
    ends, end = [], len(widths)
    for choice in reversed(choices):
        ends.append(int(widths[end - 1]))
        end = choice[end]
    return ends[::-1]


def check_batching(batch_tokens, num_buckets, max_pair_length, seed, bpe_dropout) -> None:
    """Raises a ValueError for the first argument that is out of range."""
    checks.check_positive_int("batch_tokens", batch_tokens)
    checks.check_positive_int("num_buckets", num_buckets)
    checks.check_int("max_pair_length", max_pair_length, 2)
    checks.check_seed(seed)
    checks.check_rate("bpe_dropout", bpe_dropout)


class EpochPlan(NamedTuple):
    """The batches of one epoch: which pairs each has, and in which shape.

    Attributes:
        pairs: the ids of this epoch.
        batches: (width, height, rows) of each batch.
        order: the place in `batches` of the batch of each step.
    """

    pairs: TokenPairs
    batches: list[tuple[int, int, Integers]]
    order: Integers

    def batch(self, step: int) -> tuple:
        """Makes the batch of one step, `((source_ids, target_ids), labels)`, int32 arrays."""
        width, height, rows = self.batches[self.order[step]]
        return _batch(self.pairs, rows, width, height)


class PairBatches:
    """Batches of pairs of token ids, for `model.fit` on any backend; they need NumPy alone.

    `TokenBatches` makes them of texts, `TokenStore.batches` of a store. Each batch is made when it
    is read, from the rows that it needs.

    Args:
        pairs: the token ids, `TokenPairs`.
        batch_tokens, num_buckets, max_pair_length, shuffle, seed: as for `TokenBatches`.
        leave_out: the places of pairs that are not read.
        sample: a function of an epoch, an attempt and a length that returns the pairs of that
            epoch, those that are read no longer; None for the same pairs in each.

    Attributes:
        kept: the places of the pairs that are read, int32.
        num_too_long: how many pairs are left out, since they are longer than `max_pair_length`.
        widths: the positions of each shape, rising.
        batch_sizes: the rows of each shape.
        num_batches: of each epoch.
        num_target_tokens: real ones, with end tokens, of the epoch that was planned last.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> batches = TokenBatches(["a dog"] * 90, ["a dog runs"] * 90, tokenizer, batch_tokens=128)
        >>> isinstance(batches, PairBatches), batches.num_batches
        (True, 3)
        >>> (source_ids, target_ids), labels = batches.plan(9).batch(2)  # of any epoch and step
        >>> labels.shape == target_ids.shape
        True
    """

    def __init__(
        self,
        pairs: TokenPairs,
        *,
        batch_tokens: int = 4096,
        num_buckets: int = 16,
        max_pair_length: int = 200,
        shuffle: bool = True,
        seed: int = 0,
        leave_out: Iterable[int] = (),
        sample: Callable[[int, int, int], TokenPairs] | None = None,
    ):
        self.tokenized, self.sample = pairs, sample
        self.max_pair_length, self.shuffle, self.seed = max_pair_length, shuffle, seed
        lengths = pairs.lengths.astype("int32")
        is_read = np.ones(len(lengths), bool)
        is_read[np.array(leave_out, "int64")] = False
        is_kept = is_read & (lengths <= max_pair_length)
        self.kept = np.flatnonzero(is_kept).astype("int32")
        self.num_too_long = int(is_read.sum()) - len(self.kept)
        if not len(self.kept):
            raise ValueError(
                f"No sentence pair is left: all {self.num_too_long} are longer than "
                f"max_pair_length={max_pair_length} tokens; raise max_pair_length (--max-length)."
                if self.num_too_long
                else "There are no sentence pairs: sources and targets are empty."
            )
        self.longest = int(lengths[self.kept].max())
        self._choose_shapes(batch_tokens, num_buckets)

    def _choose_shapes(self, batch_tokens, num_buckets):
        pairs, lengths = self._sampled(0, 0)
        self.num_target_tokens = self._count_target_tokens(pairs)
        self.widths = bucket_widths(lengths, num_buckets)
        self.widths[-1] = self.longest  # other samples may have it
        # No batch needs more rows than there are pairs.
        most = -(-len(self.kept) // ROWS_MULTIPLE)
        self.batch_sizes = [
            min(max(batch_tokens // width // ROWS_MULTIPLE, 1), most) * ROWS_MULTIPLE
            for width in self.widths
        ]
        self.num_batches = self._count_batches(lengths)
        if self.sample:
            self.num_batches += 1 + self.num_batches // 50

    def _count_batches(self, lengths):
        counts = np.bincount(np.searchsorted(self.widths, lengths), minlength=len(self.widths))
        number, waiting = 0, 0
        for count, height in zip(counts.tolist(), self.batch_sizes, strict=True):
            full, waiting = divmod(waiting + count, height)
            number += full
        return number + (waiting > 0)

    def epoch(self, index: int, first_step: int = 0) -> Iterator[tuple]:
        """Yields the batches `((source_ids, target_ids), labels)` of one epoch, int32 arrays.

        Args:
            index: the number of the epoch, from 0.
            first_step: the step to begin at; no batch before it is made.
        """
        plan = self.plan(index)
        for step in range(first_step, len(plan.order)):
            yield plan.batch(step)

    def plan(self, index: int) -> EpochPlan:
        """Plans one epoch. The plan then makes the batch of any step: `plan.batch(step)`.

        With BPE-dropout some epochs need fewer batches than others. They are given as many.
        """
        generator = np.random.default_rng((self.seed, index))
        for attempt in itertools.count():
            pairs, lengths = self._sampled(index, attempt)
            batches = self._batches(lengths, generator)
            if len(batches) <= self.num_batches:
                break
        self.num_target_tokens = self._count_target_tokens(pairs)
        while len(batches) < self.num_batches:
            fullest = max(range(len(batches)), key=lambda i: len(batches[i][2]))
            width, height, rows = batches[fullest]
            half = len(rows) // 2
            halves = (width, height, rows[:half]), (width, height, rows[half:])
            batches[fullest : fullest + 1] = halves
        order = np.arange(len(batches))
        order = generator.permutation(order) if self.shuffle else order
        return EpochPlan(pairs, batches, order)

    def dataset(self, first_epoch: int = 0) -> tf.data.Dataset:
        """Makes the `tf.data.Dataset` of one epoch for `model.fit`.

        After its last batch is read, it goes on with the next epoch's order. Under a strategy Keras
        may read some batches only to build a model, which count if an epoch has no more; `stream`
        begins again after them.

        Args:
            first_epoch: how many epochs an earlier run has finished.
        """
        return epochs_dataset(self, self._signature(), first_epoch)

    def stream(
        self, first_epoch: int = 0, first_step: int = 0, num_steps: int | None = None
    ) -> tf.data.Dataset:
        """Makes the endless dataset of all epochs, from any step of any epoch on.

        Give `fit` the number of its `steps_per_epoch`, which need not be `num_batches`: a run may
        validate more often than once an epoch, and go on from the middle of one.

        Args:
            first_epoch: the epoch to begin in, from 0.
            first_step: how many of its batches to leave out.
            num_steps: how many batches will be read, if that is known. Each batch is made while the
                one before it is read; after the last one, no epoch is begun in vain.

        Example:
            >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
            >>> batches = TokenBatches(["a dog"] * 3, ["a dog runs"] * 3, tokenizer)
            >>> (inputs, labels), *_ = batches.stream(first_epoch=5).take(1)
        """
        return epochs_stream(self, self._signature(), first_epoch, first_step, num_steps)

    def sequence(self, first_epoch: int = 0) -> keras.utils.PyDataset:
        """Makes the `keras.utils.PyDataset` of one epoch: NumPy arrays, without TensorFlow.

        At the end of an epoch it goes on with the next epoch's order.

        Args:
            first_epoch: how many epochs an earlier run has finished.
        """
        from keras_transformer.data.shares import EpochSequence  # imports Keras

        return EpochSequence(self, first_epoch)

    def _signature(self):
        import tensorflow as tf

        ids = tf.TensorSpec((None, None), tf.int32)
        return (ids, ids), ids

    def _sampled(self, epoch, attempt):
        """Returns the pairs of an epoch, and the lengths of those that are kept."""
        pairs = self.sample(epoch, attempt, self.longest) if self.sample else self.tokenized
        return pairs, pairs.lengths.astype("int32")[self.kept]

    def _count_target_tokens(self, pairs):
        return int(pairs.targets.lengths[self.kept].sum()) + len(self.kept)

    def _batches(self, lengths, generator):
        """Plans the batches of one epoch, as (width, height, rows)."""
        rows = np.arange(len(self.kept), dtype="int32")
        if self.shuffle:
            generator.shuffle(rows)
        buckets = np.searchsorted(self.widths, np.arange(self.widths[-1] + 1)).astype("int32")
        bucket = buckets[lengths[rows]]  # the first that is wide enough
        batches, waiting = [], rows[:0]
        for i, (width, height) in enumerate(zip(self.widths, self.batch_sizes, strict=True)):
            waiting = np.concatenate([waiting, rows[bucket == i]])
            is_last = i == len(self.widths) - 1
            full = len(waiting) if is_last else len(waiting) // height * height
            taken, waiting = self.kept[waiting[:full]], waiting[full:]
            starts = range(0, full, height)
            batches += [(width, height, taken[start : start + height]) for start in starts]
        return batches


def _batch(pairs, rows, width, height):
    """Makes `((source_ids, target_ids), labels)` of pairs, with empty rows up to `height`."""
    places = np.arange(len(rows))
    source_ids, target_ids, labels = (np.zeros((height, width), "int32") for _ in range(3))
    source_ids[places], labels[places] = (side.padded(rows, width) for side in pairs)
    target_ids[places, 0], target_ids[places, 1:] = START_ID, labels[places, :-1]
    source_ids[places, pairs.sources.lengths_of(rows)] = END_ID
    labels[places, pairs.targets.lengths_of(rows)] = END_ID
    return (source_ids, target_ids), labels
