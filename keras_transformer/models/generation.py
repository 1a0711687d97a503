"""Searches for people who have ids of their own: ids in, ids out."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from keras import ops

from keras_transformer.checks import check_counts, check_positive_int
from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.decoding.beam import beam_search
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.row_options import RowOptions
from keras_transformer.decoding.sampling import seeds_of_rows
from keras_transformer.decoding.strategies import Beam, Sample, as_strategy

Rows = Iterable[Iterable[int]]


def padded_rows(name: str, rows, vocab_size: int) -> np.ndarray:
    """Returns rows of ids as one array (B, S), padded with 0.

    Raises:
        ValueError: if they are not rows of ids of the model's vocabulary.
    """
    try:
        rows = [check_counts(f"{name}[{i}]", row) for i, row in enumerate(rows)]
    except TypeError as error:
        raise ValueError(
            f"{name} must be rows of ids, such as [[5, 6, 3], [7, 3]], but is {rows!r}."
        ) from error
    largest = max((max(row, default=0) for row in rows), default=0)
    if largest >= vocab_size:
        raise ValueError(
            f"{name} must be ids below the model's {vocab_size}, but there is {largest}; use the "
            "tokenizer that the model was trained with."
        )
    padded = np.full((len(rows), max(map(len, rows), default=0) or 1), PAD_ID, "int32")
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    inside = (padded[:, :-1] == PAD_ID) & (padded[:, 1:] != PAD_ID)  # (B, S - 1)
    if inside.any():
        raise ValueError(
            f"{name}[{inside.any(axis=1).argmax()}] has padding, {PAD_ID}, before another id; pad "
            "rows at their ends, or leave the padding out."
        )
    return padded


def search_ids(model, ids, strategy, begin, *, end_id: int, max_length: int) -> list[list[int]]:
    """Searches for what follows rows of ids.

    Args:
        model: a `TokenModel`.
        ids: int32 (B, S), padded with 0.
        strategy: as in `Translator`.
        begin: from `ids` to the start tokens (B,) and what `init_cache` reads.
        end_id: the token that ends a result, which is left out.
        max_length: the most tokens of a result, the end token included.

    Returns:
        A list of ids for each row.
    """
    check_positive_int("max_length", max_length)
    if not len(ids):
        return []
    strategy = as_strategy(strategy)
    strategy = replace(strategy, suppress_ids=(*strategy.suppress_ids, PAD_ID))
    start_ids, read = begin(ids)
    options = {"track_coverage": True} if strategy.coverage_penalty else {}
    cache = model.init_cache(read, max_length=max_length, beam_size=strategy.size, **options)
    search = beam_search if isinstance(strategy, Beam) else greedy_search
    rows = RowOptions(seeds=seeds_of_rows(ids)) if isinstance(strategy, Sample) else None
    limits = {"end_id": end_id, "max_length": max_length}
    result = search(model, start_ids, cache, strategy, rows=rows, **limits)
    best = zip(*(ops.convert_to_numpy(x)[:, 0] for x in (result.ids, result.lengths)), strict=True)
    rows = [row[:length].tolist() for row, length in best]
    return [row[:-1] if row[-1:] == [end_id] else row for row in rows]
