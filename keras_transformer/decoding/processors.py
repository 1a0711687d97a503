"""What may follow a hypothesis: forbidden tokens, its beginning, and the best of the rest.

A logits processor is a function `processor(ids, position, vocab_size)` of the tokens so far,
integers (R, L); only the first `position` columns are real. It returns which tokens are forbidden,
boolean (V,) or (R, V). Only the choice changes: a search takes probabilities from the logits as
they were, so its scores stay those of the model.
"""

import functools

import numpy as np
from keras import ops

from keras_transformer.backend import batched_gather
from keras_transformer.decoding.beginning import not_a_beginning
from keras_transformer.decoding.result import IMPOSSIBLE
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.strategies import Sample
from keras_transformer.decoding.top_k import allowed_top_k, log_sum_exp

# This many suppressed tokens are struck from the list of candidates. More are set to IMPOSSIBLE.
FEW = 8


def candidates(logits, ids, beginning, position, k, search, seeds=None):
    """The k tokens that may follow each hypothesis, and their log-probabilities.

    Args:
        logits: tensor (R, V).
        ids: int32 (R, L), the tokens so far.
        beginning: `Beginning`.
        position: integer scalar, the number of tokens so far.
        k: how many tokens; 1 to sample.
        search: a `Search`, for its strategy (a `Sample` draws, any other takes the most probable),
            the token that ends a hypothesis, and the model's spelling.
        seeds: of each row, for `sample`; None if it does not sample.

    Returns:
        Log-probabilities, float32, and tokens, int32: (R, k) each. A place that no token can fill
        has the log-probability IMPOSSIBLE.
    """
    logits, strategy = ops.cast(logits, "float32"), search.strategy
    vocab_size = logits.shape[-1]
    forbidden, struck = forbidden_tokens(strategy, search.end_id, ids, position, vocab_size)

    def begin():
        mask = with_struck(forbidden, struck, vocab_size)  # (V,) or (R, V)
        spelling = search.model.spelling
        mask = not_a_beginning(beginning, spelling, ids, position, mask)  # (R, V)
        return choose(logits, k, mask, [], position, strategy, seeds)

    def go_on():
        return choose(logits, k, forbidden, struck, position, strategy, seeds)

    if all(field.shape[1] == 0 for field in beginning):
        top_logits, tokens, normalizer = go_on()  # (R, k), (R, k), (R, 1)
    else:
        longest = sum(ops.shape(field)[1] for field in beginning)  # tokens
        top_logits, tokens, normalizer = ops.cond(position < longest, begin, go_on)
    log_probs = top_logits - normalizer  # (R, k)
    return ops.where(ops.isfinite(log_probs), log_probs, IMPOSSIBLE), tokens


def choose(logits, k, forbidden, struck, position, strategy, seeds):
    """The logits of k tokens that may be chosen, the tokens, and the normalizer of all logits."""
    if isinstance(strategy, Sample):
        forbidden = with_struck(forbidden, struck, logits.shape[-1])
        chosen = sampled(logits, forbidden, position, strategy, seeds)
        return *chosen, log_sum_exp(logits)
    return allowed_top_k(logits, k, forbidden, struck)


def forbidden_tokens(strategy, end_id, ids, position, vocab_size):
    """What is forbidden at the next step.

    A few tokens are faster struck from the list of candidates than found in every row of logits.

    Args:
        strategy, end_id, ids, position: as in `candidates`.
        vocab_size: V.

    Returns:
        Which tokens are forbidden, boolean (V,) or (R, V), or None; and more that are struck: a
        list of pairs of a token and whether it is forbidden, a boolean or a boolean scalar.
    """
    suppressed = strategy.suppress_ids
    for name, tokens in (("end_id", (end_id,)), ("suppress_ids", suppressed)):
        if max(tokens, default=0) >= vocab_size:
            raise ValueError(
                f"{name} must be among the {vocab_size} tokens that the logits have, but is "
                f"{max(tokens)}."
            )
    processors = [*strategy.logits_processors]
    if strategy.no_repeat_ngram:
        processors.append(no_repeat_ngram(strategy.no_repeat_ngram))
    forbidden = [processor(ids, position, vocab_size) for processor in processors]
    struck = []
    if len(suppressed) <= FEW:
        struck += [(token, True) for token in suppressed]
    else:
        forbidden.append(np.isin(np.arange(vocab_size), suppressed))  # (V,)
    if strategy.min_length > 1:
        struck.append((end_id, position + 1 < strategy.min_length))
    return functools.reduce(ops.logical_or, forbidden) if forbidden else None, struck


def with_struck(forbidden, struck, vocab_size):
    """What `forbidden_tokens` returns as one mask: boolean (V,) or (R, V)."""
    mask = ops.zeros((vocab_size,), "bool") if forbidden is None else forbidden
    for token, active in struck:
        here = ops.arange(vocab_size) == token  # (V,)
        mask = ops.logical_or(mask, ops.logical_and(here, active))
    return mask


def sampled(logits, forbidden, position, strategy, seeds):
    """The logit and the token that a `Sample` draws among those allowed: (R, 1) each."""
    allowed = ops.where(forbidden, IMPOSSIBLE, logits)  # (R, V)
    chosen = ops.expand_dims(sample(allowed, position, strategy, seeds), 1)  # (R, 1)
    return batched_gather(allowed, chosen), chosen


def no_repeat_ngram(size):
    """Makes the logits processor that forbids to repeat `size` tokens in a row.

    Paulus et al. (2017), "A Deep Reinforced Model for Abstractive Summarization", section 2.5, for
    trigrams. A token is forbidden if with the `size - 1` tokens before it, it is an n-gram that
    the hypothesis has.
    """

    def processor(ids, position, vocab_size):
        length = ops.shape(ids)[1]
        places = ops.arange(length)  # (L,)
        # repeats[r, l]: are the size - 1 tokens before l those at the end of hypothesis r?
        repeats = ops.logical_and(places >= size - 1, places < position)  # (L,)
        repeats = ops.broadcast_to(repeats, ops.shape(ids))  # (R, L)
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

    return processor
