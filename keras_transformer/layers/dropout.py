"""Dropout."""

import keras
from keras import ops


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


def random_bytes(shape, seed_generator):
    """Independent and uniform bytes, a uint8 tensor of a shape; 32 random bits make four."""
    if keras.backend.backend() == "jax":
        import jax

        # `jax.random.bits` works out 32 bits for each byte.
        key = ops.tile(seed_generator.next(), 2)  # (4,)
        return jax.lax.rng_bit_generator(key, shape, "uint8")[1]
    if keras.backend.backend() != "tensorflow":
        return ops.cast(keras.random.randint(shape, 0, 256, seed=seed_generator), "uint8")
    import tensorflow as tf

    seed = tf.cast(seed_generator.next() % (2**31 - 1), "int32")
    count = tf.reduce_prod(shape)
    words = tf.random.stateless_uniform([(count + 3) // 4], seed, None, None, tf.uint32)
    flat = tf.reshape(tf.bitcast(words, tf.uint8), [-1])
    return tf.reshape(flat[:count], shape)
