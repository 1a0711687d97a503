"""Scaled dot-product attention with its gradient written out, for training."""

from keras import ops

from keras_transformer.layers.dot_product_attention import (
    attention_weights,
    dot_product_attention,
)

# Queries from which on a gradient with fewer passes over the weights is faster than TensorFlow's,
# and two causal attentions of half of the queries faster than one.
LONG = 128


def attention_in_training(query, key, value, attention_mask=None, is_causal=False):
    """The output of `dot_product_attention`, worked out for speed where there are many queries.

    Where keys after a query are hidden, the first half of many queries leaves out the second half
    of the keys.

    Args:
        query: tensor (B, H, T, d_k).
        key: tensor (B, H, S, d_k).
        value: tensor (B, H, S, d_v).
        attention_mask: boolean, broadcastable to (B, H, T, S), True = may attend.
        is_causal: whether T is S and the mask, (1, 1, T, T) or (B, 1, T, T), hides keys after a
            query.

    Returns:
        Tensor (B, H, T, d_v). For a query that may attend to no key, the mean of some values.
    """
    length = ops.shape(query)[2]

    def short():
        return dot_product_attention(query, key, value, attention_mask)[0]

    def halves():
        cut = length // 2
        early = (rows(x, 0, cut) for x in (query, key, value))
        heads = [
            attend(*early, attention_mask[:, :, :cut, :cut]),  # (B, H, T/2, d_v)
            attend(rows(query, cut, length), key, value, attention_mask[:, :, cut:]),
        ]
        return ops.concatenate(heads, axis=2)

    def long():
        return halves() if is_causal else attend(query, key, value, attention_mask)

    if isinstance(length, int):
        return long() if length >= LONG else short()
    return ops.cond(length >= LONG, long, short)


def attend(query, key, value, attention_mask=None):
    """The output of `dot_product_attention`, with fewer passes over the weights in its gradient.

    With A the weights, O the output and G the gradient of O, that of the scores is
    `A * (G V^T - rowsum(G * O))`: the sum is over d_v numbers, and not over all keys (Dao et al.,
    2022, "FlashAttention", appendix B.2).
    """

    @ops.custom_gradient
    def attention(query, key, value):
        weights = ops.cast(attention_weights(query, key, attention_mask), value.dtype)
        output = ops.matmul(weights, value)  # (B, H, T, d_v)

        def gradient(*args, upstream=None):
            g = args[0] if upstream is None else upstream
            row_sums = ops.sum(ops.cast(g * output, "float32"), -1, keepdims=True)  # (B, H, T, 1)
            # Subtracted by the product, as one more column, which saves a pass.
            g_and_sums = ops.concatenate([g, -ops.cast(row_sums, g.dtype)], axis=-1)
            value_and_ones = ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)
            scores_gradient = weights * ops.matmul(g_and_sums, transposed(value_and_ones))
            scale = ops.cast(query.shape[-1] ** -0.5, g.dtype)
            return (
                ops.matmul(scores_gradient, key) * scale,  # (B, H, T, d_k)
                ops.matmul(transposed(scores_gradient), query * scale),  # (B, H, S, d_k)
                ops.matmul(transposed(weights), g),  # (B, H, S, d_v)
            )

        return output, gradient

    # In a branch, TensorFlow finds no gradient of some tensors that were made outside of it.
    return attention(*(ops.copy(x) for x in (query, key, value)))


def transposed(x):
    """(B, H, T, S) to (B, H, S, T)."""
    return ops.transpose(x, (0, 1, 3, 2))


def rows(x, start, end):
    """`x[:, :, start:end]`, of which TensorFlow has a slow gradient."""
    batch_size, num_heads, _, width = ops.shape(x)
    return ops.slice(x, (0, 0, start, 0), (batch_size, num_heads, end - start, width))
