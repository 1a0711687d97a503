"""What a beam search carries from step to step."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.decoding.length_penalty import length_penalty as penalty_of
from keras_transformer.decoding.rounds import take_sentences
from keras_transformer.decoding.search_result import IMPOSSIBLE
from keras_transformer.gather import at_columns


class BeamState(NamedTuple):
    """The loop variables: K hypotheses a sentence, live or finished."""

    position: Any  # int32 scalar, tokens so far
    sentences: Any  # int32 (B,), the place of each sentence in the caller's batch
    limits: Any  # int32 (B,), the most tokens of each
    alpha: Any  # float32 (B,), exponent of the length penalty
    prefix: Any  # int32 (B, P), how each hypothesis must begin, padded with 0
    tokens: Any  # int32 (B, K), the last of each hypothesis
    ids: Any  # int32 (B, K, L)
    lengths: Any  # int32 (B, K)
    log_probs: Any  # float32 (B, K); IMPOSSIBLE in a place that holds no hypothesis
    bonus: Any  # float32 (B, K), added to the score of a finished hypothesis
    finished: Any  # bool (B, K)
    done: Any  # bool (B,), whether no live hypothesis can be a result any more
    cache: Any

    @property
    def live(self):
        """The hypotheses that can still be among the results: bool (B, K)."""
        possible = self.log_probs > IMPOSSIBLE / 2
        over = ops.logical_or(self.finished, ops.expand_dims(self.done, 1))
        return ops.logical_and(possible, ops.logical_not(over))


def start_state(start_ids, cache, *, limits, alpha, prefix, beam_size, room) -> BeamState:
    """One hypothesis of no tokens a sentence, and K - 1 free places."""
    batch_size = ops.shape(start_ids)[0]
    zeros = ops.zeros((batch_size, beam_size), "int32")
    free = ops.arange(beam_size) > 0  # (K,)
    log_probs = ops.zeros_like(zeros, "float32") + ops.where(free, IMPOSSIBLE, 0.0)
    return BeamState(
        position=ops.convert_to_tensor(0, "int32"),
        sentences=ops.arange(batch_size, dtype="int32"),
        limits=limits,
        alpha=alpha,
        prefix=zeros[:, :0] if prefix is None else ops.cast(prefix, "int32"),
        tokens=zeros + ops.expand_dims(start_ids, 1),
        ids=ops.zeros((batch_size, beam_size, room), "int32"),
        lengths=zeros,
        log_probs=log_probs,
        bonus=ops.zeros_like(log_probs),
        finished=ops.zeros_like(zeros, "bool"),
        done=ops.zeros_like(start_ids, "bool"),
        cache=cache,
    )


def next_state(state, log_probs, origins, tokens, end_id, bonus=None) -> BeamState:
    """The state after one more token of each hypothesis, its cache aside.

    Args:
        state: `BeamState`.
        log_probs: float32 (B, K), of the hypotheses with their new tokens.
        origins: int32 (B, K), which hypothesis of its sentence each continues.
        tokens: int32 (B, K), the new ones.
        end_id: the token that ends a hypothesis.
        bonus: float32 (B, K), what a hypothesis that ends now adds to its score; None for nothing.

    Returns:
        A `BeamState`.
    """
    old = state.finished, state.lengths, state.bonus, state.ids
    finished, lengths, old_bonus, ids = (at_columns(x, origins) for x in old)
    length = state.position + 1
    ends = ops.logical_and(tokens == end_id, log_probs > IMPOSSIBLE / 2)
    ends = ops.logical_or(ends, ops.expand_dims(length >= state.limits, 1))  # (B, K)
    here = ops.arange(ops.shape(ids)[2]) == state.position  # (L,)
    return state._replace(
        position=length,
        tokens=tokens,
        ids=ops.where(here, ops.expand_dims(tokens, 2), ids),
        lengths=ops.where(finished, lengths, length),
        log_probs=log_probs,
        bonus=old_bonus if bonus is None else ops.where(finished, old_bonus, bonus),
        finished=ops.logical_or(finished, ends),
    )


def resized(state, rows, room, resize_cache) -> BeamState:
    """The state of the sentences at `rows`, with room for `room` tokens."""
    missing = room - ops.shape(state.ids)[2]
    state = state._replace(ids=ops.pad(state.ids, ((0, 0), (0, 0), (0, missing))))
    return take_sentences(state, rows)._replace(cache=resize_cache(state.cache, rows, room))


def scores_of(state):
    """`log_prob / length_penalty + bonus` of each hypothesis: (B, K)."""
    penalty = penalty_of(state.lengths, ops.expand_dims(state.alpha, 1))
    return state.log_probs / penalty + state.bonus
