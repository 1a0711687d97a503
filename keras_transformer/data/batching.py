"""Sentence pairs to padded batches of few shapes, each of about the same number of tokens."""

import itertools

import numpy as np
import tensorflow as tf

from keras_transformer.checks import check_int, check_positive_int, check_seed, check_texts
from keras_transformer.data.special_tokens import END_ID, START_ID
from keras_transformer.data.token_rows import TokenPairs, sample_rows, tokenize_rows

ROWS_MULTIPLE = 8


def bucket_widths(lengths, num_buckets: int) -> list[int]:
    """The widths that pad `lengths` with the fewest tokens, when there may be `num_buckets`.

    Exact, by dynamic programming over the distinct lengths: the best split of the shortest n of
    them into k buckets extends the best split of fewer into k - 1.

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

    A batch holds about `batch_tokens` target positions, so long and short sentences cost the same
    a step. Pairs are grouped by length into `num_buckets` static shapes, which keeps both padding
    and the number of compiled graphs low; what does not fill a batch joins the next longer
    bucket, and the last batch is filled with empty rows, which neither loss nor metrics count.
    The order is a function of the seed and the epoch alone.

    Args:
        sources: the source strings.
        targets: the target strings, aligned with `sources`.
        tokenizer: a `Tokenizer`.
        batch_tokens: target positions in a batch, padding included.
        num_buckets: the largest number of shapes.
        max_length: pairs with a longer side, in tokens with the end token, are left out and
            counted in `num_too_long`.
        shuffle: whether each epoch has an order of its own.
        seed: of that order, and of BPE-dropout.
        bpe_dropout: the rate of `Tokenizer.sample`, which then splits the text anew for every
            epoch; 0 for the one split that translation uses.

    Raises:
        ValueError: if the sides differ in number, no pair is left, or a size is out of range.
        TypeError: if a text is no string.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> batches = TokenBatches(["a dog"] * 3, ["a dog runs"] * 3, tokenizer)
        >>> (source_ids, target_ids), labels = next(batches.epoch(0))
        >>> source_ids.shape == target_ids.shape == labels.shape
        True
    """

    def __init__(
        self,
        sources,
        targets,
        tokenizer,
        *,
        batch_tokens=4096,
        num_buckets=16,
        max_length=200,
        shuffle=True,
        seed=0,
        bpe_dropout=0.0,
    ):
        sources, targets = check_texts("sources", sources), check_texts("targets", targets)
        if len(sources) != len(targets):
            raise ValueError(
                f"sources and targets must be aligned, but there are {len(sources)} sources and "
                f"{len(targets)} targets."
            )
        check_positive_int("batch_tokens", batch_tokens)
        check_positive_int("num_buckets", num_buckets)
        check_int("max_length", max_length, 2)
        check_seed(seed)
        if not 0 <= bpe_dropout < 1:
            raise ValueError(f"bpe_dropout must be a number in [0, 1), but is {bpe_dropout!r}.")
        self.texts, self.tokenizer = (sources, targets), tokenizer
        self.plain = TokenPairs(*(tokenize_rows(texts, tokenizer) for texts in self.texts))
        self.max_length, self.bpe_dropout = max_length, bpe_dropout
        self.shuffle, self.seed = shuffle, seed
        self.rows = np.flatnonzero(self.plain.lengths <= max_length)
        self.num_too_long = len(sources) - len(self.rows)
        if not len(self.rows):
            raise ValueError(
                f"No sentence pair is left: all {len(sources)} are longer than "
                f"max_length={max_length} tokens; raise max_length."
                if sources
                else "There are no sentence pairs: sources and targets are empty."
            )
        pairs = self._pairs(0, 0)
        self.num_target_tokens = self._count_target_tokens(pairs)
        self.widths = bucket_widths(pairs.lengths[self.rows], num_buckets)
        if bpe_dropout:
            self.widths[-1] = max(self.widths[-1], int(self.plain.lengths[self.rows].max()))
            self.max_length = self.widths[-1]
        # No batch needs more rows than there are pairs.
        most = -(-len(self.rows) // ROWS_MULTIPLE)
        self.heights = [
            min(max(batch_tokens // width // ROWS_MULTIPLE, 1), most) * ROWS_MULTIPLE
            for width in self.widths
        ]
        self.num_batches = len(self._plan(pairs, np.random.default_rng(seed)))
        if bpe_dropout:
            self.num_batches += 1 + self.num_batches // 50

    def epoch(self, index: int):
        """Yields `((source_ids, target_ids), labels)`, int32 arrays, for one epoch."""
        generator = np.random.default_rng((self.seed, index))
        pairs, plan = self._pairs_and_plan(index, generator)
        self.num_target_tokens = self._count_target_tokens(pairs)
        order = generator.permutation(len(plan)) if self.shuffle else range(len(plan))
        for i in order:
            width, height, rows = plan[i]
            yield _batch(pairs, rows, width, height)

    def dataset(self, first_epoch=0):
        """A `tf.data.Dataset` of one epoch; the next order each time its last batch is read.

        The first batches, which Keras reads ahead to build a model under a strategy, do not count:
        the orders are those of a run without one.

        Args:
            first_epoch: the number of epochs that an earlier run has finished.
        """
        ids = tf.TensorSpec((None, None), tf.int32)
        return epochs_dataset(self, ((ids, ids), ids), first_epoch)

    def _pairs_and_plan(self, index, generator):
        """A plan of `num_batches`, though BPE-dropout makes some epochs longer than others."""
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
        """The ids of an epoch."""
        if not self.bpe_dropout:
            return self.plain
        seeds = np.random.default_rng((self.seed, epoch, attempt)).integers(2**31, size=2)
        sides = zip(self.texts, seeds, self.plain, strict=True)
        return TokenPairs(
            *(
                sample_rows(
                    texts, self.tokenizer, self.bpe_dropout, int(seed), plain, self.max_length
                )
                for texts, seed, plain in sides
            )
        )

    def _count_target_tokens(self, pairs):
        return int((pairs.targets.lengths[self.rows] + 1).sum())

    def _plan(self, pairs, generator):
        """The batches of one epoch, as (width, height, rows)."""
        rows = np.arange(len(self.rows))
        rows = generator.permutation(rows) if self.shuffle else rows
        bucket = np.searchsorted(self.widths, pairs.lengths[self.rows[rows]])
        plan, waiting = [], rows[:0]
        for i, (width, height) in enumerate(zip(self.widths, self.heights, strict=True)):
            waiting = np.concatenate([waiting, rows[bucket == i]])
            full = len(waiting) // height * height
            if i == len(self.widths) - 1:
                full = len(waiting)
            plan += [
                (width, height, self.rows[waiting[start : min(start + height, full)]])
                for start in range(0, full, height)
            ]
            waiting = waiting[full:]
        return plan


def _batch(pairs, rows, width, height):
    """`((source_ids, target_ids), labels)` of these pairs, and empty rows up to `height`."""
    empty = ((0, height - len(rows)), (0, 0))
    source_ids, target_ids = (side.padded(rows, width) for side in pairs)
    source_ids[np.arange(len(rows)), pairs.sources.lengths[rows]] = END_ID
    labels = target_ids.copy()
    labels[np.arange(len(rows)), pairs.targets.lengths[rows]] = END_ID
    start = np.full((len(rows), 1), START_ID, "int32")
    target_ids = np.concatenate([start, target_ids[:, :-1]], axis=1)
    source_ids, target_ids, labels = (
        np.pad(ids, empty) for ids in (source_ids, target_ids, labels)
    )
    return (source_ids, target_ids), labels


def epochs_dataset(batches, signature, first_epoch):
    """The epochs of `batches` one after another, each as a `tf.data.Dataset` of `num_batches`."""
    state = {"epoch": first_epoch}

    def generate():
        for i, batch in enumerate(batches.epoch(state["epoch"]), start=1):
            if i == batches.num_batches:
                state["epoch"] += 1
            yield batch

    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    cardinality = tf.data.experimental.assert_cardinality(batches.num_batches)
    options = tf.data.Options()
    # An iterator that is dropped before its last batch, as one in `fit` is, would wait for the
    # thread that tunes it, which sleeps ever longer, up to a minute.
    options.autotune.enabled = False
    # Batches that are only made ahead must not reach the last, at which the epoch counts as read.
    ahead = max(0, min(4, batches.num_batches - 2))
    return dataset.apply(cardinality).prefetch(ahead).with_options(options)
