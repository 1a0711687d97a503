"""Turns a sequence of vectors into one vector."""

from keras import ops

from keras_transformer.layers.masks import as_mask
from keras_transformer.type_hints import Tensor, TensorLike


def masked_mean(x: TensorLike, padding_mask: TensorLike) -> Tensor:
    """Averages vectors over the real positions.

    Args:
        x: tensor (B, S, D).
        padding_mask: boolean (B, S), True at real positions.

    Returns:
        Tensor (B, D) in the dtype of `x`; 0 for a row without real positions.

    Raises:
        ValueError: for a mask of floats.

    Example:
        >>> x = np.array([[[1.0], [3.0], [100.0]]])
        >>> masked_mean(x, np.array([[True, True, False]])).numpy().tolist()
        [[2.0]]
    """
    real = ops.expand_dims(as_mask("padding_mask", padding_mask), -1)  # (B, S, 1)
    total = ops.sum(ops.where(real, ops.cast(x, "float32"), 0.0), axis=1)  # (B, D)
    count = ops.sum(ops.cast(real, "float32"), axis=1)  # (B, 1)
    return ops.cast(total / ops.maximum(count, 1.0), x.dtype)
