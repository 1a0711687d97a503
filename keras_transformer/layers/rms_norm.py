"""Normalization by the root mean square."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class RMSNorm(keras.layers.RMSNormalization):
    """`scale * x / sqrt(mean(x^2) + epsilon)` over the last axis, in float32.

    Layer normalization without the mean and the bias, as most language models since 2023 have it.
    Zhang and Sennrich (2019), "Root Mean Square Layer Normalization", equation 4. Args and call
    arguments are those of `keras.layers.RMSNormalization`, of the last axis.

    Example:
        >>> ops.shape(RMSNorm()(np.ones((1, 3, 4))))
        (1, 3, 4)
    """

    def call(self, x):
        x = ops.cast(x, "float32")
        mean_square = ops.mean(x * x, axis=-1, keepdims=True)
        normalized = x * ops.rsqrt(mean_square + self.epsilon)
        return ops.cast(normalized * ops.cast(self.scale, "float32"), self.compute_dtype)
