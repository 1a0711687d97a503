"""How hypotheses of a beam go on: what each offers, and what is chosen of all that."""

from keras import ops

from keras_transformer.decoding.gather import rows_of
from keras_transformer.decoding.prefix import force_prefix
from keras_transformer.decoding.search_result import IMPOSSIBLE
from keras_transformer.decoding.top_k import allowed_top_k


def live_rows(state):
    """Where among the B * K hypotheses those stand that can still win: int32 (R,)."""
    (rows,) = ops.nonzero(ops.reshape(state.live, (-1,)))
    return ops.cast(rows, "int32")


def continuations(state, logits, rules, rows=None):
    """The best k <= K tokens after each hypothesis, and the log-probabilities they lead to.

    A finished hypothesis is followed by padding, at no cost; one inside its prefix by the next
    token of that alone; one that cannot win by nothing that is possible.

    Args:
        state: `BeamState`.
        logits: tensor (R, V).
        rules: `Rules`.
        rows: int32 (R,), the hypotheses that the logits follow, all that are live; by default all
            B * K, in their order.

    Returns:
        Log-probabilities and tokens (B, K, k).
    """
    beam_size, room = state.ids.shape[1], ops.shape(state.ids)[2]
    logits = ops.cast(logits, "float32")
    k = min(beam_size, logits.shape[-1])
    ids = ops.reshape(state.ids, (-1, room))  # (B * K, L)
    prefix = state.prefix
    if prefix.shape[1] != 0:
        prefix = ops.repeat(prefix, beam_size, axis=0)  # (B * K, P)
        prefix = prefix if rows is None else rows_of(prefix, rows)  # (R, P)
    ids = ids if rows is None else rows_of(ids, rows)  # (R, L)
    top_logits, tokens, log_sum = allowed_top_k(logits, k, *rules.forbidden(logits, ids, state))
    top_logits, tokens = force_prefix(prefix, state.position, logits, top_logits, tokens)
    log_probs = top_logits - log_sum  # (R, k)
    log_probs = ops.where(ops.isfinite(log_probs), log_probs, IMPOSSIBLE)
    if rows is not None:
        log_probs, tokens = (in_place_of(x, rows, state) for x in (log_probs, tokens))
    log_probs, tokens = (ops.reshape(x, (-1, beam_size, k)) for x in (log_probs, tokens))
    live = ops.expand_dims(state.live, 2)  # (B, K, 1)
    cost = ops.where(ops.expand_dims(state.finished, 2), 0.0, IMPOSSIBLE)
    log_probs = ops.expand_dims(state.log_probs, 2) + ops.where(live, log_probs, cost)
    return ops.maximum(log_probs, IMPOSSIBLE), ops.where(live, tokens, 0)


def in_place_of(x, rows, state):
    """`x` (R, k) in its rows of a tensor (B * K, k), and 0 in the others."""
    size = ops.shape(state.tokens)[0] * state.tokens.shape[1]  # B * K
    zeros = ops.zeros((size, x.shape[1]), x.dtype)
    return ops.scatter_update(zeros, ops.expand_dims(rows, 1), x)


def best_continuations(state, log_probs, tokens):
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
    flat = chosen + sentence * (beam_size * k)  # (B, K)
    log_probs, tokens = (rows_of(ops.reshape(x, (-1,)), flat) for x in (log_probs, tokens))
    rows = ops.reshape(chosen // k + sentence * beam_size, (-1,))  # (B * K,)
    return log_probs, rows, tokens
