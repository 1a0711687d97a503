"""Hypotheses that must begin in a given way."""

from keras import ops

from keras_transformer.decoding.search_result import IMPOSSIBLE


def force_prefix(prefix, position, logits, top_logits, tokens):
    """The next token of its prefix and no other, for each row that is still inside one.

    Args:
        prefix: int32 (R, P), padded with 0 after the end of each.
        position: integer scalar, the number of tokens so far.
        logits: tensor (R, V).
        top_logits: tensor (R, k), the largest logits.
        tokens: int32 (R, k), whose they are.

    Returns:
        The last two; inside a prefix the first is its token, and the others IMPOSSIBLE, as is one
        that the vocabulary has not.
    """
    if prefix.shape[1] == 0:
        return top_logits, tokens
    here = ops.arange(ops.shape(prefix)[1]) == position  # (P,)
    wanted = ops.sum(ops.where(here, prefix, 0), axis=1, keepdims=True)  # (R, 1)
    wanted = ops.cast(wanted, "int32")
    forced = ops.clip(wanted, 0, logits.shape[-1] - 1)
    first = ops.arange(tokens.shape[1]) == 0  # (k,)
    possible = ops.logical_and(first, forced == wanted)  # (R, k)
    logit = ops.where(possible, ops.take_along_axis(logits, forced, axis=1), IMPOSSIBLE)  # (R, k)
    inside = forced > 0
    return ops.where(inside, logit, top_logits), ops.where(inside, forced, tokens)
