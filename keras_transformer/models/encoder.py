"""The encoder: a stack of `EncoderLayer`."""

import keras

from keras_transformer.checks import check_positive_int
from keras_transformer.layers.encoder_layer import EncoderLayer
from keras_transformer.layers.extras import WithExtras, as_tuple
from keras_transformer.layers.residual import NORMS


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(WithExtras, keras.layers.Layer):
    """`num_layers` encoder layers, one on another, over vectors of any origin.

    Args:
        num_layers: N.
        d_model: D, the width; a multiple of `num_heads`.
        num_heads: H.
        d_ff: the width inside the feed-forward networks.
        dropout: rate applied to the output of each sub-layer.
        attention_dropout: rate applied to the attention weights.
        feed_forward_dropout: rate applied inside the feed-forward networks.
        activation: activation of the feed-forward networks; see `FeedForward`.
        norm_first: pre-norm; the stack's output is then normalized once more.
        norm: "layer_norm" or "rms_norm".
        rotary: whether positions turn queries and keys of self-attention; see `rotate`.

    Call arguments:
        x: tensor (B, S, D).
        padding_mask: boolean (B, S), True at real positions.
        step_weights: a list of the `EncoderLayer.step_weights` of each layer, to use instead of
            reading the weights anew.
        return_attention_scores: whether the attention weights are returned, too.
        training: whether dropout is applied.

    Returns:
        Tensor (B, S, D); with `return_attention_scores` a pair with a list of N (B, H, S, S).

    Raises:
        ValueError: for a number, a width or a rate out of range.

    Example:
        >>> ops.shape(Encoder(num_layers=2, d_model=8, num_heads=2, d_ff=32)(np.ones((1, 3, 8))))
        (1, 3, 8)
    """

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        d_ff,
        *,
        dropout=0.1,
        attention_dropout=0.0,
        feed_forward_dropout=0.0,
        activation="relu",
        norm_first=False,
        norm="layer_norm",
        rotary=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_layers = check_positive_int("num_layers", num_layers)
        self.layers = [
            EncoderLayer(
                d_model,
                num_heads,
                d_ff,
                dropout=dropout,
                attention_dropout=attention_dropout,
                feed_forward_dropout=feed_forward_dropout,
                activation=activation,
                norm_first=norm_first,
                norm=norm,
                rotary=rotary,
                name=f"layer_{i}",
                dtype=self.dtype_policy,
            )
            for i in range(num_layers)
        ]
        self.final_norm = None
        if norm_first:
            self.final_norm = NORMS[norm](epsilon=1e-6, name="final_norm", dtype=self.dtype_policy)

    def build(self, x_shape):
        for layer in self.layers:
            layer.build(x_shape)
        if self.final_norm is not None:
            self.final_norm.build(x_shape)

    def call(
        self,
        x,
        padding_mask=None,
        step_weights=None,
        return_attention_scores=False,
        training=None,
    ):
        scores = []
        parts = zip(self.layers, step_weights or [None] * self.num_layers, strict=True)
        for layer, layer_step_weights in parts:
            outputs = layer(
                x,
                padding_mask=padding_mask,
                step_weights=layer_step_weights,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            x, *layer_scores = as_tuple(outputs)  # (B, S, D)
            scores += layer_scores
        x = x if self.final_norm is None else self.final_norm(x)
        return (x, scores) if return_attention_scores else x

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)

    def get_config(self):
        layer_config = self.layers[0].get_config()
        own_config = super().get_config()
        return {"num_layers": self.num_layers, **layer_config, **own_config}
