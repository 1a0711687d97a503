"""A sequence of vectors to one vector."""

from keras import ops


def masked_mean(x, padding_mask):
    """The mean over real positions.

    Args:
        x: tensor (B, S, D).
        padding_mask: boolean (B, S), True at real positions.

    Returns:
        Tensor (B, D) in the dtype of `x`; 0 without real positions.
    """
    real = ops.expand_dims(ops.cast(padding_mask, "bool"), -1)  # (B, S, 1)
    total = ops.sum(ops.where(real, ops.cast(x, "float32"), 0.0), axis=1)  # (B, D)
    count = ops.sum(ops.cast(real, "float32"), axis=1)  # (B, 1)
    return ops.cast(total / ops.maximum(count, 1.0), x.dtype)
