"""The most probable translation that a search of bounded width finds."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.decoding.greedy_search import check_max_length, row_limits
from keras_transformer.decoding.length_penalty import check_length_penalty
from keras_transformer.decoding.length_penalty import length_penalty as penalty_of
from keras_transformer.decoding.search_result import IMPOSSIBLE, SearchResult
from keras_transformer.decoding.suppression import suppress


class BeamState(NamedTuple):
    """The loop variables: K hypotheses a sentence, live or finished."""

    position: Any  # int32 scalar, tokens so far
    tokens: Any  # int32 (B * K,), the last of each hypothesis
    ids: Any  # int32 (B, K, L)
    lengths: Any  # int32 (B, K)
    log_probs: Any  # float32 (B, K); IMPOSSIBLE in a place that holds no hypothesis
    finished: Any  # bool (B, K)
    cache: Any


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
    reorder_cache=None,
):
    """Extends the K best hypotheses of each sentence at once.

    At each step every live hypothesis offers its K best continuations, and the most probable of
    all fill the places that finished hypotheses leave free. A finished hypothesis is frozen: it
    keeps its place, its tokens and its score. A sentence is done when none of its live
    hypotheses can still enter the `num_hypotheses` best: log-probabilities only fall, so
    `log_prob / length_penalty(max_length)` bounds what a live one can reach. With a beam of one
    this is greedy search; with a beam as wide as the space of translations it is exhaustive.

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
        length_penalty: alpha; see `length_penalty`.
        suppress_ids: tokens that are never chosen.
        reorder_cache: `reorder_cache(cache, rows) -> cache`, with integers (B * K,): the row each
            hypothesis continues. Gathers every tensor's first axis by default.

    Returns:
        A `SearchResult`.

    Raises:
        ValueError: if a size or the penalty is out of range.

    Example:
        >>> def spell(token_ids, cache, position):  # 1, then 2, then the end token 3
        ...     return ops.one_hot(token_ids + 1, 4) * 9.0, cache
        >>> result = beam_search(spell, ops.array([0]), (), end_id=3, max_length=5)
        >>> np.array(result.ids).tolist()
        [[[1, 2, 3, 0, 0]]]
    """
    check_length_penalty(length_penalty)
    check_max_length(max_length)
    check_beam(beam_size, num_hypotheses)
    reorder_cache = reorder_cache or gather_rows
    start_ids = ops.cast(start_ids, "int32")
    limits = row_limits(start_ids, max_length, max_lengths)  # (B,)
    positions = ops.arange(max_length)  # (L,)

    def keep_searching(*state):
        done = is_done(BeamState(*state), limits, num_hypotheses, length_penalty)  # (B,)
        return ops.logical_not(ops.all(done))

    def step(*state):
        state = BeamState(*state)
        logits, cache = step_fn(state.tokens, state.cache, state.position)  # (B * K, V)
        tokens, log_probs = continuations(state, logits, suppress_ids)  # (B, K, k)
        log_probs, rows, tokens = best_continuations(state, tokens, log_probs)
        finished, lengths = (
            ops.reshape(ops.take(ops.reshape(x, (-1,)), rows), ops.shape(x))
            for x in (state.finished, state.lengths)
        )  # (B, K)
        ids = ops.reshape(state.ids, (-1, max_length))
        ids = ops.reshape(ops.take(ids, rows, axis=0), ops.shape(state.ids))  # (B, K, L)
        length = state.position + 1
        ends = ops.logical_and(tokens == end_id, log_probs > IMPOSSIBLE / 2)
        ends = ops.logical_or(ends, ops.expand_dims(length >= limits, 1))  # (B, K)
        return BeamState(
            position=length,
            tokens=ops.reshape(tokens, (-1,)),
            ids=ops.where(positions == state.position, ops.expand_dims(tokens, 2), ids),
            lengths=ops.where(finished, lengths, length),
            log_probs=log_probs,
            finished=ops.logical_or(finished, ends),
            cache=reorder_cache(cache, rows),
        )

    state = start_state(start_ids, cache, beam_size, max_length)
    state = BeamState(*ops.while_loop(keep_searching, step, state))
    return best_hypotheses(state, num_hypotheses, length_penalty)


def start_state(start_ids, cache, beam_size, max_length) -> BeamState:
    """One hypothesis of no tokens a sentence, and K - 1 free places."""
    batch_size = ops.shape(start_ids)[0]
    zeros = ops.zeros((batch_size, beam_size), "int32")
    free = ops.arange(beam_size) > 0  # (K,)
    return BeamState(
        position=ops.convert_to_tensor(0, "int32"),
        tokens=ops.repeat(start_ids, beam_size),
        ids=ops.zeros((batch_size, beam_size, max_length), "int32"),
        lengths=zeros,
        log_probs=ops.zeros_like(zeros, "float32") + ops.where(free, IMPOSSIBLE, 0.0),
        finished=ops.zeros_like(zeros, "bool"),
        cache=cache,
    )


def continuations(state, logits, suppress_ids):
    """The best k <= K tokens after each hypothesis, and the log-probabilities they lead to.

    A finished hypothesis is followed by padding, at no cost.

    Returns:
        Tokens and log-probabilities (B, K, k).
    """
    beam_size = state.log_probs.shape[1]
    logits = ops.cast(logits, "float32")
    k = min(beam_size, logits.shape[-1])
    top_logits, tokens = ops.top_k(suppress(logits, suppress_ids), k)  # (B * K, k)
    log_probs = top_logits - ops.logsumexp(logits, axis=-1, keepdims=True)
    log_probs, tokens = (ops.reshape(x, (-1, beam_size, k)) for x in (log_probs, tokens))
    finished = ops.expand_dims(state.finished, 2)  # (B, K, 1)
    log_probs = ops.expand_dims(state.log_probs, 2) + ops.where(finished, 0.0, log_probs)
    return ops.where(finished, 0, ops.cast(tokens, "int32")), log_probs


def best_continuations(state, tokens, log_probs):
    """Chooses K of the K * k continuations; a finished hypothesis stays, once.

    Returns:
        Log-probabilities (B, K), the row each continues (B * K,), and tokens (B, K).
    """
    beam_size, k = log_probs.shape[1:]
    finished = ops.expand_dims(state.finished, 2)  # (B, K, 1)
    stays = ops.arange(k) == 0  # (k,)
    rank = ops.where(finished, ops.where(stays, -IMPOSSIBLE, 4 * IMPOSSIBLE), log_probs)
    _, chosen = ops.top_k(ops.reshape(rank, (-1, beam_size * k)), beam_size)  # (B, K)
    chosen = ops.cast(chosen, "int32")
    sentence = ops.expand_dims(ops.arange(ops.shape(chosen)[0], dtype="int32"), 1)  # (B, 1)
    flat = ops.reshape(chosen + sentence * (beam_size * k), (-1,))  # (B * K,)
    log_probs, tokens = (
        ops.reshape(ops.take(ops.reshape(x, (-1,)), flat), (-1, beam_size))
        for x in (log_probs, tokens)
    )
    rows = ops.reshape(chosen // k + sentence * beam_size, (-1,))  # (B * K,)
    return log_probs, rows, tokens


def is_done(state, limits, num_hypotheses, alpha):
    """Whether no live hypothesis of a sentence can still be among its best: bool (B,)."""
    impossible = 4 * IMPOSSIBLE
    scores = state.log_probs / penalty_of(state.lengths, alpha)  # (B, K)
    best, _ = ops.top_k(ops.where(state.finished, scores, impossible), num_hypotheses)
    live, _ = ops.top_k(ops.where(state.finished, impossible, state.log_probs), 1)
    return best[:, -1] >= live[:, 0] / penalty_of(limits, alpha)


def best_hypotheses(state, num_hypotheses, alpha) -> SearchResult:
    """The finished hypotheses of each sentence, best first."""
    beam_size, max_length = state.ids.shape[1], ops.shape(state.ids)[2]
    scores = state.log_probs / penalty_of(state.lengths, alpha)  # (B, K)
    rank = ops.where(state.finished, scores, 4 * IMPOSSIBLE)
    _, best = ops.top_k(rank, num_hypotheses)  # (B, N)
    sentence = ops.expand_dims(ops.arange(ops.shape(best)[0], dtype="int32"), 1)  # (B, 1)
    rows = ops.reshape(ops.cast(best, "int32") + sentence * beam_size, (-1,))  # (B * N,)
    ids = ops.take(ops.reshape(state.ids, (-1, max_length)), rows, axis=0)  # (B * N, L)
    lengths, scores, log_probs = (
        ops.reshape(ops.take(ops.reshape(x, (-1,)), rows), (-1, num_hypotheses))
        for x in (state.lengths, scores, state.log_probs)
    )  # (B, N)
    exists = log_probs > IMPOSSIBLE / 2
    ids = ops.reshape(ids, (-1, num_hypotheses, max_length))  # (B, N, L)
    return SearchResult(
        ids=ops.where(ops.expand_dims(exists, 2), ids, 0),
        lengths=ops.where(exists, lengths, 0),
        scores=ops.where(exists, scores, IMPOSSIBLE),
        log_probs=ops.where(exists, log_probs, IMPOSSIBLE),
    )


def gather_rows(cache, rows):
    """The default `reorder_cache`: row `rows[i]` of every tensor becomes row i."""
    return keras.tree.map_structure(lambda x: ops.take(x, rows, axis=0), cache)


def check_beam(beam_size, num_hypotheses) -> None:
    if not isinstance(beam_size, int) or beam_size < 1:
        raise ValueError(f"beam_size must be an integer of at least 1, but is {beam_size!r}.")
    if not isinstance(num_hypotheses, int) or not 1 <= num_hypotheses <= beam_size:
        raise ValueError(
            f"num_hypotheses must be an integer in [1, beam_size={beam_size}], but is "
            f"{num_hypotheses!r}; widen the beam."
        )
