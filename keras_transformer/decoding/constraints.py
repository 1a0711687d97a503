"""Tokens that a search must not choose.

A constraint is a function `constraint(ids, position, vocab_size)` of the tokens so far, integers
(R, L) of which the first `position` are real, that returns a boolean mask (V,) or (R, V), True =
forbidden. Only the choice changes: a search takes probabilities from the logits as they were, so
its scores stay those of the model.
"""

import numpy as np
from keras import ops

from keras_transformer.decoding.search_result import IMPOSSIBLE


def suppress(ids):
    """The constraint that `ids` never appear."""

    def constraint(_, position, vocab_size):
        return token_set(ids, vocab_size)

    return constraint


def minimum_length(length, end_id):
    """The constraint that a hypothesis has `length` tokens at least, its end token included."""

    def constraint(_, position, vocab_size):
        return ops.logical_and(token_set([end_id], vocab_size), position + 1 < length)

    return constraint


def no_repeat_ngram(size):
    """The constraint that no `size` tokens in a row occur twice in a hypothesis.

    Paulus et al. (2017), "A Deep Reinforced Model for Abstractive Summarization", section 2.5, for
    trigrams. A token is forbidden if with the `size - 1` tokens before it, it is an n-gram that
    the hypothesis has.
    """

    def constraint(ids, position, vocab_size):
        length = ops.shape(ids)[1]
        places = ops.arange(length)  # (L,)
        # repeats[r, l]: are the size - 1 tokens before l those at the end of hypothesis r?
        repeats = ops.logical_and(places >= size - 1, places < position)  # (L,)
        repeats = ops.logical_and(repeats, ids == ids)  # (R, L)
        for back in range(1, size):
            last = ops.take(ids, ops.maximum(position - back, 0), axis=1)  # (R,)
            earlier = ops.take(ids, ops.maximum(places - back, 0), axis=1)  # (R, L)
            repeats = ops.logical_and(repeats, earlier == ops.expand_dims(last, 1))
        rows = ops.expand_dims(ops.arange(ops.shape(ids)[0]), 1)  # (R, 1)
        flat = ops.cast(ops.reshape(ids + rows * vocab_size, (-1,)), "int32")  # (R * L,)
        counts = ops.segment_sum(
            ops.cast(ops.reshape(repeats, (-1,)), "int32"), flat, ops.shape(ids)[0] * vocab_size
        )
        return ops.reshape(counts > 0, (-1, vocab_size))  # (R, V)

    return constraint


def token_set(ids, vocab_size) -> np.ndarray:
    """Boolean array (V,), True at `ids`."""
    members = np.zeros(vocab_size, "bool")
    members[list(ids)] = True
    return members


def apply_constraints(logits, constraints, ids, position):
    """Logits (R, V) with every forbidden token out of reach."""
    if not constraints:
        return logits
    masks = [constraint(ids, position, logits.shape[-1]) for constraint in constraints]
    masks.sort(key=lambda mask: len(mask.shape))  # those of one row first, which are cheap to join
    forbidden = masks[0]
    for mask in masks[1:]:
        forbidden = ops.logical_or(forbidden, mask)
    return ops.where(forbidden, IMPOSSIBLE, logits)
