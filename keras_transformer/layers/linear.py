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
        kernel: W, tensor (D, E).
        bias: b, tensor (E,); None for none.

    Returns:
        Tensor (..., E).
    """
    flat = x if len(x.shape) == 2 else ops.reshape(x, (-1, kernel.shape[0]))  # (rows, D)
    y = ops.matmul(flat, kernel)  # (rows, E)
    y = y if bias is None else ops.add(y, bias)
    return y if len(x.shape) == 2 else ops.reshape(y, (*leading_shape(x), kernel.shape[1]))


# Of the columns of a block, and of the rows up to which a product of blocks is the faster one.
BLOCK_WIDTH, FEW_ROWS = 64, 32


def column_blocks(kernel):
    """The columns of a wide matrix in blocks, each of them contiguous in memory, for `product`.

    Args:
        kernel: W, tensor (D, V).

    Returns:
        Tensor (V / 64, D, 64); None where 64 does not divide V.
    """
    depth, columns = kernel.shape
    if columns % BLOCK_WIDTH != 0:
        return None
    return ops.transpose(ops.reshape(kernel, (depth, -1, BLOCK_WIDTH)), (1, 0, 2))


def product(x, kernel, blocks=None):
    """`x W` for a matrix too wide for a cache.

    With few rows, reading W is what takes the time: row by row that jumps through memory, unless it
    lies in blocks.

    Args:
        x: tensor (R, D).
        kernel: W, tensor (D, V).
        blocks: `column_blocks(kernel)`, or None.

    Returns:
        Tensor (R, V).
    """
    if blocks is None:
        return ops.matmul(x, kernel)

    def by_blocks():
        y = ops.matmul(ops.expand_dims(x, 0), blocks)  # (V / 64, R, 64)
        return ops.reshape(ops.transpose(y, (1, 0, 2)), (-1, kernel.shape[1]))

    return ops.cond(ops.shape(x)[0] <= FEW_ROWS, by_blocks, lambda: ops.matmul(x, kernel))


def leading_shape(x):
    """The axes of `x` before the last, for a reshape: numbers, if they are known but for one."""
    known = [-1 if size is None else size for size in x.shape[:-1]]
    return known if known.count(-1) <= 1 else ops.shape(x)[:-1]


@keras.saving.register_keras_serializable(package="keras_transformer")
class Linear(keras.layers.Dense):
    """Keras's dense layer, computed by `linear`.

    Args and call arguments are those of `keras.layers.Dense`.

    Example:
        >>> ops.shape(Linear(8)(np.ones((1, 3, 4))))
        (1, 3, 8)
    """

    def __init__(self, units, **kwargs):
        super().__init__(check_positive_int("units", units), **kwargs)  # Keras takes none of NumPy

    def call(self, inputs, training=None):
        outputs = linear(inputs, self.kernel, self.bias)
        return outputs if self.activation is None else self.activation(outputs)
