"""What surrounds every sub-layer: dropout, the residual sum and normalization."""

import keras

from keras_transformer.checks import check_choice, check_rate
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.layer_norm import LayerNorm
from keras_transformer.layers.rms_norm import RMSNorm

NORMS = {"layer_norm": LayerNorm, "rms_norm": RMSNorm}


@keras.saving.register_keras_serializable(package="keras_transformer")
class Residual(keras.layers.Layer):
    """Adds a sub-layer's output to its input.

    Post-norm, the paper's form (section 5.4): `LayerNorm(x + Dropout(Sublayer(x)))`.
    Pre-norm (`norm_first=True`): `x + Dropout(Sublayer(LayerNorm(x)))`, which trains deep stacks
    without warm-up. The sub-layer runs between the two halves: on `prepare(x)`, and its output
    goes with `x` into the call.

    Args:
        dropout: rate applied to the sub-layer's output.
        norm_first: whether to normalize the sub-layer's input instead of the sum.
        norm: "layer_norm" or "rms_norm".

    Call arguments:
        x: tensor (B, T, D), the sub-layer's input.
        sublayer_output: tensor (B, T, D).
        training: whether dropout is applied.

    Returns:
        Tensor (B, T, D).

    Raises:
        ValueError: if the rate is outside [0, 1), or for another norm.

    Example:
        >>> residual, x = Residual(dropout=0.1), np.ones((1, 3, 8))
        >>> ops.shape(residual(x, keras.layers.Dense(8)(residual.prepare(x))))
        (1, 3, 8)
    """

    def __init__(self, dropout=0.0, norm_first=False, norm="layer_norm", **kwargs):
        super().__init__(**kwargs)
        self.dropout = check_rate("dropout", dropout)
        self.norm_first = norm_first
        self.norm_type = check_choice("norm", norm, NORMS)
        self.norm = NORMS[norm](epsilon=1e-6, name="norm", dtype=self.dtype_policy)
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape, sublayer_output_shape=None):
        if not self.norm.built:
            self.norm.build(x_shape)

    def prepare(self, x):
        """The sub-layer's input: `x` itself, or normalized if `norm_first`."""
        return self.norm(x) if self.norm_first else x

    def call(self, x, sublayer_output, training=None):
        x = x + self.dropout_layer(sublayer_output, training=training)
        return x if self.norm_first else self.norm(x)

    def compute_output_shape(self, x_shape, sublayer_output_shape=None):
        return tuple(x_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "norm_first": self.norm_first,
            "norm": self.norm_type,
        }
