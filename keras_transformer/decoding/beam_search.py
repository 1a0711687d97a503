"""The most probable translation that a search of bounded width finds."""

import keras
from keras import ops

from keras_transformer.decoding.beam_state import (
    BeamState,
    next_state,
    resized,
    scores_of,
    start_state,
)
from keras_transformer.decoding.constraints import Rules
from keras_transformer.decoding.continuations import (
    best_continuations,
    continuations,
    live_rows,
    rows_of_beams,
)
from keras_transformer.decoding.length_penalty import length_penalty as penalty_of
from keras_transformer.decoding.rounds import (
    SHORTEST_ROUND,
    SHORTEST_ROUND_OF_BEAMS,
    no_room,
    of_any_size,
    search_in_one_loop,
    search_in_rounds,
)
from keras_transformer.decoding.search_arguments import (
    check_beam,
    check_max_length,
    row_limits,
    row_values,
)
from keras_transformer.decoding.search_result import IMPOSSIBLE, SearchResult
from keras_transformer.gather import at_columns, rows_of


def beam_search(
    step_fn,
    start_ids,
    cache,
    *,
    end_id,
    max_length,
    max_lengths=None,
    beam_size=4,
    num_hypotheses=1,
    length_penalty=0.6,
    suppress_ids=(),
    min_length=0,
    constraints=(),
    prefix_ids=None,
    bonus_fn=None,
    reorder_cache=None,
    resize_cache=None,
    start_logits=None,
    only_live=False,
):
    """Extends the K best hypotheses of each sentence at once.

    At each step every live hypothesis offers its K best continuations, and the most probable of
    all fill the places that finished hypotheses leave free. A finished hypothesis is frozen: it
    keeps its place, its tokens and its score. A sentence is done when none of its live
    hypotheses can still enter the `num_hypotheses` best: log-probabilities only fall, so
    `log_prob / length_penalty(max_length)` bounds what a live one can reach. With a beam of one
    this is greedy search; with a beam as wide as the space of translations it is exhaustive.

    A hypothesis whose logits are not finite is dropped.

    Args:
        step_fn: `step_fn(token_ids, cache, position) -> (logits, cache)` with ids (B * K,) and
            logits (B * K, V), a sentence's hypotheses side by side.
        start_ids: integers (B,), the token each hypothesis starts from.
        cache: nested structure of tensors with first axis B * K, or any other with a
            `reorder_cache` of its own.
        end_id: the token that ends a hypothesis.
        max_length: L, the most tokens of any hypothesis; an integer, or in a TensorFlow graph an
            integer scalar.
        max_lengths: integers (B,) of at least 1, the most tokens of each sentence; `max_length`
            by default. A hypothesis that reaches it competes as it is.
        beam_size: K.
        num_hypotheses: N, how many are returned, at most K.
        length_penalty: alpha, a number or floats (B,); see `length_penalty`.
        suppress_ids: tokens that are never chosen.
        min_length: the fewest tokens of a hypothesis, the end token included.
        constraints: what else must not be chosen; see `decoding.constraints`.
        prefix_ids: integers (B, P), padded with 0: every hypothesis begins so.
        bonus_fn: `bonus_fn(cache)`, floats (B, K) of at most 0, added to the score of a
            hypothesis that ends.
        reorder_cache: `reorder_cache(cache, rows) -> cache`, with integers (B * K,): the row each
            hypothesis continues. Gathers every tensor's first axis by default.
        resize_cache: `resize_cache(cache, sentences, length) -> cache`: the cache of these
            sentences, integers (b,), with room for `length` tokens, of the same structure. With it
            the search runs in rounds, which is faster, but needs shapes that may change: in a graph
            no size that it changes may be known beforehand.
        start_logits: floats (B, V), the logits of the first token, if the cache has read
            `start_ids` already: K hypotheses are not needed for that.
        only_live: whether `step_fn` takes one more argument, integers (R,), the rows of hypotheses
            that can still win, and gives logits (R, V) of those alone. That is faster, but R
            changes from step to step.

    Returns:
        A `SearchResult`.

    Raises:
        ValueError: if a size, a length, the penalty or a token is out of range.

    Example:
        >>> def spell(token_ids, cache, position):  # 1, then 2, then the end token 3
        ...     return ops.one_hot(token_ids + 1, 4) * 9.0, cache
        >>> result = beam_search(spell, ops.array([0]), (), end_id=3, max_length=5)
        >>> np.array(result.ids).tolist()
        [[[1, 2, 3, 0, 0]]]
    """
    max_length = check_max_length(max_length)
    beam_size, num_hypotheses = check_beam(beam_size, num_hypotheses)
    reorder_cache = reorder_cache or gather_rows
    rules = Rules.of(suppress_ids, min_length, end_id, constraints)

    def step(*state):
        state = BeamState(*state)
        flat = ops.reshape(state.tokens, (-1,))
        live = [live_rows(state)] if only_live else []  # (R,)
        logits, cache = step_fn(flat, state.cache, state.position, *live)  # (R, V)
        return extended(state._replace(cache=cache), logits, *live)

    def extended(state, logits, rows=None):
        log_probs, tokens = continuations(state, logits, rules, rows)  # (B, K, k)
        log_probs, origins, tokens = best_continuations(state, log_probs, tokens)
        cache = reorder_cache(state.cache, rows_of_beams(origins))
        bonus = None if bonus_fn is None else bonus_fn(cache)
        state = next_state(state, log_probs, origins, tokens, end_id, bonus)
        return state._replace(cache=cache, done=is_done(state, num_hypotheses))

    def done(state):
        return state.done

    def result_of(state):
        return best_hypotheses(state, num_hypotheses)

    start_ids = ops.cast(start_ids, "int32")
    has_read = start_logits is not None
    state = start_state(
        start_ids,
        cache,
        limits=row_limits(start_ids, max_length, max_lengths),
        alpha=row_values(start_ids, length_penalty),
        prefix=prefix_ids,
        beam_size=beam_size,
        room=max_length if resize_cache is None else no_room(start_ids) + int(has_read),
    )
    if has_read:
        state = extended(of_any_size(state), start_logits, live_rows(state))
    if resize_cache is None:
        return result_of(search_in_one_loop(state, step, done))

    def resize(state, rows, room):
        return resized(state, rows, room, resize_cache)

    shortest = SHORTEST_ROUND if beam_size == 1 else SHORTEST_ROUND_OF_BEAMS
    return search_in_rounds(state, step, done, result_of, resize, max_length, shortest)


