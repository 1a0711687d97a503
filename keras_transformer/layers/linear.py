"""Matrix products on the last axis."""

import keras
from keras import ops


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

    def call(self, inputs, training=None):
        outputs = linear(inputs, self.kernel, self.bias)
        return outputs if self.activation is None else self.activation(outputs)
