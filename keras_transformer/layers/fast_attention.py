"""Attention by the fastest form for the case at hand; `layers/attention.py` has the formula."""

from keras import ops

from keras_transformer.backend import HAS_FUSED_ATTENTION
from keras_transformer.layers.attention import attention_scores, dot_product_attention

# Queries from which on `memory_efficient_attention` is faster than TensorFlow's own gradient, and
# two causal attentions of half of the queries are faster than one.
LONG = 128


def attention(
    query,
    key,
    value,
    mask=None,
    *,
    is_causal=False,
    needs_scores=False,
    dropout=None,
    training=False,
):
    """`dot_product_attention`, by the form that is fastest here.

    Args:
        query: tensor (B, H, T, d_k).
        key: tensor (B, H, S, d_k).
        value: tensor (B, H, S, d_v).
        mask: boolean, broadcastable to (B, H, T, S), True = may attend.
        is_causal: whether T is S and the mask, (1, 1, T, T) or (B, 1, T, T), hides the keys after
            each query.
        needs_scores: whether the scores are wanted.
        dropout: function applied to the scores before they meet the values; None for none.
        training: whether a gradient will be wanted.

    Returns:
        The output (B, H, T, d_v), and the scores (B, H, T, S), or None if they are not needed.
    """
    if needs_scores or dropout is not None:
        return dot_product_attention(query, key, value, mask, dropout)
    if HAS_FUSED_ATTENTION:
        return fused_attention(query, key, value, mask), None
    if not training:
        return dot_product_attention(query, key, value, mask)[0], None
    length = ops.shape(query)[2]

    def short():
        return dot_product_attention(query, key, value, mask)[0]

    def long():
        if is_causal:
            return causal_halves(query, key, value, mask)
        return memory_efficient_attention(query, key, value, mask)

    if isinstance(length, int):
        return (long() if length >= LONG else short()), None
    return ops.cond(length >= LONG, long, short), None


def fused_attention(query, key, value, mask=None):
    """The output alone, by the backend's fused kernel.

    Such a kernel (Dao et al., 2022, "FlashAttention") never writes the scores to memory. Keras
    takes it where device, dtype and shapes allow, and the formula elsewhere. Arguments and result
    are those of `dot_product_attention`.
    """
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    if mask is not None:
        # cuDNN's kernel refuses a mask of one row for all queries.
        mask = ops.broadcast_to(mask, (mask.shape[0], 1, query.shape[1], key.shape[1]))
    output = ops.dot_product_attention(query, key, value, mask=mask)  # (B, T, H, d_k)
    return ops.transpose(output, (0, 2, 1, 3))  # (B, H, T, d_k)


def causal_halves(query, key, value, mask):
    """The output alone. The first half of the queries leaves out the second half of the keys."""
    length = ops.shape(query)[2]
    cut = length // 2
    early = (slice_positions(x, 0, cut) for x in (query, key, value))
    late_query = slice_positions(query, cut, length)
    heads = [
        memory_efficient_attention(*early, mask[:, :, :cut, :cut]),  # (B, H, T/2, d_v)
        memory_efficient_attention(late_query, key, value, mask[:, :, cut:]),
    ]
    return ops.concatenate(heads, axis=2)  # (B, H, T, d_v)


def memory_efficient_attention(query, key, value, mask=None):
    """The output alone, with fewer passes over the scores in its gradient.

    With A the scores, O the output and G the gradient of O, that of the logits is
    `A * (G V^T - rowsum(G * O))`: the sum is over d_v numbers, and not over all keys (Dao et al.,
    2022, "FlashAttention", appendix B.2).
    """

    @ops.custom_gradient
    def attend(query, key, value):
        scores = ops.cast(attention_scores(query, key, mask), value.dtype)  # (B, H, T, S)
        output = ops.matmul(scores, value)  # (B, H, T, d_v)

        def gradient(*args, upstream=None):
            g = args[0] if upstream is None else upstream
            row_sums = ops.sum(ops.cast(g * output, "float32"), -1, keepdims=True)  # (B, H, T, 1)
            # The product subtracts them, as one more column, which saves a pass.
            g_and_sums = ops.concatenate([g, -ops.cast(row_sums, g.dtype)], axis=-1)
            value_and_ones = ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)
            logits_gradient = scores * ops.matmul(g_and_sums, transposed(value_and_ones))
            scale = ops.cast(query.shape[-1] ** -0.5, g.dtype)
            return (
                ops.matmul(logits_gradient, key) * scale,  # (B, H, T, d_k)
                ops.matmul(transposed(logits_gradient), query * scale),  # (B, H, S, d_k)
                ops.matmul(transposed(scores), g),  # (B, H, S, d_v)
            )

        return output, gradient

    # In a branch, TensorFlow finds no gradient of some tensors that were made outside of it.
    return attend(*(ops.copy(x) for x in (query, key, value)))


def transposed(x):
    """(B, H, T, S) to (B, H, S, T)."""
    return ops.transpose(x, (0, 1, 3, 2))


def slice_positions(x, start, end):
    """`x[:, :, start:end]`, whose gradient is slow on TensorFlow."""
    batch_size, num_heads, _, width = ops.shape(x)
    return ops.slice(x, (0, 0, start, 0), (batch_size, num_heads, end - start, width))
