"""One layer of the decoder: right half of the paper's figure 1, or that of a language model."""

from functools import partial
from typing import Unpack

import keras
from keras import ops

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
class DecoderLayer(KerasNames, LowRankAdaptation, keras.layers.Layer):
    """Causal self-attention, attention to the encoder's output, then a feed-forward network.

    "Attention Is All You Need", section 3.1. Each sub-layer is in a residual connection. Without
    cross-attention it is the layer of a language model, which has no encoder.

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
        rotary: whether positions turn queries and keys of self-attention.
        use_bias: whether attention and the feed-forward network have biases; a gated one has none.
        cross_attention: whether there is an encoder to attend to.

    Call arguments:
        x: tensor (B, T, D).
        encoder_output: tensor (B, S, D), or the `Memory` that `cross_attention.project_memory`
            returns for it; None without cross-attention.
        padding_mask: boolean (B, T), True at real target tokens.
        source_padding_mask: boolean (B, S), True at real source tokens. Masks that Keras carries
            with `x` and `encoder_output` hide positions as well.
        attention_mask: boolean (B, T, T), or with a cache (B, T, L), True = may attend; any of the
            three sizes may be 1. It replaces the causal mask, but not `padding_mask`.
        position_ids: integers (T,) or (B, T), the positions for `rotary`; by default they continue
            after the cache.
        cache: a `KVCache` of earlier positions, for a step of a search.
        scores: a `ScoreRecorder`, which gets the scores of both kinds of attention.
        training: whether dropout is applied; Keras passes it on to the layers inside.

    Returns:
        Tensor (B, T, D).

    Raises:
        ValueError: for a width, a number of heads or a rate out of range; when called, if
            `encoder_output` is missing, or given to a layer without cross-attention, or for a mask
            of floats or of too few axes.

    Example:
        >>> layer = DecoderLayer(d_model=8, num_heads=2, d_ff=32)
        >>> ops.shape(layer(np.ones((1, 3, 8)), np.ones((1, 5, 8))))
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
        cross_attention: bool = True,
        **kwargs: Unpack[KerasOptions],
    ):
        # Otherwise Keras would cast a `Memory` in every step, if sub-layers have another dtype.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        keep_arguments(self, locals())
        check_rate("attention_dropout", attention_dropout)
        check_rate("feed_forward_dropout", feed_forward_dropout)
        options = {"use_bias": use_bias, "dtype": self.dtype_policy}
        attention = partial(MultiHeadAttention, d_model, num_heads, dropout=attention_dropout)
        residual = partial(Residual, dropout, norm_first, norm, dtype=self.dtype_policy)
        self.self_attention = attention(rotary=rotary, name="self_attention", **options)
        self.self_attention_residual = residual(name="self_attention_residual")
        self.cross_attention = self.cross_attention_residual = None
        if cross_attention:
            self.cross_attention = attention(name="cross_attention", **options)
            self.cross_attention_residual = residual(name="cross_attention_residual")
        self.feed_forward = FeedForward(
            d_model,
            d_ff,
            dropout=feed_forward_dropout,
            activation=activation,
            name="feed_forward",
            **options,
        )
        self.feed_forward_residual = residual(name="feed_forward_residual")

    def build(self, x_shape, encoder_output_shape=None):
        self.self_attention.build(x_shape)
        self.self_attention_residual.build(x_shape)
        if self.cross_attention is not None:
            self.cross_attention.build(x_shape, encoder_output_shape)
            self.cross_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    @takes_carried_masks("x", "encoder_output")
    def call(
        self,
        x,
        encoder_output=None,
        *,
        padding_mask=None,
        source_padding_mask=None,
        attention_mask=None,
        position_ids=None,
        cache=None,
        scores=None,
        **carried,
    ):
        of_source = carried.pop("encoder_output_mask", None)
        masks = {"padding_mask": padding_mask, "attention_mask": attention_mask}
        self._check_call(encoder_output, attention_mask)
        x = self.self_attention_residual(
            ops.cast(x, self.compute_dtype),
            sublayer=lambda x: attend(
                self.self_attention,
                x,
                attention_mask=all_masks(carried, **masks),
                use_causal_mask=attention_mask is None,
                position_ids=position_ids,
                cache=cache,
                record=scores and scores.self_attention,
            ),
        )  # (B, T, D)
        if self.cross_attention is not None:
            x = self.cross_attention_residual(
                x,
                sublayer=lambda x: attend(
                    self.cross_attention,
                    x,
                    encoder_output,
                    attention_mask=all_masks(of_source, source_padding_mask=source_padding_mask),
                    record=scores and scores.cross_attention,
                ),
            )  # (B, T, D)
        return self.feed_forward_residual(x, sublayer=self.feed_forward)  # (B, T, D)

    def _check_call(self, encoder_output, attention_mask):
        if (self.cross_attention is None) != (encoder_output is None):
            raise ValueError(
                "A DecoderLayer reads encoder_output if and only if cross_attention is True, but "
                f"cross_attention is {self.cross_attention is not None} and encoder_output is "
                f"{'missing' if encoder_output is None else 'given'}; change one of them."
            )
        if attention_mask is not None and len(attention_mask.shape) == 2:
            raise ValueError(
                "attention_mask must have three axes, (B, T, T), but has the shape "
                f"{tuple(attention_mask.shape)}; pass attention_mask[None] for one of queries and "
                "keys, or padding_mask for one of real tokens."
            )

    def compute_output_shape(self, x_shape, encoder_output_shape=None):
        return tuple(x_shape)

    def get_config(self):
        return {**super().get_config(), **config_of(self)}
