"""Positions as rotations of queries and keys."""

import numpy as np
from keras import ops


def rotate(x, position_ids=None, first=0):
    """Turns each pair of numbers in a vector by an angle proportional to the vector's position.

    The pair (a, b) at columns 2i and 2i+1 of a vector at position m becomes
    `(a cos - b sin, b cos + a sin)`, with the angle `m * 10000^(-2i/d)` of the sinusoids. The
    product of a query at m and a key at n then depends only on `m - n`: attention sees how far
    apart two tokens are, but not where they are. Su et al. (2021), "RoFormer: Enhanced Transformer
    with Rotary Position Embedding", equation 34.

    Args:
        x: queries or keys, tensor (B, H, T, d), d even.
        position_ids: integers (T,) or (B, T); `first`, `first + 1`, ... by default.
        first: integer scalar, the position of the first vector.

    Returns:
        Tensor (B, H, T, d) in the dtype of `x`, computed in float32.

    Example:
        >>> x = np.array([[[[1.0, 0.0]]]], "float32")
        >>> print(np.array(rotate(x, np.array([1]))).round(2))  # by one radian
        [[[[0.54 0.84]]]]
    """
    shape, width = ops.shape(x), x.shape[-1]
    column = np.arange(width)
    frequencies = (10000.0 ** (-(column - column % 2) / width)).astype("float32")  # (d,)
    if position_ids is None:
        position_ids = ops.arange(shape[2]) + first  # (T,)
    position_ids = ops.cast(position_ids, "float32")
    if len(position_ids.shape) == 2:
        position_ids = ops.expand_dims(position_ids, 1)  # (B, 1, T)
    positions = ops.expand_dims(position_ids, -1)  # (T, 1) or (B, 1, T, 1)
    angles = positions * frequencies  # (T, d) or (B, 1, T, d)
    sines = ops.sin(angles) * np.where(column % 2 == 0, -1, 1).astype("float32")
    x_float = ops.cast(x, "float32")
    pairs = ops.reshape(x_float, (*shape[:-1], width // 2, 2))  # (B, H, T, d/2, 2)
    swapped = ops.reshape(ops.flip(pairs, axis=-1), shape)  # (b, a) in place of (a, b)
    return ops.cast(x_float * ops.cos(angles) + swapped * sines, x.dtype)
