"""Texts one after another, cut into windows of one length: batches for a language model."""

import hashlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.checks import check_positive_int, check_seed, check_texts
from keras_transformer.data.batching import epochs_dataset
from keras_transformer.data.special_tokens import END_ID, PAD_ID
from keras_transformer.data.token_rows import tokenize_rows


class SplitTexts(NamedTuple):
    """Texts to train on, and texts that training does not see."""

    train: list[str]
    held_out: list[str]


def hold_out(texts, share=0.1) -> SplitTexts:
    """Keeps a share of the texts apart, always the same ones.

    A text's side is decided by a hash of it: the order of the texts and other runs do not matter,
    and equal texts are on the same side.

    Args:
        texts: strings, at least two different ones.
        share: of the different texts, at least one of which is held out.

    Returns:
        `SplitTexts`, both sides in the order of `texts`.

    Raises:
        ValueError: if the share is not between 0 and 1, or there are no two different texts.
        TypeError: if a text is no string.

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
            f"To hold out some of the texts takes two different ones, but there are {len(ranked)}; "
            "give more, or cut a long one into its parts."
        )
    count = min(max(round(share * len(ranked)), 1), len(ranked) - 1)
    held_out = set(ranked[:count])
    return SplitTexts(
        [text for text in texts if text not in held_out],
        [text for text in texts if text in held_out],
    )


class PackedBatches:
    """Batches of windows of text that follow each other without a gap, for `model.fit`.

    The texts are joined, each ended by the end token, and cut into windows of one length: no token
    is padding but at the end of the last window, and all batches have one shape. Each token is
    predicted once an epoch, from those before it in its window and the one before that: ids are
    the labels, moved on by one, so that each text comes after an end token, where `LanguageModel`
    begins anew: texts that share a window do not see each other. Every epoch joins the texts in
    another order, so that the cuts fall elsewhere; it is a function of the seed and the epoch
    alone.

    Args:
        texts: strings, not all of them empty.
        tokenizer: a `Tokenizer`.
        length: tokens in a window, the `max_length` of the model.
        batch_size: windows in a batch. The last batch is filled with empty ones, which neither
            loss nor metrics count.
        shuffle: whether each epoch has an order of its own.
        seed: of that order.

    Raises:
        ValueError: if there is no text, or a size is out of range.
        TypeError: if a text is no string.

    Example:
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> batches = PackedBatches(["a dog", "a dog runs"], tokenizer, length=4, batch_size=2)
        >>> ids, labels = next(batches.epoch(0))
        >>> ids.shape, labels.shape
        ((2, 4), (2, 4))
    """

    def __init__(self, texts, tokenizer, *, length=256, batch_size=32, shuffle=True, seed=0):
        check_positive_int("length", length)
        check_positive_int("batch_size", batch_size)
        check_seed(seed)
        self.rows = tokenize_rows(check_texts("texts", texts), tokenizer)
        if not len(self.rows.values):
            raise ValueError(
                "texts must hold some text, but all are empty; give at least one word."
            )
        self.length, self.batch_size = length, batch_size
        self.shuffle, self.seed = shuffle, seed
        self.num_tokens = len(self.rows.values) + len(self.rows.lengths)
        self.num_windows = -(-self.num_tokens // length)
        self.num_batches = -(-self.num_windows // batch_size)

    def epoch(self, index: int):
        """Yields `(ids, labels)`, int32 arrays (batch_size, length), for one epoch."""
        generator = np.random.default_rng((self.seed, index))
        texts, windows = np.arange(len(self.rows.lengths)), np.arange(self.num_windows)
        if self.shuffle:
            texts, windows = generator.permutation(texts), generator.permutation(windows)
        stream = self._stream(texts)  # (num_tokens,)
        ids = self._windows(np.append(END_ID, stream[:-1]))
        labels = self._windows(stream)
        # Windows after the last are empty, and fill the last batch.
        order = np.append(windows, np.arange(self.num_windows, len(labels)))
        for rows in order.reshape(self.num_batches, self.batch_size):
            yield ids[rows], labels[rows]

    def dataset(self, first_epoch=0):
        """A `tf.data.Dataset` of one epoch; the next order each time its last batch is read.

        Args:
            first_epoch: the number of epochs that an earlier run has finished.
        """
        ids = tf.TensorSpec((self.batch_size, self.length), tf.int32)
        return epochs_dataset(self, (ids, ids), first_epoch)

    def _stream(self, texts):
        """All tokens of the texts in this order, each text ended by the end token."""
        values, offsets = self.rows
        parts = ((values[offsets[i] : offsets[i + 1]], [END_ID]) for i in texts)
        return np.concatenate([part for pair in parts for part in pair])

    def _windows(self, tokens):
        """Tokens (num_tokens,) as a matrix with a row a window, 0 after the last token."""
        size = self.num_batches * self.batch_size * self.length
        padded = np.pad(tokens, (0, size - len(tokens)), constant_values=PAD_ID)
        return padded.reshape(-1, self.length).astype("int32")
