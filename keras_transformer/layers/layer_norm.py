"""Layer normalization."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class LayerNorm(keras.layers.LayerNormalization):
    """`gamma * (x - mean) / sqrt(variance + epsilon) + beta` over the last axis, in float32.

    Ba et al. (2016), "Layer Normalization". Keras's layer with fewer operations on whole tensors.
    Args and call arguments are those of `keras.layers.LayerNormalization`, of the last axis.

    Example:
        >>> ops.shape(LayerNorm()(np.ones((1, 3, 4))))
        (1, 3, 4)
    """

    def call(self, inputs):
        x = ops.cast(inputs, "float32")
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(centred * centred, axis=-1, keepdims=True)
        normalized = centred * ops.rsqrt(variance + self.epsilon)
        gamma, beta = (ops.cast(weight, "float32") for weight in (self.gamma, self.beta))
        return ops.cast(normalized * gamma + beta, self.compute_dtype)