def is_done(state, num_hypotheses):
    """Whether no live hypothesis of a sentence can still be among its best: bool (B,)."""
    best, _ = ops.top_k(ranks(state), num_hypotheses)  # (B, N)
    live, _ = ops.top_k(ops.where(state.finished, 4 * IMPOSSIBLE, state.log_probs), 1)  # (B, 1)
    bound = live[:, 0] / penalty_of(state.limits, state.alpha)
    # Without a live hypothesis, or with none but dropped ones, nothing can come any more.
    return ops.logical_or(best[:, -1] >= bound, live[:, 0] < IMPOSSIBLE / 2)


def ranks(state):
    """The scores of finished hypotheses, and less than any score for other places: (B, K)."""
    exists = ops.logical_and(state.finished, state.log_probs > IMPOSSIBLE / 2)
    return ops.where(exists, scores_of(state), 4 * IMPOSSIBLE)


def best_hypotheses(state, num_hypotheses) -> SearchResult:
    """The finished hypotheses of each sentence, best first."""
    _, best = ops.top_k(ranks(state), num_hypotheses)  # (B, N)
    all_fields = state.ids, state.lengths, scores_of(state), state.log_probs
    ids, lengths, scores, log_probs = (at_columns(x, best) for x in all_fields)  # (B, N, ...)
    exists = log_probs > IMPOSSIBLE / 2
    return SearchResult(
        ids=ops.where(ops.expand_dims(exists, 2), ids, 0),
        lengths=ops.where(exists, lengths, 0),
        scores=ops.where(exists, scores, IMPOSSIBLE),
        log_probs=ops.where(exists, log_probs, IMPOSSIBLE),
    )


def gather_rows(cache, rows):
    """The default `reorder_cache`: row `rows[i]` of every tensor becomes row i."""
    return keras.tree.map_structure(lambda x: rows_of(x, rows), cache)
