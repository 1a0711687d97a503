"""Scaled dot-product attention.

Where all tensors have their heads first, (H, B, T, d_k), so have the results.
"""

import keras
from keras import ops

# What the score of a masked key loses: so much that where all keys are masked all scores are equal,
# and finite, so that their weights are defined.
MASKED_DEDUCTION = 1e30


def attention_weights(query, key, attention_mask=None):
    """How much each query attends to each key: `softmax(Q K^T / sqrt(d_k))` (paper, equation 1).

    Args:
        query: tensor (B, H, T, d_k).
        key: tensor (B, H, S, d_k).
        attention_mask: boolean, broadcastable to (B, H, T, S), True = may attend.

    Returns:
        Tensor (B, H, T, S), float32; each row sums to 1, also where every key is masked.
    """
    query = query * ops.cast(query.shape[-1] ** -0.5, query.dtype)
    scores = batched_product(query, key, transpose=True)  # (B, H, T, S)
    scores = ops.cast(scores, "float32")
    if attention_mask is not None:
        # `where(mask, scores, ...)` takes TensorFlow six times as long. A sum it would fuse with
        # the product, by a kernel that takes 400 times as long where the mask is (1, 1, T, S).
        scores = scores - (1.0 - ops.cast(attention_mask, "float32")) * MASKED_DEDUCTION
    if scores.shape[-1] == 1:  # a single key takes it all; Keras warns of a softmax over one
        return ops.ones_like(scores)
    return ops.softmax(scores, axis=-1)


def dot_product_attention(query, key, value, attention_mask=None, dropout=None):
    """`softmax(Q K^T / sqrt(d_k)) V` (paper, equation 1).

    Args:
        query: tensor (B, H, T, d_k).
        key: tensor (B, H, S, d_k).
        value: tensor (B, H, S, d_v).
        attention_mask: boolean, broadcastable to (B, H, T, S), True = may attend.
        dropout: function applied to the weights before they meet the values; None for none.

    Returns:
        The output (B, H, T, d_v) in the dtype of `value`, and the weights (B, H, T, S), float32,
        as they were before the dropout.
    """
    weights = attention_weights(query, key, attention_mask)
    applied = ops.cast(weights, value.dtype)
    applied = applied if dropout is None else dropout(applied)
    return batched_product(applied, value), weights


def batched_product(x, y, transpose=False):
    """`x y`, or `x y^T`, of each head.

    Of a single query in float32, as in a greedy search, TensorFlow's second kernel is two or three
    times as fast as the usual one, of oneDNN, which is faster everywhere else.

    Args:
        x: tensor (B, H, T, M).
        y: tensor (B, H, M, N), or (B, H, N, M) with `transpose`.
        transpose: whether the last two axes of `y` change places.

    Returns:
        Tensor (B, H, T, N).
    """
    dtypes = {keras.backend.standardize_dtype(tensor.dtype) for tensor in (x, y)}
    of_one_query = x.shape[2] == 1 and dtypes == {"float32"}
    if of_one_query and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.float32, adj_y=transpose)
    return ops.matmul(x, ops.transpose(y, (0, 1, 3, 2)) if transpose else y)


def fused_attention(query, key, value, attention_mask=None):
    """The output of `dot_product_attention` alone, by the backend's fused kernel if it has one.

    Such a kernel (Dao et al., 2022, "FlashAttention") never writes the weights (B, H, T, S) to
    memory. Keras takes it where device, dtype and shapes allow, and the plain formula elsewhere.

    Args:
        query: tensor (B, H, T, d_k).
        key: tensor (B, H, S, d_k).
        value: tensor (B, H, S, d_k).
        attention_mask: boolean, broadcastable to (B, 1, T, S), True = may attend.

    Returns:
        Tensor (B, H, T, d_k).
    """
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    mask = None
    if attention_mask is not None:
        shape = attention_mask.shape[0], 1, query.shape[1], key.shape[1]
        # cuDNN's kernel refuses a mask of one row for all queries.
        mask = ops.broadcast_to(attention_mask, shape)  # (B, 1, T, S)
    output = ops.dot_product_attention(query, key, value, mask=mask)  # (B, T, H, d_k)
    return ops.transpose(output, (0, 2, 1, 3))
