"""Joins texts and cuts them into windows of one length: batches for a language model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.checks import check_positive_int, check_seed, check_texts
from keras_transformer.data.epochs import epochs_dataset, epochs_stream
from keras_transformer.data.special_tokens import END_ID, PAD_ID
from keras_transformer.data.token_rows import tokenize_rows
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.type_hints import Integers


class SplitTexts(NamedTuple):
    """Texts to train on, and texts that training does not see.

    Example:
        >>> len(hold_out(["a cat", "a dog"], share=0.5).held_out)
        1
    """

    train: list[str]
    held_out: list[str]


def hold_out(texts: Iterable[str], share: float = 0.1) -> SplitTexts:
    """Keeps a share of the texts apart for evaluation, always the same ones.

    A hash of the text decides its side, so the order of the texts does not matter, and equal texts
    are on the same side.

    Args:
        texts: strings, at least two different ones.
        share: the share of the different texts to hold out; at least one is.

    Returns:
        `SplitTexts`, both sides in the order of `texts`.

    Raises:
        ValueError: if the share is not between 0 and 1, or there are no two different texts.
        TypeError: if a text is not a string.

    Example:
        >>> hold_out(["a cat", "a dog", "a cat", "a bird"], share=0.3)
        SplitTexts(train=['a dog', 'a bird'], held_out=['a cat', 'a cat'])
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be a number between 0 and 1, but is {share!r}.")
    texts = check_texts("texts", texts)
    ranked = sorted(set(texts), key=lambda text: hashlib.sha256(text.encode()).digest())
    if len(ranked) < 2:
        raise ValueError(
            f"texts must hold two different texts or more, but there are {len(ranked)}; give more, "
            "or cut a long one into parts."
        )
    count = min(max(round(share * len(ranked)), 1), len(ranked) - 1)
    held_out = set(ranked[:count])
    return SplitTexts(
        [text for text in texts if text not in held_out],
        [text for text in texts if text in held_out],
    )


class PackedBatches:
    """Batches of text for a language model's `fit`, almost without padding.

    The texts are joined, with an end token after each, and cut into windows of one length. Only
    the end of the last window is padding, and all batches have one shape. An epoch predicts every
    token once, from the tokens before it in its window and the one before the window: the ids are
    the labels, shifted by one. So every text follows an end token, where `LanguageModel` starts
    again: texts in the same window do not see each other. Every epoch joins the texts in another
    order, which moves the cuts. The order depends only on the seed and the epoch.

    Args:
        texts: strings, not all of them empty.
        tokenizer: the tokenizer of the texts.
        length: tokens per window; give the model's `max_length`.
        batch_size: windows per batch. Empty windows fill the last batch; neither loss nor metrics
            count them.
        shuffle: whether every epoch has another order.
        seed: the seed of that order.

    Raises:
        ValueError: if there is no text, or a size is out of range.
        TypeError: if a text is not a string.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> batches = PackedBatches(["a dog", "a dog runs"], tokenizer, length=4, batch_size=2)
        >>> ids, labels = next(batches.epoch(0))
        >>> ids.shape, labels.shape
        ((2, 4), (2, 4))
    """

    def __init__(
        self,
        texts: Iterable[str],
        tokenizer: Tokenizer,
        *,
        length: int = 256,
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int = 0,
    ):
        check_positive_int("length", length)
        check_positive_int("batch_size", batch_size)
        check_seed(seed)
        self.rows = tokenize_rows(check_texts("texts", texts), tokenizer)
        if not len(self.rows.values):
            raise ValueError("texts must hold some text, but are empty; give at least one word.")
        self.length, self.batch_size = length, batch_size
        self.shuffle, self.seed = shuffle, seed
        self.num_tokens = len(self.rows.values) + len(self.rows.lengths)
        self.num_windows = -(-self.num_tokens // length)
        self.num_batches = -(-self.num_windows // batch_size)

    def epoch(self, index: int, first_step: int = 0) -> Iterator[tuple[Integers, Integers]]:
        """Yields the batches `(ids, labels)` of one epoch, int32 (batch_size, length) each.

        Args:
            index: the number of the epoch, from 0.
            first_step: how many of its batches to leave out.
        """
        generator = np.random.default_rng((self.seed, index))
        texts, windows = np.arange(len(self.rows.lengths)), np.arange(self.num_windows)
        if self.shuffle:
            texts, windows = generator.permutation(texts), generator.permutation(windows)
        stream = self._stream(texts)  # (num_tokens,)
        ids = self._windows(np.append(END_ID, stream[:-1]))
        labels = self._windows(stream)
        # Empty windows fill the last batch.
        order = np.append(windows, np.arange(self.num_windows, len(labels)))
        for rows in order.reshape(self.num_batches, self.batch_size)[first_step:]:
            yield ids[rows], labels[rows]

    def dataset(self, first_epoch: int = 0) -> tf.data.Dataset:
        """Makes the dataset of one epoch for `model.fit`; it then goes on with the next epoch.

        Args:
            first_epoch: how many epochs an earlier run has finished.
        """
        ids = tf.TensorSpec((self.batch_size, self.length), tf.int32)
        return epochs_dataset(self, (ids, ids), first_epoch)

    def stream(
        self, first_epoch: int = 0, first_step: int = 0, num_steps: int | None = None
    ) -> tf.data.Dataset:
        """Makes the endless dataset of all epochs, for `fit(steps_per_epoch=num_batches)`.

        Args:
            first_epoch: the epoch to begin in, from 0.
            first_step: how many of its batches to leave out.
            num_steps: how many batches will be read, as in `TokenBatches.stream`.
        """
        place = first_epoch, first_step
        return epochs_stream(self, self.dataset().element_spec, *place, num_steps)

    def _stream(self, texts):
        """Joins the tokens of the texts in this order, with the end token after each text."""
        values, offsets = self.rows
        parts = ((values[offsets[i] : offsets[i + 1]], [END_ID]) for i in texts)
        return np.concatenate([part for pair in parts for part in pair])

    def _windows(self, tokens):
        """Turns tokens (num_tokens,) into a matrix: a row per window, 0 after the last token."""
        size = self.num_batches * self.batch_size * self.length
        padded = np.pad(tokens, (0, size - len(tokens)), constant_values=PAD_ID)
        return padded.reshape(-1, self.length).astype("int32")
