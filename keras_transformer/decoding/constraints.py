"""Tokens that a search must not choose.

A constraint is a function `constraint(ids, position, vocab_size)` of the tokens so far, integers
(R, L) of which the first `position` are real, that returns a boolean mask (V,) or (R, V), True =
forbidden. Only the choice changes: a search takes probabilities from the logits as they were, so
its scores stay those of the model.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_transformer.checks import check_count

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


class Rules(NamedTuple):
    """What a search must not choose."""

    suppress_ids: tuple[int, ...]
    min_length: int
    end_id: int
    constraints: Any

    @classmethod
    def of(cls, suppress_ids, min_length, end_id, constraints):
        """Of arguments that are checked here."""
        if not hasattr(suppress_ids, "__iter__"):
            raise ValueError(f"suppress_ids must be a list, but is {suppress_ids!r}; () for none.")
        suppress_ids = tuple(check_count("suppress_ids", token) for token in suppress_ids)
        end_id = check_count("end_id", end_id)
        return cls(suppress_ids, check_count("min_length", min_length), end_id, constraints)

    def forbidden(self, logits, ids, state):
        """What is forbidden at the next step.

        A few tokens are quicker struck from a list of candidates than masked in every row.

        Args:
            logits: tensor (R, V).
            ids: integers (R, L), the tokens so far.
            state: a search's state, for its `position`.

        Returns:
            A boolean mask (V,) or (R, V), or None; and a list of pairs of a token and whether it
            is forbidden.
        """
        position, size = state.position, logits.shape[-1]
        for name, tokens in (("end_id", [self.end_id]), ("suppress_ids", self.suppress_ids)):
            if max(tokens, default=0) >= size:
                raise ValueError(
                    f"{name} must be among the {size} tokens that the logits have, but "
                    f"is {max(tokens)}."
                )
        masks = [constraint(ids, position, size) for constraint in self.constraints]
        few = []
        if len(self.suppress_ids) <= FEW:
            few += [(token, True) for token in self.suppress_ids]
        else:
            members = np.zeros(size, "bool")
            members[list(self.suppress_ids)] = True
            masks.append(members)
        if self.min_length > 1:
            few.append((self.end_id, position + 1 < self.min_length))
        return functools.reduce(ops.logical_or, masks) if masks else None, few
