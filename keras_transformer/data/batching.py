"""Sentence pairs to padded batches of few shapes, each of about the same number of tokens."""

import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.data.special_tokens import END_ID, PAD_ID, START_ID

ROWS_MULTIPLE = 8
TOKENIZE_CHUNK = 10_000


class TokenRows(NamedTuple):
    """Token ids of many sentences: row i is `values[offsets[i]:offsets[i + 1]]`."""

    values: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def padded(self, rows, width: int) -> np.ndarray:
        """Rows as one matrix (len(rows), width), padded with 0 at the end."""
        if not len(self.values):
            return np.full((len(rows), width), PAD_ID, "int32")
        columns = np.arange(width)
        starts, lengths = self.offsets[rows, None], self.lengths[rows, None]
        indices = np.minimum(starts + columns, len(self.values) - 1)
        return np.where(columns < lengths, self.values[indices], PAD_ID).astype("int32")


def sample_rows(texts, tokenizer, rate, seed, plain, max_length) -> TokenRows:
    """The ids of a list of strings by `Tokenizer.sample`; of a text too long, those of `plain`."""
    sampled = tokenizer.sample(texts, rate, seed)
    starts = plain.offsets
    for i, ids in enumerate(sampled):
        if len(ids) >= max_length:
            sampled[i] = plain.values[starts[i] : starts[i + 1]]
    offsets = np.cumsum([0, *map(len, sampled)])
    return TokenRows(np.fromiter(itertools.chain.from_iterable(sampled), "int32"), offsets)


def tokenize_rows(texts, tokenizer) -> TokenRows:
    """The ids of a list of strings, without special tokens."""
    values, lengths = [np.zeros(0, "int32")], [np.zeros(1, "int64")]
    for start in range(0, len(texts), TOKENIZE_CHUNK):
        ragged = tokenizer.tokenize(texts[start : start + TOKENIZE_CHUNK])
        values.append(ragged.values.numpy())
        lengths.append(ragged.row_lengths().numpy())
    return TokenRows(np.concatenate(values), np.cumsum(np.concatenate(lengths)))


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
        if len(sources) != len(targets):
            raise ValueError(
                f"sources and targets must be aligned, but there are {len(sources)} sources and "
                f"{len(targets)} targets."
            )
        for name, value, least in (
            ("batch_tokens", batch_tokens, 1),
            ("num_buckets", num_buckets, 1),
            ("max_length", max_length, 2),
        ):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}.")
        if not 0 <= bpe_dropout < 1:
            raise ValueError(f"bpe_dropout must be a number in [0, 1), but is {bpe_dropout!r}.")
        self.texts, self.tokenizer = (sources, targets), tokenizer
        self.plain = [tokenize_rows(texts, tokenizer) for texts in self.texts]
        self.max_length, self.bpe_dropout = max_length, bpe_dropout
        self.shuffle, self.seed = shuffle, seed
        lengths = np.maximum(*(side.lengths for side in self.plain)) + 1
        self.rows = np.flatnonzero(lengths <= max_length)
        self.num_too_long = len(lengths) - len(self.rows)
        if not len(self.rows):
            raise ValueError(
                f"No sentence pair is left: all {len(lengths)} are longer than "
                f"max_length={max_length} tokens; raise max_length."
            )
        self._tokenize(0, 0)
        self.widths = bucket_widths(self.lengths, num_buckets)
        if bpe_dropout:
            self.widths[-1] = max(self.widths[-1], int(lengths[self.rows].max()))
            self.max_length = self.widths[-1]
        # No batch needs more rows than there are pairs.
        most = -(-len(self.rows) // ROWS_MULTIPLE)
        self.heights = [
            min(max(batch_tokens // width // ROWS_MULTIPLE, 1), most) * ROWS_MULTIPLE
            for width in self.widths
        ]
        self.num_batches = len(self._plan(np.random.default_rng(seed)))
        if bpe_dropout:
            self.num_batches += 1 + self.num_batches // 50

    def epoch(self, index: int):
        """Yields `((source_ids, target_ids), labels)`, int32 arrays, for one epoch."""
        generator = np.random.default_rng((self.seed, index))
        plan = self._plan_of_epoch(index, generator)
        order = generator.permutation(len(plan)) if self.shuffle else range(len(plan))
        for i in order:
            width, height, rows = plan[i]
            yield self._batch(rows, width, height)

    def dataset(self, first_epoch=0):
        """A `tf.data.Dataset` of one epoch; the next order each time its last batch is read.

        The first batches, which Keras reads ahead to build a model under a strategy, do not count:
        the orders are those of a run without one.

        Args:
            first_epoch: the number of epochs that an earlier run has finished.
        """
        ids = tf.TensorSpec((None, None), tf.int32)
        return epochs_dataset(self, ((ids, ids), ids), first_epoch)

    def _plan_of_epoch(self, index, generator):
        """A plan of `num_batches`, though BPE-dropout makes some epochs longer than others."""
        for attempt in itertools.count():
            self._tokenize(index, attempt)
            plan = self._plan(generator)
            if len(plan) <= self.num_batches:
                break
        while len(plan) < self.num_batches:
            fullest = max(range(len(plan)), key=lambda i: len(plan[i][2]))
            width, height, rows = plan[fullest]
            half = len(rows) // 2
            plan[fullest : fullest + 1] = (width, height, rows[:half]), (width, height, rows[half:])
        return plan

    def _tokenize(self, epoch, attempt):
        """Sets the ids of an epoch, and what depends on them."""
        self.sources, self.targets = self.plain
        if self.bpe_dropout:
            seeds = np.random.default_rng((self.seed, epoch, attempt)).integers(2**31, size=2)
            self.sources, self.targets = (
                sample_rows(
                    texts, self.tokenizer, self.bpe_dropout, int(seed), plain, self.max_length
                )
                for texts, seed, plain in zip(self.texts, seeds, self.plain, strict=True)
            )
        lengths = np.maximum(self.sources.lengths, self.targets.lengths) + 1
        self.lengths = lengths[self.rows]
        self.num_target_tokens = int((self.targets.lengths[self.rows] + 1).sum())

    def _plan(self, generator):
        """The batches of one epoch, as (width, height, rows)."""
        rows = np.arange(len(self.rows))
        rows = generator.permutation(rows) if self.shuffle else rows
        bucket = np.searchsorted(self.widths, self.lengths[rows])
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

    def _batch(self, rows, width, height):
        empty = ((0, height - len(rows)), (0, 0))
        source_ids = self.sources.padded(rows, width)
        target_ids = self.targets.padded(rows, width)
        source_ids[np.arange(len(rows)), self.sources.lengths[rows]] = END_ID
        labels = target_ids.copy()
        labels[np.arange(len(rows)), self.targets.lengths[rows]] = END_ID
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
    return dataset.apply(cardinality).prefetch(4).with_options(options)
