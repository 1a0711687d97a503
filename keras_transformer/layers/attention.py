"""Scaled dot-product attention (paper, section 3.2.1)."""

import keras
from keras import ops

from keras_transformer.backend import HAS_FUSED_ATTENTION, fused_attention, matmul_by_head
from keras_transformer.layers.masks import as_mask
from keras_transformer.type_hints import Elementwise, Tensor, TensorLike

# The logit of a hidden key. It is finite, so that the softmax is defined where all are hidden.
HIDDEN = -1e30


def attention_scores(query: TensorLike, key: TensorLike, mask: TensorLike | None = None) -> Tensor:
    """How much each query attends to each key: `softmax(Q K^T / sqrt(d_k))` (paper, equation 1).

    Args:
        query: tensor (B, H, T, d_k).
        key: tensor (B, H, S, d_k).
        mask: boolean, broadcastable to (B, H, T, S), True = may attend.

    Returns:
        Tensor (B, H, T, S), float32. Each row sums to 1, also where every key is hidden.

    Example:
        >>> x = np.ones((1, 1, 2, 4), "float32")
        >>> print(ops.convert_to_numpy(attention_scores(x, x))[0, 0])
        [[0.5 0.5]
         [0.5 0.5]]
    """
    query = query * ops.cast(query.shape[-1] ** -0.5, query.dtype)
    logits = matmul_by_head(query, key, transpose_y=True)  # (B, H, T, S)
    logits = ops.cast(logits, "float32")
    if mask is not None:
        if keras.backend.standardize_dtype(mask.dtype) != "bool":
            mask = as_mask("mask", mask)
        logits = ops.where(mask, logits, HIDDEN)
    if logits.shape[-1] == 1:  # a single key takes it all; Keras warns of a softmax over one
        return ops.ones_like(logits)
    return ops.softmax(logits, axis=-1)


def dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    mask: TensorLike | None = None,
    dropout: Elementwise | None = None,
) -> tuple[Tensor, Tensor]:
    """`softmax(Q K^T / sqrt(d_k)) V` (paper, equation 1).

    Args:
        query: tensor (B, H, T, d_k).
        key: tensor (B, H, S, d_k).
        value: tensor (B, H, S, d_v).
        mask: boolean, broadcastable to (B, H, T, S), True = may attend.
        dropout: function applied to the scores before they meet the values; None for none.

    Returns:
        The output (B, H, T, d_v) in the dtype of `value`, and the scores (B, H, T, S), float32,
        before the dropout.

    Example:
        >>> x = np.ones((1, 1, 2, 4), "float32")
        >>> output, scores = dot_product_attention(x, x, 3 * x)
        >>> float(output[0, 0, 0, 0])
        3.0
    """
    scores = attention_scores(query, key, mask)
    dropped = ops.cast(scores, value.dtype)
    dropped = dropped if dropout is None else dropout(dropped)
    return matmul_by_head(dropped, value), scores


def attention(query, key, value, mask=None, *, needs_scores=False, dropout=None):
    """`dot_product_attention`, by the backend's fused kernel where there is one.

    Args:
        query, key, value, mask, dropout: as in `dot_product_attention`.
        needs_scores: whether the scores are wanted.

    Returns:
        The output (B, H, T, d_v), and the scores (B, H, T, S), or None if a kernel makes none.
    """
    if HAS_FUSED_ATTENTION and not needs_scores and dropout is None:
        return fused_attention(query, key, value, mask), None
    return dot_product_attention(query, key, value, mask, dropout)
