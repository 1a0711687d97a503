"""The position-wise network of the paper's section 3.3."""

import keras

from keras_transformer.layers.checks import check_positive_int, check_rate
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.linear import Linear


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(keras.layers.Layer):
    """Two dense layers at each position: `FFN(x) = max(0, x W_1 + b_1) W_2 + b_2`.

    Attention mixes positions; this changes each of them alone ("Attention Is All You Need",
    equation 2).

    Args:
        d_model: D, the width of input and output.
        d_ff: the width in between.
        dropout: rate applied in between, after the activation.
        activation: the activation, the paper's ReLU by default.

    Call arguments:
        x: tensor (B, T, D).
        training: whether dropout is applied.

    Returns:
        Tensor (B, T, D).

    Raises:
        ValueError: if a width is below 1 or the rate outside [0, 1).

    Example:
        >>> ops.shape(FeedForward(d_model=8, d_ff=32)(np.ones((1, 3, 8))))
        (1, 3, 8)
    """

    def __init__(self, d_model, d_ff, *, dropout=0.0, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.d_model = check_positive_int("d_model", d_model)
        self.d_ff = check_positive_int("d_ff", d_ff)
        self.dropout = check_rate("dropout", dropout)
        self.activation = keras.activations.get(activation)
        self.inner = Linear(d_ff, activation=self.activation, name="inner", dtype=self.dtype_policy)
        self.outer = Linear(d_model, name="outer", dtype=self.dtype_policy)
        # A layer without weights has no path, by which a `DTypePolicyMap` would find its dtype.
        self.dropout_layer = Dropout(dropout, autocast=False, dtype=self.dtype_policy)

    def build(self, x_shape):
        self.inner.build(x_shape)
        self.outer.build((*x_shape[:-1], self.d_ff))

    def call(self, x, training=None):
        x = self.dropout_layer(self.inner(x), training=training)  # (B, T, d_ff)
        return self.outer(x)  # (B, T, D)

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.d_model)

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "activation": keras.activations.serialize(self.activation),
        }
