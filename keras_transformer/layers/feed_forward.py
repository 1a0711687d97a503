"""The position-wise network of the paper's section 3.3."""

from typing import Unpack

import keras
from keras import ops

from keras_transformer.checks import check_positive_int, check_rate
from keras_transformer.keras_names import KerasNames
from keras_transformer.layers.arguments import config_of, keep_arguments
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.low_rank import LowRankAdaptation
from keras_transformer.type_hints import Elementwise, KerasOptions

# The gate's activation in each variant that Shazeer (2020) names.
GATES = {"reglu": "relu", "geglu": "gelu", "swiglu": "silu"}


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(KerasNames, LowRankAdaptation, keras.layers.Layer):
    """Two dense layers at each position: `FFN(x) = max(0, x W_1 + b_1) W_2 + b_2`.

    Attention mixes positions; this network changes each one alone ("Attention Is All You Need",
    equation 2). With "swiglu" it is `FFN(x) = (silu(x W) * (x V)) W_2`, without biases (Shazeer,
    2020, "GLU Variants Improve Transformer", equation 6). W and V are one matrix here. With two
    thirds of `d_ff` it has as many parameters as the ungated network.

    Args:
        d_model: D, the width of input and output.
        d_ff: the width in between.
        dropout: rate applied in between, after the activation.
        activation: the activation, the paper's ReLU by default; or "swiglu", "geglu" or "reglu".
        use_bias: whether there are biases; a gated network has none.

    Call arguments:
        x: tensor (B, T, D).
        training: whether dropout is applied; Keras passes it on to the layers inside.

    Returns:
        Tensor (B, T, D).

    Raises:
        ValueError: if a width is below 1 or the rate outside [0, 1).

    Example:
        >>> ops.shape(FeedForward(d_model=8, d_ff=32)(np.ones((1, 3, 8))))
        (1, 3, 8)
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        dropout: float = 0.0,
        activation: str | Elementwise = "relu",
        use_bias: bool = True,
        **kwargs: Unpack[KerasOptions],
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        keep_arguments(self, locals())
        self.d_model = check_positive_int("d_model", d_model)
        self.d_ff = check_positive_int("d_ff", d_ff)
        check_rate("dropout", dropout)
        self.is_gated = isinstance(activation, str) and activation in GATES
        self.activation = activation if self.is_gated else keras.activations.get(activation)
        options = {"use_bias": use_bias and not self.is_gated, "dtype": self.dtype_policy}
        if self.is_gated:
            self.inner = Dense(2 * self.d_ff, name="inner", **options)
        else:
            self.inner = Dense(self.d_ff, activation=activation, name="inner", **options)
        self.outer = Dense(self.d_model, name="outer", **options)
        # In a bfloat16 export, a `DTypePolicyMap` looks layers up by path. Dropout has no path, so
        # autocast would give it the map's default, float32.
        self.dropout_layer = Dropout(dropout, autocast=False, dtype=self.dtype_policy)

    def build(self, x_shape):
        if x_shape[-1] != self.d_model:
            raise ValueError(
                f"FeedForward expects inputs of width d_model={self.d_model}, but received the "
                f"shape {tuple(x_shape)}; project the input to that width first."
            )
        self.inner.build(x_shape)
        self.outer.build((*x_shape[:-1], self.d_ff))

    def call(self, x):
        x = self.inner(x)  # (B, T, d_ff), with a gate (B, T, 2 d_ff)
        x = gated(x, self.activation) if self.is_gated else x  # (B, T, d_ff)
        return self.outer(self.dropout_layer(x))  # (B, T, D)

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.d_model)

    def get_config(self):
        return {**super().get_config(), **config_of(self)}


def gated(x, activation):
    """Returns `f(a) * b` for the halves a and b of the last axis, with the activation's gate f."""
    gate, x = ops.split(x, 2, axis=-1)
    return keras.activations.get(GATES[activation])(gate) * x
