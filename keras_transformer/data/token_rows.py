"""Token ids of many texts, stored one after another in a single array."""

from typing import NamedTuple

import numpy as np

from keras_transformer.checks import check_tokenizer
from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.type_hints import Integers

# Texts that are tokenized at a time, so that not all of them are in memory twice.
TOKENIZE_CHUNK = 100_000


class TokenRows(NamedTuple):
    """Token ids of many sentences: row i is `values[offsets[i]:offsets[i + 1]]`."""

    values: Integers
    offsets: Integers

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def of(self, rows: np.ndarray) -> "TokenRows":
        """Returns some rows."""
        return take(self.values, self.offsets[rows], self.lengths_of(rows))

    def lengths_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns the lengths of some rows, without looking at the others."""
        return self.offsets[np.add(rows, 1)] - self.offsets[rows]

    def equal_to(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers of all rows that equal one of the given rows, these included."""
        lengths, keys = self.lengths, np.zeros(len(self.offsets) - 1, "int64")
        for part in (0, 1, 2):  # the first id, one in the middle and the last one
            places = self.offsets[:-1] + part * (lengths - 1) // 2
            keys = keys * 2**20 + self.values[np.clip(places, 0, len(self.values) - 1)]
        keys ^= lengths
        found = np.flatnonzero(np.isin(keys, keys[rows]))

        def ids(row):
            return self.values[self.offsets[row] : self.offsets[row + 1]].tobytes()

        known = set(map(ids, rows))
        return np.array([row for row in found if ids(row) in known], "int64")

    def padded(self, rows: np.ndarray, width: int) -> np.ndarray:
        """Returns some rows as a matrix (len(rows), width), padded with 0 at the end."""
        if not len(self.values):
            return np.full((len(rows), width), PAD_ID, "int32")
        columns = np.arange(width)
        starts, lengths = self.offsets[rows][:, None], self.lengths_of(rows)[:, None]
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


def take(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> TokenRows:
    """Makes rows of parts of `values`, given where each part starts and how long it is."""
    offsets = np.append(0, np.cumsum(lengths))
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return TokenRows(values[places], offsets)


def replaced(rows: TokenRows, places: np.ndarray, others: TokenRows) -> TokenRows:
    """Returns the rows, with others at some places."""
    starts, lengths = rows.offsets[:-1].copy(), rows.lengths
    starts[places] = len(rows.values) + others.offsets[:-1]
    lengths[places] = others.lengths
    return take(np.concatenate([rows.values, others.values]), starts, lengths)


def limited(rows: TokenRows, plain: TokenRows, longest: int) -> TokenRows:
    """Returns `rows`, but those of `plain` where a row and its end token pass `longest`."""
    too_long = np.flatnonzero(rows.lengths >= longest)
    return replaced(rows, too_long, plain.of(too_long)) if len(too_long) else rows


def tokenize_rows(texts, tokenizer) -> TokenRows:
    """Tokenizes strings, without special tokens."""
    check_tokenizer(tokenizer, "tokenize")
    # A tokenizer of your own may have `tokenize` alone, which gives a ragged tensor.
    split = getattr(tokenizer, "tokenize_rows", None)
    split = split or (lambda texts: _rows_of(tokenizer.tokenize(texts)))
    values, lengths = [np.zeros(0, "int32")], [np.zeros(1, "int64")]
    for start in range(0, len(texts), TOKENIZE_CHUNK):
        rows = split(texts[start : start + TOKENIZE_CHUNK])
        values.append(rows.values)
        lengths.append(rows.lengths)
    return TokenRows(np.concatenate(values), np.cumsum(np.concatenate(lengths)))


def _rows_of(ragged) -> TokenRows:
    return TokenRows(ragged.values.numpy(), ragged.row_splits.numpy())
