"""One layer of the encoder: left half of the paper's figure 1."""

from functools import partial
from typing import Unpack

import keras

from keras_transformer.checks import check_rate
from keras_transformer.keras_names import KerasNames
from keras_transformer.layers.arguments import config_of, keep_arguments
from keras_transformer.layers.attention_memory import attend
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.low_rank import LowRankAdaptation
from keras_transformer.layers.masks import all_masks, takes_carried_masks
from keras_transformer.layers.multi_head_attention import MultiHeadAttention
from keras_transformer.layers.residual import Residual
from keras_transformer.type_hints import Elementwise, KerasOptions


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderLayer(KerasNames, LowRankAdaptation, keras.layers.Layer):
    """Self-attention, then a feed-forward network, each in a residual connection.

    "Attention Is All You Need", section 3.1. It is post-norm, as in the paper. With
    `norm_first=True`, normalize the output of a stack once more, as `Encoder` does.

    Args:
        d_model: D, the width; a multiple of `num_heads`.
        num_heads: H.
        d_ff: the width inside the feed-forward network.
        dropout: rate applied to the output of each sub-layer.
        attention_dropout, feed_forward_dropout: rates applied to the attention scores and inside
            the feed-forward network.
        activation: activation of the feed-forward network; see `FeedForward`.
        norm_first: pre-norm instead of post-norm.
        norm: "layer_norm" or "rms_norm".
        rotary: whether positions turn queries and keys; see `MultiHeadAttention`.
        use_bias: whether attention and the feed-forward network have biases; a gated one has none.

    Call arguments:
        x: tensor (B, S, D).
        padding_mask: boolean (B, S), True at real tokens. A mask that Keras carries with `x`, from
            `keras.layers.Embedding(mask_zero=True)`, hides positions as well.
        scores: a `ScoreRecorder`, which gets the attention scores (B, H, S, S).
        training: whether dropout is applied; Keras passes it on to the layers inside.

    Returns:
        Tensor (B, S, D).

    Raises:
        ValueError: for a width, a number of heads or a rate out of range, or a mask of floats.

    Example:
        >>> ops.shape(EncoderLayer(d_model=8, num_heads=2, d_ff=32)(np.ones((1, 3, 8))))
        (1, 3, 8)
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        activation: str | Elementwise = "relu",
        norm_first: bool = False,
        norm: str = "layer_norm",
        rotary: bool = False,
        use_bias: bool = True,
        **kwargs: Unpack[KerasOptions],
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        keep_arguments(self, locals())
        check_rate("attention_dropout", attention_dropout)
        check_rate("feed_forward_dropout", feed_forward_dropout)
        policy = self.dtype_policy
        residual = partial(Residual, dropout, norm_first, norm, dtype=policy)
        self.self_attention = MultiHeadAttention(
            d_model,
            num_heads,
            dropout=attention_dropout,
            rotary=rotary,
            use_bias=use_bias,
            name="self_attention",
            dtype=policy,
        )
        self.feed_forward = FeedForward(
            d_model,
            d_ff,
            dropout=feed_forward_dropout,
            activation=activation,
            use_bias=use_bias,
            name="feed_forward",
            dtype=policy,
        )
        self.self_attention_residual = residual(name="self_attention_residual")
        self.feed_forward_residual = residual(name="feed_forward_residual")

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.self_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    @takes_carried_masks("x")
    def call(self, x, *, padding_mask=None, scores=None, **carried):
        x = self.self_attention_residual(
            x,
            sublayer=lambda x: attend(
                self.self_attention,
                x,
                attention_mask=all_masks(carried, padding_mask=padding_mask),
                record=scores and scores.self_attention,
            ),
        )  # (B, S, D)
        return self.feed_forward_residual(x, sublayer=self.feed_forward)  # (B, S, D)

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)

    def get_config(self):
        return {**super().get_config(), **config_of(self)}
