"""Scaled dot-product attention (paper, section 3.2.1)."""

from collections.abc import Callable

from keras import ops

from keras_transformer._typing import Tensor
from keras_transformer.backend import matmul_by_head

# What the score of a hidden key loses. Where all keys are hidden all scores are equal, and finite,
# so that their softmax is defined.
HIDDEN = 1e30


def attention_scores(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
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
        # TensorFlow takes six times as long for `where(mask, logits, ...)`.
        logits = logits - (1.0 - ops.cast(mask, "float32")) * HIDDEN
    if logits.shape[-1] == 1:  # a single key takes it all; Keras warns of a softmax over one
        return ops.ones_like(logits)
    return ops.softmax(logits, axis=-1)


def dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: Callable | None = None,
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
