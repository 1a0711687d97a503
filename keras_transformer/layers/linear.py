"""Matrix products on the last axis."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_int


def linear(x, kernel, bias=None):
    """`x W + b` on the last axis, as one product of two matrices.

    Left to itself, TensorFlow multiplies a batch of matrices, and works out their shapes anew at
    every call; two matrices it multiplies and adds in one kernel.

    Args:
        x: tensor (..., D).
        kernel: W, tensor (D, E), or its `column_blocks`.
        bias: b, tensor (E,); None for none. Both may be `with_spare_columns`; so is the result.

    Returns:
        Tensor (..., E).
    """
    depth = kernel.shape[-2]
    flat = x if len(x.shape) == 2 else ops.reshape(x, (-1, depth))  # (rows, D)
    if len(kernel.shape) == 2:
        y = ops.matmul(flat, kernel)  # (rows, E)
    else:
        y = ops.matmul(ops.expand_dims(flat, 0), kernel)  # (E / w, rows, w)
        y = ops.concatenate(ops.unstack(y), axis=-1)  # (rows, E), faster than by a transpose
    y = y if bias is None else ops.add(y, bias)
    return y if len(x.shape) == 2 else ops.reshape(y, (*leading_shape(x), y.shape[-1]))


# Of the columns of a block, and of the rows, more than one, up to which blocks are faster.
BLOCK_WIDTH, FEW_ROWS = 64, 32


def column_blocks(kernel, width=BLOCK_WIDTH):
    """The columns of a matrix in blocks, each of them contiguous in memory.

    A product with few rows is as fast as the matrix can be read. Row by row that jumps through
    memory, unless the columns lie in blocks; oneDNN multiplies with those of 64 as they are.

    Args:
        kernel: W, tensor (D, E).
        width: w, the columns of a block.

    Returns:
        Tensor (E / w, D, w), E / w rounded up: the last block is filled up with zeros.
    """
    depth, columns = kernel.shape
    kernel = ops.pad(kernel, ((0, 0), (0, -columns % width)))
    return ops.transpose(ops.reshape(kernel, (depth, -1, width)), (1, 0, 2))


def product(x, kernel, blocks=None):
    """`x W` for a matrix of very many columns, by its blocks where there are few rows.

    With more rows, to put the columns of all blocks together takes longer than blocks save; a
    single row is multiplied by another kernel, which does not jump. Half of the blocks are a
    product of their own, which TensorFlow gives another thread.

    Args:
        x: tensor (R, D).
        kernel: W, tensor (D, V).
        blocks: `column_blocks(kernel)`, or None.

    Returns:
        Tensor (R, V).
    """
    if blocks is None:
        return ops.matmul(x, kernel)

    def columns_of(part):
        count, _, width = part.shape
        y = ops.matmul(ops.expand_dims(x, 0), part)  # (count, R, 64)
        return ops.reshape(ops.transpose(y, (1, 0, 2)), (-1, count * width))  # (R, count * 64)

    def by_blocks():
        half = blocks.shape[0] // 2
        parts = ops.split(blocks, [half]) if half else [blocks]
        y = ops.concatenate([columns_of(part) for part in parts], axis=1)
        return y[:, : kernel.shape[1]]  # (R, V)

    rows = ops.shape(x)[0]
    few = ops.logical_and(rows > 1, rows <= FEW_ROWS)
    return ops.cond(few, by_blocks, lambda: ops.matmul(x, kernel))


# Columns of zeros, how many, and from which width on.
SPARE_COLUMNS, NARROWEST_ROW = 32, 512


def with_spare_columns(x):
    """A matrix, or a bias, with columns of zeros after the last, if its rows need them.

    Where the rows of a matrix are a multiple of a kilobyte long, one column of all of them falls
    into a small part of a processor's cache, which is then read from memory again and again.

    Args:
        x: tensor (..., E).

    Returns:
        Tensor (..., E) or (..., E + 32).
    """
    columns = x.shape[-1]
    if columns < NARROWEST_ROW or columns % 256:
        return x
    return ops.pad(x, [(0, 0)] * (len(x.shape) - 1) + [(0, SPARE_COLUMNS)])


def without_spare_columns(x, columns):
    """The first `columns` of the last axis."""
    return x if x.shape[-1] == columns else x[..., :columns]


def leading_shape(x):
    """The axes of `x` before the last, for a reshape: numbers, if they are known but for one."""
    known = [-1 if size is None else size for size in x.shape[:-1]]
    return known if known.count(-1) <= 1 else ops.shape(x)[:-1]


@keras.saving.register_keras_serializable(package="keras_transformer")
class Linear(keras.layers.Dense):
    """Keras's dense layer, computed by `linear`.

    Args and call arguments are those of `keras.layers.Dense`, and one more.

    Call arguments:
        step_weights: what `step_weights` returns, as it is, in `column_blocks` or
            `with_spare_columns`, to use instead of reading the weights anew.

    Example:
        >>> ops.shape(Linear(8)(np.ones((1, 3, 4))))
        (1, 3, 8)
    """

    def __init__(self, units, **kwargs):
        super().__init__(check_positive_int("units", units), **kwargs)  # Keras takes none of NumPy

    def call(self, inputs, training=None, step_weights=None):
        outputs = linear(inputs, *(step_weights or (self.kernel, self.bias)))
        outputs = outputs if self.activation is None else self.activation(outputs)
        return without_spare_columns(outputs, self.units)

    def step_weights(self):
        """The kernel (D, E) and, if there is one, the bias (E,), in the compute dtype: a tuple."""
        weights = (self.kernel,) if self.bias is None else (self.kernel, self.bias)
        return tuple(ops.cast(weight, self.compute_dtype) for weight in weights)
