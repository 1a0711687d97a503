"""Dropout."""

import keras
from keras import ops

from keras_transformer.backend import random_bytes


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(keras.layers.Dropout):
    """Keeps each number with probability `1 - rate`, divided by it, and else makes it 0.

    Srivastava et al. (2014), "Dropout: A Simple Way to Prevent Neural Networks from Overfitting".
    Keras draws 32 random bits a number, which on a CPU is most of the time of dropout; here it is
    8. Not every rate is a multiple of 1/256: each call rounds it up or down at random, so that the
    mean is exact. A rate above 255/256, or a `noise_shape`, is left to Keras. Args and call
    arguments are those of `keras.layers.Dropout`.

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
