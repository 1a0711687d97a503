"""Picking from tensors at places that are known to be in range.

Keras's `take` and `take_along_axis` mind negative indices and broadcast shapes, some fifty
operations in a step of a beam search; with a single sentence, their number is what a step costs.
"""

import keras
from keras import ops


def rows_of(x, rows, axis=0):
    """`x[rows]`, or with `axis=1` `x[:, rows]`.

    Args:
        x: tensor (N, ...) or (M, N, ...).
        rows: integers of any shape, in [0, N).
        axis: that of N, 0 or 1.

    Returns:
        Tensor like `x`, with the shape of `rows` in place of N.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, rows, axis=axis)
    return ops.take(x, rows, axis=axis)


def at_columns(x, columns):
    """`x[r, columns[r]]` for each row r.

    Args:
        x: tensor (R, N, ...).
        columns: integers (R, k), in [0, N).

    Returns:
        Tensor (R, k, ...).
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, columns, axis=1, batch_dims=1)
    rows = ops.expand_dims(ops.arange(ops.shape(x)[0], dtype="int32"), 1)  # (R, 1)
    return rows_of(ops.reshape(x, (-1, *x.shape[2:])), columns + rows * ops.shape(x)[1])
