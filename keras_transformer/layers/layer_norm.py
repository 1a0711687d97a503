"""Layer normalization."""

import keras
from keras import ops


def normalized(x, epsilon):
    """`(x - mean) / sqrt(variance + epsilon)` over the last axis.

    Args:
        x: tensor (..., D), float32.
        epsilon: keeps the divisor from 0.

    Returns:
        Tensor (..., D), and `1 / sqrt(variance + epsilon)`, (..., 1).
    """
    centred = x - ops.mean(x, axis=-1, keepdims=True)
    scale = ops.rsqrt(ops.mean(centred * centred, axis=-1, keepdims=True) + epsilon)
    return centred * scale, scale


def normalized_in_training(x, epsilon):
    """The first of `normalized`, with the gradient written out in few operations.

    With y the result and g its gradient, that of x is `(g - mean(g) - y mean(g y)) scale`.
    """

    @ops.custom_gradient
    def normalize(x):
        y, scale = normalized(x, epsilon)

        def gradient(*args, upstream=None):
            g = args[0] if upstream is None else upstream
            projection = y * ops.mean(g * y, axis=-1, keepdims=True)
            return (g - ops.mean(g, axis=-1, keepdims=True) - projection) * scale

        return y, gradient

    return normalize(x)


@keras.saving.register_keras_serializable(package="keras_transformer")
class LayerNorm(keras.layers.LayerNormalization):
    """`gamma * (x - mean) / sqrt(variance + epsilon) + beta` over the last axis, in float32.

    Ba et al. (2016), "Layer Normalization". Keras's layer with fewer operations on whole tensors.
    Args and call arguments are those of `keras.layers.LayerNormalization`, of the last axis, and
    `training`, in which only the gradient is worked out in another way.

    Raises:
        ValueError: for another axis than the last.

    Example:
        >>> ops.shape(LayerNorm()(np.ones((1, 3, 4))))
        (1, 3, 4)
    """

    def build(self, input_shape):
        axes = self.axis if isinstance(self.axis, (list, tuple)) else [self.axis]
        if [axis % len(input_shape) for axis in axes] != [len(input_shape) - 1]:
            raise ValueError(
                f"LayerNorm is over the last axis, but axis is {self.axis!r}; leave it at -1, or "
                "use keras.layers.LayerNormalization."
            )
        super().build(input_shape)

    def call(self, inputs, training=None):
        x = ops.cast(inputs, "float32")
        if training:
            x = normalized_in_training(x, self.epsilon)
        else:
            x, _ = normalized(x, self.epsilon)
        if self.gamma is not None:
            x = x * ops.cast(self.gamma, "float32")
        if self.beta is not None:
            x = x + ops.cast(self.beta, "float32")
        return ops.cast(x, self.compute_dtype)
