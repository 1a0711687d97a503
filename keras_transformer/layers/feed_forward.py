"""The position-wise network of the paper's section 3.3."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_int, check_rate
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.linear import Linear

# The activation of the gate in each variant of Shazeer (2020) that has a name of its own.
GATES = {"reglu": "relu", "geglu": "gelu", "swiglu": "silu"}


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(keras.layers.Layer):
    """Two dense layers at each position: `FFN(x) = max(0, x W_1 + b_1) W_2 + b_2`.

    Attention mixes positions; this changes each of them alone ("Attention Is All You Need",
    equation 2). With "swiglu" it is `FFN(x) = (silu(x W) * (x V)) W_2`, without biases (Shazeer,
    2020, "GLU Variants Improve Transformer", equation 6), whose W and V are one matrix here; as
    many parameters as without a gate it has with two thirds of `d_ff`.

    Args:
        d_model: D, the width of input and output.
        d_ff: the width in between.
        dropout: rate applied in between, after the activation.
        activation: the activation, the paper's ReLU by default; or "swiglu", "geglu" or "reglu".

    Call arguments:
        x: tensor (B, T, D).
        step_weights: what `step_weights` returns, to use instead of reading the weights anew.
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
        self.activation = get_activation(activation)
        self.is_gated = self.activation in GATES
        options = {"use_bias": not self.is_gated, "dtype": self.dtype_policy}
        if self.is_gated:
            self.inner = Linear(2 * d_ff, name="inner", **options)
        else:
            self.inner = Linear(d_ff, activation=self.activation, name="inner", **options)
        self.outer = Linear(d_model, name="outer", **options)
        # A layer without weights has no path, by which a `DTypePolicyMap` would find its dtype.
        self.dropout_layer = Dropout(dropout, autocast=False, dtype=self.dtype_policy)

    def build(self, x_shape):
        if x_shape[-1] != self.d_model:
            raise ValueError(
                f"FeedForward expects inputs of width d_model={self.d_model}, but received the "
                f"shape {tuple(x_shape)}; project the input to that width first."
            )
        self.inner.build(x_shape)
        self.outer.build((*x_shape[:-1], self.d_ff))

    def call(self, x, step_weights=None, training=None):
        inner, outer = step_weights or (None, None)
        x = self.inner(x, step_weights=inner)  # (B, T, d_ff), with a gate (B, T, 2 d_ff)
        x = gated(x, self.activation) if self.is_gated else x  # (B, T, d_ff)
        x = self.dropout_layer(x, training=training)
        return self.outer(x, step_weights=outer)  # (B, T, D)

    def step_weights(self):
        """`Linear.step_weights` of both layers."""
        return [self.inner.step_weights(), self.outer.step_weights()]

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.d_model)

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "activation": serialize_activation(self.activation),
        }


def gated(x, activation):
    """`f(a) * b` of the halves (a, b) of the last axis, f the gate of the activation named."""
    gate, x = ops.split(x, 2, axis=-1)
    return keras.activations.get(GATES[activation])(gate) * x


def get_activation(activation):
    """The function of `keras.activations`, or the name of a gated activation itself."""
    is_gated = isinstance(activation, str) and activation in GATES
    return activation if is_gated else keras.activations.get(activation)


def serialize_activation(activation):
    """What `get_activation` makes it from."""
    return activation if isinstance(activation, str) else keras.activations.serialize(activation)
