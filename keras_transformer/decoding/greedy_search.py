"""The most probable token at every step."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.decoding.length_penalty import check_length_penalty
from keras_transformer.decoding.length_penalty import length_penalty as penalty_of
from keras_transformer.decoding.search_result import SearchResult
from keras_transformer.decoding.suppression import suppress


class GreedyState(NamedTuple):
    """The loop variables: one hypothesis a sentence."""

    position: Any  # int32 scalar, tokens so far
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
):
    """Extends each hypothesis by its most probable token until the end token.

    Args:
        step_fn: `step_fn(token_ids, cache, position) -> (logits, cache)` with ids (B,) and logits
            (B, V), such as `Transformer.decode_step`.
        start_ids: integers (B,), the token each hypothesis starts from.
        cache: nested structure of tensors that `step_fn` reads and returns anew.
        end_id: the token that ends a hypothesis.
        max_length: L, the most tokens of any hypothesis; an integer, or in a TensorFlow graph an
            integer scalar.
        max_lengths: integers (B,) of at least 1, the most tokens of each; `max_length` by default.
        length_penalty: alpha of the scores, which choose nothing here; see `length_penalty`.
        suppress_ids: tokens that are never chosen.

    Returns:
        A `SearchResult` with N = 1.

    Raises:
        ValueError: if `max_length` or `length_penalty` is out of range.

    Example:
        >>> def spell(token_ids, cache, position):  # 1, then 2, then the end token 3
        ...     return ops.one_hot(token_ids + 1, 4) * 9.0, cache
        >>> result = greedy_search(spell, ops.array([0]), (), end_id=3, max_length=5)
        >>> np.array(result.ids).tolist()
        [[[1, 2, 3, 0, 0]]]
    """
    check_length_penalty(length_penalty)
    check_max_length(max_length)
    start_ids = ops.cast(start_ids, "int32")
    limits = row_limits(start_ids, max_length, max_lengths)  # (B,)
    positions = ops.arange(max_length)  # (L,)

    def keep_searching(*state):
        return ops.logical_not(ops.all(GreedyState(*state).finished))

    def step(*state):
        state = GreedyState(*state)
        logits, cache = step_fn(state.tokens, state.cache, state.position)  # (B, V)
        logits = ops.cast(logits, "float32")
        allowed = suppress(logits, suppress_ids)
        chosen = ops.cast(ops.argmax(allowed, axis=-1), "int32")  # (B,)
        log_probs = ops.max(allowed, axis=-1) - ops.logsumexp(logits, axis=-1)
        here = ops.logical_and(
            ops.expand_dims(positions == state.position, 0),
            ops.logical_not(ops.expand_dims(state.finished, 1)),
        )  # (B, L)
        length = state.position + 1
        ends = ops.logical_or(chosen == end_id, length >= limits)
        return GreedyState(
            position=length,
            tokens=chosen,
            ids=ops.where(here, ops.expand_dims(chosen, 1), state.ids),
            lengths=ops.where(state.finished, state.lengths, length),
            log_probs=state.log_probs + ops.where(state.finished, 0.0, log_probs),
            finished=ops.logical_or(state.finished, ends),
            cache=cache,
        )

    batch_size = ops.shape(start_ids)[0]
    state = GreedyState(
        position=ops.convert_to_tensor(0, "int32"),
        tokens=start_ids,
        ids=ops.zeros((batch_size, max_length), "int32"),
        lengths=ops.zeros_like(start_ids),
        log_probs=ops.zeros_like(start_ids, "float32"),
        finished=ops.zeros_like(start_ids, "bool"),
        cache=cache,
    )
    state = GreedyState(*ops.while_loop(keep_searching, step, state))
    scores = state.log_probs / penalty_of(state.lengths, length_penalty)
    fields = (state.ids, state.lengths, scores, state.log_probs)
    return SearchResult(*(ops.expand_dims(field, 1) for field in fields))


def check_max_length(max_length) -> None:
    """Refuses an integer below 1; a tensor's value is not known here."""
    if isinstance(max_length, int) and max_length < 1:
        raise ValueError(f"max_length must be at least 1, but is {max_length}.")


def row_limits(start_ids, max_length, max_lengths):
    """The most tokens of each hypothesis: int32 (B,)."""
    limits = ops.zeros_like(start_ids) + max_length
    if max_lengths is None:
        return limits
    return ops.minimum(limits, ops.cast(max_lengths, "int32"))
