"""Dropout."""

import keras
from keras import ops

from keras_transformer.backend import random_bytes


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(keras.layers.Dropout):
    """Zeroes each element with probability `rate` and divides the others by `1 - rate`.

    Srivastava et al. (2014), "Dropout: A Simple Way to Prevent Neural Networks from Overfitting".
    Keras draws 32 random bits per element, which on a CPU takes most of the time of dropout. This
    layer draws 8, and rounds the rate to a multiple of 1/256: up or down at random in each call,
    so that the mean is exact. It leaves rates above 255/256 and a `noise_shape` to Keras. Args and
    call arguments are those of `keras.layers.Dropout`.

    Example:
        >>> ops.shape(Dropout(0.1)(np.ones((1, 3, 4)), training=True))
        (1, 3, 4)
    """

    def call(self, inputs, training=None):
        if not training or self.rate == 0:
            return inputs
        if self.rate > 255 / 256 or self.noise_shape is not None:
            return super().call(inputs, training=training)
        drawn = keras.random.uniform((), seed=self.seed_generator)
        threshold = ops.minimum(ops.floor(self.rate * 256 + drawn), 255)
        kept = random_bytes(ops.shape(inputs), self.seed_generator) >= ops.cast(threshold, "uint8")
        scale = ops.cast(1 / (1 - self.rate), inputs.dtype)
        return inputs * (ops.cast(kept, inputs.dtype) * scale)
