"""One layer of the decoder: right half of the paper's figure 1, or that of a language model."""

import keras
from keras import ops

from keras_transformer.checks import check_heads, check_positive_int, check_rate
from keras_transformer.layers.extras import WithExtras, as_tuple
from keras_transformer.layers.feed_forward import (
    FeedForward,
    get_activation,
    serialize_activation,
)
from keras_transformer.layers.masks import combine_masks
from keras_transformer.layers.multi_head_attention import MultiHeadAttention
from keras_transformer.layers.residual import Residual


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderLayer(WithExtras, keras.layers.Layer):
    """Causal self-attention, attention to the encoder's output, then a feed-forward network.

    "Attention Is All You Need", section 3.1; each sub-layer stands in a `Residual`. Without
    cross-attention it is the layer of a language model, which has no encoder.

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
        rotary: whether positions turn queries and keys of self-attention; see `rotate`.
        cross_attention: whether there is an encoder to attend to.

    Call arguments:
        x: tensor (B, T, D).
        encoder_output: tensor (B, S, D); None with `cache`, which already holds its projections,
            and without cross-attention.
        padding_mask: boolean (B, T), True at real target tokens.
        source_padding_mask: boolean (B, S), True at real source tokens.
        attention_mask: boolean, broadcastable to (B, T, L), replaces the causal mask, but not
            `padding_mask`: which cached keys each query may attend to.
        cache: a dict from `init_cache` or the last call.
        position: with `cache`, the index of the first query among the cached keys.
        positions: integers (T,) or (B, T), the places in the sequence by which `rotary` turns
            queries and keys; from `position` on by default.
        step_weights: with `cache`, what `step_weights` returns, to use instead of reading the
            weights anew.
        return_attention_scores: whether the attention weights are returned, too.
        training: whether dropout is applied.

    Returns:
        Tensor (B, T, D). With `return_attention_scores` followed by a dict of the weights "self"
        (B, H, T, T) and, with cross-attention, "cross" (B, H, T, S); with `cache` followed by the
        new cache.

    Raises:
        ValueError: for a width, a number of heads or a rate out of range; when called, if
            `encoder_output` is missing, or given to a layer without cross-attention.

    Example:
        >>> layer = DecoderLayer(d_model=8, num_heads=2, d_ff=32)
        >>> ops.shape(layer(np.ones((1, 3, 8)), np.ones((1, 5, 8))))
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
        cross_attention=True,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # else every call would cast the whole cache
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
        self.cross_attention = None
        if cross_attention:
            self.cross_attention = MultiHeadAttention(
                d_model, num_heads, dropout=attention_dropout, name="cross_attention", dtype=policy
            )
        self.feed_forward = FeedForward(
            d_model,
            d_ff,
            dropout=feed_forward_dropout,
            activation=self.activation,
            name="feed_forward",
            dtype=policy,
        )

        def residual(name):
            return Residual(dropout, norm_first, norm, name=f"{name}_residual", dtype=policy)

        self.self_attention_residual = residual("self_attention")
        self.cross_attention_residual = residual("cross_attention") if cross_attention else None
        self.feed_forward_residual = residual("feed_forward")

    def build(self, x_shape, encoder_output_shape=None):
        self.self_attention.build(x_shape)
        if self.cross_attention is not None:
            self.cross_attention.build(x_shape, encoder_output_shape)
            self.cross_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.self_attention_residual.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    def call(
        self,
        x,
        encoder_output=None,
        *,
        padding_mask=None,
        source_padding_mask=None,
        attention_mask=None,
        cache=None,
        position=None,
        positions=None,
        step_weights=None,
        return_attention_scores=False,
        training=None,
    ):
        if (self.cross_attention is None) != (encoder_output is None) and cache is None:
            raise ValueError(
                "A decoder layer is called with encoder_output if and only if it was made with "
                f"cross_attention=True, but that is {self.cross_attention is not None} and "
                f"encoder_output is {'missing' if encoder_output is None else 'given'}; change one."
            )
        step_weights = step_weights or {}
        x = ops.cast(x, self.compute_dtype)
        outputs = self.self_attention(
            self.self_attention_residual.prepare(x),
            attention_mask=combine_masks(padding_mask, attention_mask),
            use_causal_mask=attention_mask is None,
            cache=cache and cache["self"],
            position=position,
            positions=positions,
            step_weights=step_weights.get("self_attention"),
            return_attention_scores=return_attention_scores,
            training=training,
        )
        extras = {}  # of each kind of attention: the weights, the cache, if they are asked for
        y, *extras["self"] = as_tuple(outputs)
        x = self.self_attention_residual(x, y, training=training)  # (B, T, D)
        if self.cross_attention is not None:
            outputs = self.cross_attention(
                self.cross_attention_residual.prepare(x),
                encoder_output,
                attention_mask=source_padding_mask,
                cache=cache and cache["cross"],
                step_weights=step_weights.get("cross_attention"),
                return_attention_scores=return_attention_scores,
                training=training,
            )
            y, *extras["cross"] = as_tuple(outputs)
            x = self.cross_attention_residual(x, y, training=training)  # (B, T, D)
        y = self.feed_forward(
            self.feed_forward_residual.prepare(x),
            step_weights=step_weights.get("feed_forward"),
            training=training,
        )
        x = self.feed_forward_residual(x, y, training=training)  # (B, T, D)
        kinds = zip(*extras.values(), strict=True)
        dicts = [dict(zip(extras, kind, strict=True)) for kind in kinds]
        return (x, *dicts) if dicts else x

    def init_cache(self, encoder_output, batch_size, length, step_weights=None):
        """Room for `length` target keys, and the projections of the encoder's output.

        Args:
            encoder_output: tensor (B, S, D); None without cross-attention.
            batch_size: B.
            length: L, the number of target keys.
            step_weights: that of calls with this cache.

        Returns:
            A dict: "self", from `MultiHeadAttention.init_cache`, and, with cross-attention,
            "cross", from `MultiHeadAttention.compute_cache`.
        """
        cache = {"self": self.self_attention.init_cache(batch_size, length)}
        if self.cross_attention is not None:
            cache["cross"] = self.cross_attention.compute_cache(
                encoder_output, step_weights and step_weights["cross_attention"]
            )
        return cache

    def step_weights(self):
        """The `step_weights` of the sublayers: a dict with their names."""
        weights = {"self_attention": self.self_attention.step_weights()}
        if self.cross_attention is not None:
            weights["cross_attention"] = self.cross_attention.step_weights(is_cross=True)
        return {**weights, "feed_forward": self.feed_forward.step_weights()}

    def compute_output_shape(self, x_shape, encoder_output_shape=None):
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
            "cross_attention": self.cross_attention is not None,
        }
