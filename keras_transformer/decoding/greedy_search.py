"""The most probable token at every step."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.decoding.constraints import Rules
from keras_transformer.decoding.length_penalty import length_penalty as penalty_of
from keras_transformer.decoding.prefix import force_prefix
from keras_transformer.decoding.rounds import (
    no_room,
    search_in_one_loop,
    search_in_rounds,
    take_sentences,
)
from keras_transformer.decoding.search_arguments import check_max_length, row_limits, row_values
from keras_transformer.decoding.search_result import IMPOSSIBLE, SearchResult
from keras_transformer.decoding.top_k import allowed_top_k


class GreedyState(NamedTuple):
    """The loop variables: one hypothesis a sentence."""

    position: Any  # int32 scalar, tokens so far
    sentences: Any  # int32 (B,), the place of each sentence in the caller's batch
    limits: Any  # int32 (B,), the most tokens of each
    alpha: Any  # float32 (B,), exponent of the length penalty
    prefix: Any  # int32 (B, P), how each hypothesis must begin, padded with 0
    tokens: Any  # int32 (B,), the last of each hypothesis
    ids: Any  # int32 (B, L)
    lengths: Any  # int32 (B,)
    log_probs: Any  # float32 (B,)
    finished: Any  # bool (B,)
    cache: Any


def greedy_search(
    step_fn,
    start_ids,
    cache,
    *,
    end_id,
    max_length,
    max_lengths=None,
    length_penalty=0.6,
    suppress_ids=(),
    min_length=0,
    constraints=(),
    prefix_ids=None,
    choose=None,
    resize_cache=None,
):
    """Extends each hypothesis by its most probable token until the end token.

    A hypothesis whose logits are not finite ends there, as one that does not exist.

    Args:
        step_fn: `step_fn(token_ids, cache, position) -> (logits, cache)` with ids (B,) and logits
            (B, V), such as `Transformer.decode_step`.
        start_ids: integers (B,), the token each hypothesis starts from.
        cache: nested structure of tensors that `step_fn` reads and returns anew.
        end_id: the token that ends a hypothesis.
        max_length: L, the most tokens of any hypothesis; an integer, or in a TensorFlow graph an
            integer scalar.
        max_lengths: integers (B,) of at least 1, the most tokens of each; `max_length` by default.
        length_penalty: alpha of the scores, a number or floats (B,), which choose nothing here;
            see `length_penalty`.
        suppress_ids: tokens that are never chosen.
        min_length: the fewest tokens of a hypothesis, the end token included.
        constraints: what else must not be chosen; see `decoding.constraints`.
        prefix_ids: integers (B, P), padded with 0: every hypothesis begins so.
        choose: `choose(logits, position)`, the token (B,) to take of logits (B, V); the largest
            by default, see `sampling` for another.
        resize_cache: as in `beam_search`.

    Returns:
        A `SearchResult` with N = 1.

    Raises:
        ValueError: if a length, the penalty or a token is out of range.

    Example:
        >>> def spell(token_ids, cache, position):  # 1, then 2, then the end token 3
        ...     return ops.one_hot(token_ids + 1, 4) * 9.0, cache
        >>> result = greedy_search(spell, ops.array([0]), (), end_id=3, max_length=5)
        >>> np.array(result.ids).tolist()
        [[[1, 2, 3, 0, 0]]]
    """
    max_length = check_max_length(max_length)
    rules = Rules.of(suppress_ids, min_length, end_id, constraints)

    def step(*state):
        state = GreedyState(*state)
        logits, cache = step_fn(state.tokens, state.cache, state.position)  # (B, V)
        log_probs, chosen = choice(state, logits, rules, choose)
        return next_state(state, log_probs, chosen, end_id)._replace(cache=cache)

    start_ids = ops.cast(start_ids, "int32")
    no_prefix = ops.zeros((ops.shape(start_ids)[0], 0), "int32")
    room = max_length if resize_cache is None else no_room(start_ids)
    state = GreedyState(
        position=ops.convert_to_tensor(0, "int32"),
        sentences=ops.arange(ops.shape(start_ids)[0], dtype="int32"),
        limits=row_limits(start_ids, max_length, max_lengths),
        alpha=row_values(start_ids, length_penalty),
        prefix=no_prefix if prefix_ids is None else ops.cast(prefix_ids, "int32"),
        tokens=start_ids,
        ids=ops.zeros((ops.shape(start_ids)[0], room), "int32"),
        lengths=ops.zeros_like(start_ids),
        log_probs=ops.zeros_like(start_ids, "float32"),
        finished=ops.zeros_like(start_ids, "bool"),
        cache=cache,
    )

    def done(state):
        return state.finished

    if resize_cache is None:
        return result_of(search_in_one_loop(state, step, done))

    def resize(state, rows, room):
        return resized(state, rows, room, resize_cache)

    return search_in_rounds(state, step, done, result_of, resize, max_length)


def choice(state, logits, rules, choose):
    """The next token of each hypothesis and its log-probability: (B,) each."""
    logits = ops.cast(logits, "float32")
    mask, tokens = rules.forbidden(logits, state.ids, state)
    logit, chosen, log_sum = allowed_top_k(logits, 1, mask, tokens)  # (B, 1) each
    if choose is not None:
        logit, chosen = chosen_logit(choose, logits, mask, tokens, state.position)
    logit, chosen = force_prefix(state.prefix, state.position, logits, logit, chosen)
    log_probs = (logit - log_sum)[:, 0]
    return ops.where(ops.isfinite(log_probs), log_probs, IMPOSSIBLE), chosen[:, 0]


def chosen_logit(choose, logits, mask, tokens, position):
    """The logit and the token that `choose` takes among those allowed: (B, 1) each."""
    forbidden = False if mask is None else mask
    for token, active in tokens:
        here = ops.arange(logits.shape[-1]) == token  # (V,)
        forbidden = ops.logical_or(forbidden, ops.logical_and(here, active))
    allowed = ops.where(forbidden, IMPOSSIBLE, logits)
    chosen = ops.expand_dims(ops.cast(choose(allowed, position), "int32"), 1)  # (B, 1)
    return ops.take_along_axis(allowed, chosen, axis=1), chosen


def next_state(state, log_probs, chosen, end_id) -> GreedyState:
    """The state after one more token of each hypothesis, its cache aside."""
    here = ops.logical_and(
        ops.arange(ops.shape(state.ids)[1]) == state.position,
        ops.logical_not(ops.expand_dims(state.finished, 1)),
    )  # (B, L)
    length = state.position + 1
    ends = ops.logical_or(chosen == end_id, log_probs < IMPOSSIBLE / 2)
    ends = ops.logical_or(ends, length >= state.limits)
    return state._replace(
        position=length,
        tokens=chosen,
        ids=ops.where(here, ops.expand_dims(chosen, 1), state.ids),
        lengths=ops.where(state.finished, state.lengths, length),
        log_probs=state.log_probs + ops.where(state.finished, 0.0, log_probs),
        finished=ops.logical_or(state.finished, ends),
    )


def resized(state, rows, room, resize_cache) -> GreedyState:
    """The state of the sentences at `rows`, with room for `room` tokens."""
    missing = room - ops.shape(state.ids)[1]
    state = state._replace(ids=ops.pad(state.ids, ((0, 0), (0, missing))))
    return take_sentences(state, rows)._replace(cache=resize_cache(state.cache, rows, room))


def result_of(state) -> SearchResult:
    """The hypotheses as they are; a single one a sentence."""
    exists = state.log_probs > IMPOSSIBLE / 2
    scores = state.log_probs / penalty_of(state.lengths, state.alpha)
    result = SearchResult(
        ids=ops.where(ops.expand_dims(exists, 1), state.ids, 0),
        lengths=ops.where(exists, state.lengths, 0),
        scores=ops.where(exists, scores, IMPOSSIBLE),
        log_probs=ops.where(exists, state.log_probs, IMPOSSIBLE),
    )
    return SearchResult(*(ops.expand_dims(field, 1) for field in result))
