"""Tokens that a search must not choose.

A constraint is a function `constraint(ids, position, vocab_size)` of the tokens so far, integers
(R, L) of which the first `position` are real, that returns a boolean mask (V,) or (R, V), True =
forbidden. Only the choice changes: a search takes probabilities from the logits as they were, so
its scores stay those of the model.
"""

import numpy as np
from keras import ops

# More tokens than this are masked.
FEW = 8


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


def forbidden_mask(constraints, suppress_ids, ids, position, vocab_size):
    """What constraints and many suppressed tokens forbid: boolean (V,) or (R, V), or None."""
    masks = [constraint(ids, position, vocab_size) for constraint in constraints]
    if len(suppress_ids) > FEW:
        members = np.zeros(vocab_size, "bool")
        members[list(suppress_ids)] = True
        masks.append(members)
    forbidden = None
    for mask in masks:
        forbidden = mask if forbidden is None else ops.logical_or(forbidden, mask)
    return forbidden


def forbidden_tokens(suppress_ids, min_length, end_id, position):
    """Pairs of a token and whether it is forbidden now, for those that are few.

    A few tokens are quicker struck from the list of candidates than masked in every row of logits.
    """
    pairs = [(token, True) for token in suppress_ids if len(suppress_ids) <= FEW]
    return pairs + ([(end_id, position + 1 < min_length)] if min_length > 1 else [])
