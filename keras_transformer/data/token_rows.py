"""Token ids of many texts, stored one after another in a single array."""

import itertools
from typing import NamedTuple

import numpy as np

from keras_transformer.checks import check_tokenizer
from keras_transformer.data.special_tokens import PAD_ID

TOKENIZE_CHUNK = 10_000


class TokenRows(NamedTuple):
    """Token ids of many sentences: row i is `values[offsets[i]:offsets[i + 1]]`."""

    values: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def padded(self, rows: np.ndarray, width: int) -> np.ndarray:
        """Returns some rows as a matrix (len(rows), width), padded with 0 at the end."""
        if not len(self.values):
            return np.full((len(rows), width), PAD_ID, "int32")
        columns = np.arange(width)
        starts, lengths = self.offsets[rows, None], self.lengths[rows, None]
        indices = np.minimum(starts + columns, len(self.values) - 1)
        return np.where(columns < lengths, self.values[indices], PAD_ID).astype("int32")


class TokenPairs(NamedTuple):
    """The ids of both sides of some sentence pairs."""

    sources: TokenRows
    targets: TokenRows

    @property
    def lengths(self) -> np.ndarray:
        """The tokens of the longer side of each pair, with the end token."""
        return np.maximum(self.sources.lengths, self.targets.lengths) + 1


def sample_rows(texts, plain, seed, tokenizer, rate, max_length) -> TokenRows:
    """Tokenizes strings with `Tokenizer.sample`; a text that gets too long keeps its plain ids."""
    sampled = tokenizer.sample(texts, rate, seed)
    for i, ids in enumerate(sampled):
        if len(ids) >= max_length:
            sampled[i] = plain.values[plain.offsets[i] : plain.offsets[i + 1]]
    offsets = np.cumsum([0, *map(len, sampled)])
    return TokenRows(np.fromiter(itertools.chain.from_iterable(sampled), "int32"), offsets)


def tokenize_rows(texts, tokenizer) -> TokenRows:
    """Tokenizes strings, without special tokens."""
    check_tokenizer(tokenizer)
    values, lengths = [np.zeros(0, "int32")], [np.zeros(1, "int64")]
    for start in range(0, len(texts), TOKENIZE_CHUNK):
        ragged = tokenizer.tokenize(texts[start : start + TOKENIZE_CHUNK])
        values.append(ragged.values.numpy())
        lengths.append(ragged.row_lengths().numpy())
    return TokenRows(np.concatenate(values), np.cumsum(np.concatenate(lengths)))
