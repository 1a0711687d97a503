"""Tokens that a search must not choose."""

import numpy as np
from keras import ops

from keras_transformer.decoding.search_result import IMPOSSIBLE


def suppress(logits, ids=()):
    """Logits (..., V) with those of `ids` out of reach.

    Only the choice changes: a search takes probabilities from the logits as they were, so its
    scores stay those of the model.
    """
    if not len(ids):
        return logits
    forbidden = np.zeros(logits.shape[-1], "bool")
    forbidden[list(ids)] = True
    return ops.where(forbidden, IMPOSSIBLE, logits)
