"""Sentence pairs to padded batches: few shapes, about the same number of tokens per batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from keras_transformer import checks
from keras_transformer.data.shares import one_ahead
from keras_transformer.data.special_tokens import END_ID, START_ID
from keras_transformer.data.token_rows import TokenPairs, replaced, tokenize_rows
from keras_transformer.data.tokenizer import Tokenizer

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


class TokenBatches:
    """Batches of sentence pairs of similar length, for `model.fit`.

    A batch holds about `batch_tokens` target positions, so a step costs the same for long and for
    short sentences. Pairs are grouped by length into `num_buckets` fixed shapes, which keeps
    padding and the number of compiled graphs low. Pairs that do not fill a batch join the next
    longer bucket. Empty rows fill the last batch; neither loss nor metrics count them. The order
    depends only on the seed and the epoch.

    Args:
        sources: the source strings.
        targets: the target strings, aligned with `sources`.
        tokenizer: the tokenizer of both sides.
        batch_tokens: target positions per batch, including padding.
        num_buckets: the largest number of shapes.
        max_pair_length: leaves out pairs with a longer side, counted in tokens with the end token.
            `num_too_long` says how many.
        shuffle: whether every epoch has another order.
        seed: the seed of that order and of BPE-dropout.
        bpe_dropout: the rate of `Tokenizer.sample`, which splits the text again in every epoch;
            0 uses the one split that translation uses.

    Raises:
        ValueError: if the numbers of sources and targets differ, no pair is left, or a size is out
            of range.
        TypeError: if a text is not a string.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> batches = TokenBatches(["a dog"] * 3, ["a dog runs"] * 3, tokenizer)
        >>> (source_ids, target_ids), labels = next(batches.epoch(0))
        >>> source_ids.shape == target_ids.shape == labels.shape
        True
    """

    def __init__(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        tokenizer: Tokenizer,
        *,
        batch_tokens: int = 4096,
        num_buckets: int = 16,
        max_pair_length: int = 200,
        shuffle: bool = True,
        seed: int = 0,
        bpe_dropout: float = 0.0,
    ):
        self.texts = checks.check_aligned(sources=sources, targets=targets)
        checks.check_positive_int("batch_tokens", batch_tokens)
        checks.check_positive_int("num_buckets", num_buckets)
        checks.check_int("max_pair_length", max_pair_length, 2)
        checks.check_seed(seed)
        checks.check_rate("bpe_dropout", bpe_dropout)
        self.tokenizer = tokenizer
        self.tokenized = TokenPairs(*(tokenize_rows(texts, tokenizer) for texts in self.texts))
        self.max_pair_length, self.bpe_dropout = max_pair_length, bpe_dropout
        self.words = [tokenizer.words(texts) for texts in self.texts] if bpe_dropout else None
        self.shuffle, self.seed = shuffle, seed
        self.kept = np.flatnonzero(self.tokenized.lengths <= max_pair_length)
        self.num_too_long = len(self.texts[0]) - len(self.kept)
        if not len(self.kept):
            raise ValueError(
                f"No sentence pair is left: all {self.num_too_long} are longer than "
                f"max_pair_length={max_pair_length} tokens; raise max_pair_length."
                if self.num_too_long
                else "There are no sentence pairs: sources and targets are empty."
            )
        self._choose_shapes(batch_tokens, num_buckets)

    def _choose_shapes(self, batch_tokens, num_buckets):
        pairs = self._pairs(0, 0)
        self.num_target_tokens = self._count_target_tokens(pairs)
        self.widths = bucket_widths(pairs.lengths[self.kept], num_buckets)
        if self.bpe_dropout:
            self.widths[-1] = max(self.widths[-1], int(self.tokenized.lengths[self.kept].max()))
            self.max_pair_length = self.widths[-1]
        # No batch needs more rows than there are pairs.
        most = -(-len(self.kept) // ROWS_MULTIPLE)
        self.batch_sizes = [
            min(max(batch_tokens // width // ROWS_MULTIPLE, 1), most) * ROWS_MULTIPLE
            for width in self.widths
        ]
        self.num_batches = len(self._plan(pairs, np.random.default_rng(self.seed)))
        if self.bpe_dropout:
            self.num_batches += 1 + self.num_batches // 50

    def epoch(self, index: int, first_step: int = 0) -> Iterator[tuple]:
        """Yields the batches of one epoch from a step on, and makes none of those before it.

        Args:
            index: the number of the epoch, from 0.
            first_step: how many of its batches to leave out.

        Returns:
            Iterator of `((source_ids, target_ids), labels)`, int32 arrays.
        """
        generator = np.random.default_rng((self.seed, index))
        pairs, plan = self._pairs_and_plan(index, generator)
        self.num_target_tokens = self._count_target_tokens(pairs)
        order = generator.permutation(len(plan)) if self.shuffle else range(len(plan))
        for i in order[first_step:]:
            width, height, rows = plan[i]
            yield _batch(pairs, rows, width, height)

    def dataset(self, first_epoch: int = 0) -> tf.data.Dataset:
        """Makes the dataset of one epoch for `model.fit`.

        After its last batch is read, it goes on with the next epoch's order. Batches that Keras
        reads ahead to build a model under a strategy do not count as an epoch.

        Args:
            first_epoch: how many epochs an earlier run has finished.
        """
        ids = tf.TensorSpec((None, None), tf.int32)
        return epochs_dataset(self, ((ids, ids), ids), first_epoch)

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
        place = first_epoch, first_step
        return epochs_stream(self, self.dataset().element_spec, *place, num_steps)

    def _pairs_and_plan(self, index, generator):
        """Plans exactly `num_batches`, although with BPE-dropout some epochs need fewer or more."""
        for attempt in itertools.count():
            pairs = self._pairs(index, attempt)
            plan = self._plan(pairs, generator)
            if len(plan) <= self.num_batches:
                break
        while len(plan) < self.num_batches:
            fullest = max(range(len(plan)), key=lambda i: len(plan[i][2]))
            width, height, rows = plan[fullest]
            half = len(rows) // 2
            plan[fullest : fullest + 1] = (width, height, rows[:half]), (width, height, rows[half:])
        return pairs, plan

    def _pairs(self, epoch, attempt):
        """Returns the token ids of an epoch; a text that gets too long keeps its plain ids."""
        if not self.bpe_dropout:
            return self.tokenized
        seeds = np.random.default_rng((self.seed, epoch, attempt)).integers(2**31, size=2)
        sides = []
        for words, plain, seed in zip(self.words, self.tokenized, seeds, strict=True):
            rows = self.tokenizer.bpe_dropout.sample(words, self.bpe_dropout, seed)
            too_long = np.flatnonzero(rows.lengths >= self.max_pair_length)
            sides.append(replaced(rows, too_long, plain.of(too_long)) if len(too_long) else rows)
        return TokenPairs(*sides)

    def _count_target_tokens(self, pairs):
        return int((pairs.targets.lengths[self.kept] + 1).sum())

    def _plan(self, pairs, generator):
        """Plans the batches of one epoch, as (width, height, rows)."""
        rows = np.arange(len(self.kept))
        rows = generator.permutation(rows) if self.shuffle else rows
        bucket = np.searchsorted(self.widths, pairs.lengths[self.kept[rows]])
        plan, waiting = [], rows[:0]
        for i, (width, height) in enumerate(zip(self.widths, self.batch_sizes, strict=True)):
            waiting = np.concatenate([waiting, rows[bucket == i]])
            is_last = i == len(self.widths) - 1
            full = len(waiting) if is_last else len(waiting) // height * height
            taken, waiting = self.kept[waiting[:full]], waiting[full:]
            starts = range(0, full, height)
            plan += [(width, height, taken[start : start + height]) for start in starts]
        return plan


def _batch(pairs, rows, width, height):
    """Makes `((source_ids, target_ids), labels)` of pairs, with empty rows up to `height`."""
    places, empty = np.arange(len(rows)), ((0, height - len(rows)), (0, 0))
    source_ids, labels = (side.padded(rows, width) for side in pairs)
    source_ids[places, pairs.sources.lengths[rows]] = END_ID
    labels[places, pairs.targets.lengths[rows]] = END_ID
    target_ids = pairs.targets.padded(rows, width - 1)
    target_ids = np.pad(target_ids, ((0, 0), (1, 0)), constant_values=START_ID)
    *inputs, labels = (np.pad(ids, empty) for ids in (source_ids, target_ids, labels))
    return tuple(inputs), labels


def epochs_dataset(batches, signature, first_epoch):
    """Makes a `tf.data.Dataset` of `num_batches` that gives the next epoch at each iteration."""
    state = {"epoch": first_epoch}

    def generate():
        for i, batch in enumerate(one_ahead(batches.epoch(state["epoch"])), start=1):
            if i == batches.num_batches:
                state["epoch"] += 1
            yield batch

    return _dataset(generate, signature, batches.num_batches)


def epochs_stream(batches, signature, first_epoch, first_step, num_steps=None):
    """Makes an endless `tf.data.Dataset` of all batches, epoch after epoch."""

    def epochs():
        yield from batches.epoch(first_epoch, first_step)
        for index in itertools.count(first_epoch + 1):
            yield from batches.epoch(index)

    def generate():
        items = epochs()
        yield from one_ahead(itertools.islice(items, num_steps))
        yield from items

    return _dataset(generate, signature, tf.data.experimental.INFINITE_CARDINALITY)


def _dataset(generate, signature, num_batches):
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    cardinality = tf.data.experimental.assert_cardinality(num_batches)
    options = tf.data.Options()
    # `fit` drops iterators before their last batch. Each would wait for the thread that tunes it,
    # which sleeps longer and longer, up to a minute.
    options.autotune.enabled = False
    # Not `prefetch`: if its thread waits for Python when the interpreter ends, the process hangs.
    return dataset.apply(cardinality).with_options(options)
