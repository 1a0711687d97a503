"""The dense layer."""

import keras
from keras import ops

from keras_transformer.checks import check_bool, check_positive_int


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dense(keras.layers.Dense):
    """Keras's dense layer, `activation(x W + b)`, as one product of two matrices.

    For a 3-D input TensorFlow runs three operations; for two matrices it fuses them into one. Args
    and call arguments are those of `keras.layers.Dense`.

    Example:
        >>> ops.shape(Dense(8)(np.ones((1, 3, 4))))
        (1, 3, 8)
    """

    is_matrix = False  # whether others read its kernel, which must then stay as it is

    def __init__(self, units: int, **kwargs):
        # Keras refuses NumPy integers, and cannot save NumPy booleans.
        if "use_bias" in kwargs:
            kwargs["use_bias"] = check_bool("use_bias", kwargs["use_bias"])
        super().__init__(check_positive_int("units", units), **kwargs)

    def quantize(self, mode=None, type_check=True, config=None):
        if self.is_matrix:
            raise NotImplementedError(f"{self.name} is not quantized: the loss reads its kernel.")
        # Keras refuses subclasses, since they may compute something else. This one does not.
        super().quantize(mode, type_check=False, config=config)

    def call(self, inputs, training=None):
        if len(inputs.shape) == 2:
            return super().call(inputs, training=training)
        x = ops.reshape(inputs, (-1, inputs.shape[-1]))  # (B * T, D)
        x = super().call(x, training=training)  # (B * T, E)
        return ops.reshape(x, (*leading_shape(inputs), self.units))  # (B, T, E)


def leading_shape(x):
    """Returns the sizes of `x` but the last, for a reshape: with -1 for one that is unknown."""
    known = [-1 if size is None else size for size in x.shape[:-1]]
    return known if known.count(-1) <= 1 else ops.shape(x)[:-1]
