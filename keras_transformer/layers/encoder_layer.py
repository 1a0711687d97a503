"""One layer of the encoder: left half of the paper's figure 1."""

import keras

from keras_transformer.checks import check_heads, check_positive_int, check_rate
from keras_transformer.layers.extras import WithExtras, as_tuple
from keras_transformer.layers.feed_forward import (
    FeedForward,
    get_activation,
    serialize_activation,
)
from keras_transformer.layers.multi_head_attention import MultiHeadAttention
from keras_transformer.layers.residual import Residual


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderLayer(WithExtras, keras.layers.Layer):
    """Self-attention, then a feed-forward network, each in a `Residual`.

    "Attention Is All You Need", section 3.1. Post-norm as there; with `norm_first=True` the
    stack's output must be normalized once more, as `Encoder` does.

    Args:
        d_model: D, the width; a multiple of `num_heads`.
        num_heads: H.
        d_ff: the width inside the feed-forward network.
        dropout: rate applied to the output of each sub-layer.
        attention_dropout: rate applied to the attention weights.
        feed_forward_dropout: rate applied inside the feed-forward network.
        activation: activation of the feed-forward network; see `FeedForward`.
        norm_first: pre-norm instead of post-norm.
        norm: "layer_norm" or "rms_norm".
        rotary: whether positions turn queries and keys; see `rotate`.

    Call arguments:
        x: tensor (B, S, D).
        padding_mask: boolean (B, S), True at real tokens.
        step_weights: what `step_weights` returns, to use instead of reading the weights anew.
        return_attention_scores: whether the attention weights are returned, too.
        training: whether dropout is applied.

    Returns:
        Tensor (B, S, D); with `return_attention_scores` a pair with the weights (B, H, S, S).

    Raises:
        ValueError: for a width, a number of heads or a rate out of range.

    Example:
        >>> ops.shape(EncoderLayer(d_model=8, num_heads=2, d_ff=32)(np.ones((1, 3, 8))))
        (1, 3, 8)
    """

    def __init__(
        self,
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
        self.d_model, self.num_heads = check_heads(d_model, num_heads)
        self.d_ff = check_positive_int("d_ff", d_ff)
        self.dropout = check_rate("dropout", dropout)
        self.attention_dropout = check_rate("attention_dropout", attention_dropout)
        self.feed_forward_dropout = check_rate("feed_forward_dropout", feed_forward_dropout)
        self.activation = get_activation(activation)
        self.norm_first = norm_first
        policy = self.dtype_policy
        self.self_attention = MultiHeadAttention(
            d_model,
            num_heads,
            dropout=attention_dropout,
            rotary=rotary,
            name="self_attention",
            dtype=policy,
        )
        self.self_attention_residual = Residual(
            dropout, norm_first, norm, name="self_attention_residual", dtype=policy
        )
        self.feed_forward = FeedForward(
            d_model,
            d_ff,
            dropout=feed_forward_dropout,
            activation=self.activation,
            name="feed_forward",
            dtype=policy,
        )
        self.feed_forward_residual = Residual(
            dropout, norm_first, norm, name="feed_forward_residual", dtype=policy
        )

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.self_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    def call(
        self,
        x,
        padding_mask=None,
        step_weights=None,
        return_attention_scores=False,
        training=None,
    ):
        step_weights = step_weights or {}
        outputs = self.self_attention(
            self.self_attention_residual.prepare(x),
            attention_mask=padding_mask,
            step_weights=step_weights.get("self_attention"),
            return_attention_scores=return_attention_scores,
            training=training,
        )
        y, *scores = as_tuple(outputs)
        x = self.self_attention_residual(x, y, training=training)  # (B, S, D)
        y = self.feed_forward(
            self.feed_forward_residual.prepare(x),
            step_weights=step_weights.get("feed_forward"),
            training=training,
        )
        x = self.feed_forward_residual(x, y, training=training)  # (B, S, D)
        return (x, *scores) if scores else x

    def step_weights(self):
        """The `step_weights` of the sublayers: a dict with their names."""
        return {
            "self_attention": self.self_attention.step_weights(),
            "feed_forward": self.feed_forward.step_weights(),
        }

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "feed_forward_dropout": self.feed_forward_dropout,
            "activation": serialize_activation(self.activation),
            "norm_first": self.norm_first,
            "norm": self.self_attention_residual.norm_type,
            "rotary": self.self_attention.rotary,
        }
