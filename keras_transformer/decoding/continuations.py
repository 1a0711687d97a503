"""How hypotheses of a beam go on: what each offers, and what is chosen of all that."""

from keras import ops

from keras_transformer.decoding.prefix import force_prefix
from keras_transformer.decoding.search_result import IMPOSSIBLE
from keras_transformer.decoding.top_k import allowed_top_k
from keras_transformer.gather import at_columns, rows_of


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
        places = ops.cumsum(ops.cast(ops.reshape(state.live, (-1,)), "int32")) - 1  # (B * K,)
        places = ops.maximum(places, 0)  # of those before the first live one
        log_probs, tokens = rows_of(log_probs, places), rows_of(tokens, places)  # (B * K, k)
    log_probs, tokens = (ops.reshape(x, (-1, beam_size, k)) for x in (log_probs, tokens))
    live = ops.expand_dims(state.live, 2)  # (B, K, 1)
    cost = ops.where(ops.expand_dims(state.finished, 2), 0.0, IMPOSSIBLE)
    log_probs = ops.expand_dims(state.log_probs, 2) + ops.where(live, log_probs, cost)
    return ops.maximum(log_probs, IMPOSSIBLE), ops.where(live, tokens, 0)


def best_continuations(state, log_probs, tokens):
    """Chooses K of the K * k continuations; a finished hypothesis stays, once.

    Returns:
        Log-probabilities, the hypotheses of their sentence that they continue, and tokens: each
        (B, K).
    """
    beam_size, k = log_probs.shape[1:]
    finished = ops.expand_dims(state.finished, 2)  # (B, K, 1)
    stays = ops.arange(k) == 0  # (k,)
    rank = ops.where(finished, ops.where(stays, -IMPOSSIBLE, 4 * IMPOSSIBLE), log_probs)
    _, chosen = ops.top_k(ops.reshape(rank, (-1, beam_size * k)), beam_size)  # (B, K)
    chosen = ops.cast(chosen, "int32")
    flat = (ops.reshape(x, (-1, beam_size * k)) for x in (log_probs, tokens))  # (B, K * k)
    log_probs, tokens = (at_columns(x, chosen) for x in flat)  # (B, K)
    return log_probs, chosen // k, tokens


def rows_of_beams(origins):
    """Hypotheses of their sentences, (B, K), as rows among all hypotheses: int32 (B * K,)."""
    first = ops.arange(ops.shape(origins)[0], dtype="int32") * origins.shape[1]  # (B,)
    return ops.reshape(origins + ops.expand_dims(first, 1), (-1,))
