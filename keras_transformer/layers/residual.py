"""What surrounds every sub-layer: dropout, the residual sum and normalization."""

import keras

from keras_transformer.checks import check_choice, check_rate
from keras_transformer.layers.arguments import config_of, keep_arguments
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import NORMS, make_norm


@keras.saving.register_keras_serializable(package="keras_transformer")
class Residual(keras.layers.Layer):
    """Adds a sub-layer's output to its input.

    Post-norm, the paper's form (section 5.4), is `Norm(x + Dropout(Sublayer(x)))`. Pre-norm
    (`norm_first=True`) is `x + Dropout(Sublayer(Norm(x)))` and trains deep stacks without warm-up.
    Use it inside a layer that holds the sub-layer: in a functional model Keras would not find the
    sub-layer's weights.

    Args:
        dropout: rate applied to the sub-layer's output.
        norm_first: whether to normalize the sub-layer's input instead of the sum.
        norm: a key of `NORMS`.

    Call arguments:
        x: tensor (B, T, D), the sub-layer's input.
        sublayer: function of a tensor (B, T, D) to another.
        training: whether dropout is applied; Keras passes it on to the layers inside.

    Returns:
        Tensor (B, T, D).

    Raises:
        ValueError: if the rate is outside [0, 1), or `NORMS` has no such norm.

    Example:
        >>> residual, sublayer = Residual(dropout=0.1), keras.layers.Dense(8)
        >>> ops.shape(residual(np.ones((1, 3, 8)), sublayer=sublayer))
        (1, 3, 8)
    """

    def __init__(self, dropout=0.0, norm_first=False, norm="layer_norm", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        keep_arguments(self, locals())
        check_rate("dropout", dropout)
        self.norm_first = norm_first
        self.norm = make_norm(check_choice("norm", norm, NORMS), "norm", self.dtype_policy)
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape):
        self.norm.build(x_shape)

    def call(self, x, *, sublayer):
        if self.norm_first:
            return x + self.dropout_layer(sublayer(self.norm(x)))
        return self.norm(x + self.dropout_layer(sublayer(x)))

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)

    def get_config(self):
        return {**super().get_config(), **config_of(self)}
