"""The decoder: a stack of `DecoderLayer`."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_int
from keras_transformer.layers.decoder_layer import DecoderLayer
from keras_transformer.layers.extras import WithExtras, as_tuple
from keras_transformer.layers.residual import NORMS


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(WithExtras, keras.layers.Layer):
    """`num_layers` decoder layers, one on another.

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
        cross_attention: whether there is an encoder to attend to; without one the stack is that of
            a language model.

    Call arguments:
        x: tensor (B, T, D).
        encoder_output: tensor (B, S, D); None with `cache`, and without cross-attention.
        padding_mask: boolean (B, T), True at real target tokens.
        source_padding_mask: boolean (B, S), True at real source tokens.
        attention_mask: boolean, broadcastable to (B, T, L), replaces the causal mask.
        cache: a list of one cache a layer, from `init_cache` or the last call.
        position: with `cache`, the index of the first query among the cached keys.
        positions: integers (T,) or (B, T), the places in the sequence by which `rotary` turns
            queries and keys; from `position` on by default.
        step_weights: with `cache`, a list of the `DecoderLayer.step_weights` of each layer, to use
            instead of reading the weights anew.
        return_attention_scores: whether the attention weights are returned, too.
        training: whether dropout is applied.

    Returns:
        Tensor (B, T, D). With `return_attention_scores` followed by a list of N dicts "self"
        (B, H, T, T) and, with cross-attention, "cross" (B, H, T, S); with `cache` followed by the
        new cache.

    Raises:
        ValueError: for a number, a width or a rate out of range.

    Example:
        >>> decoder = Decoder(num_layers=2, d_model=8, num_heads=2, d_ff=32)
        >>> ops.shape(decoder(np.ones((1, 3, 8)), np.ones((1, 5, 8))))
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
        cross_attention=True,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # else every call would cast the whole cache
        self.num_layers = check_positive_int("num_layers", num_layers)
        self.layers = [
            DecoderLayer(
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
                cross_attention=cross_attention,
                name=f"layer_{i}",
                dtype=self.dtype_policy,
            )
            for i in range(num_layers)
        ]
        self.final_norm = None
        if norm_first:
            self.final_norm = NORMS[norm](epsilon=1e-6, name="final_norm", dtype=self.dtype_policy)

    def build(self, x_shape, encoder_output_shape=None):
        for layer in self.layers:
            layer.build(x_shape, encoder_output_shape)
        if self.final_norm is not None:
            self.final_norm.build(x_shape)

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
        x = ops.cast(x, self.compute_dtype)
        extras = []
        none = [None] * self.num_layers
        parts = zip(self.layers, cache or none, step_weights or none, strict=True)
        for layer, layer_cache, layer_step_weights in parts:
            outputs = layer(
                x,
                encoder_output,
                padding_mask=padding_mask,
                source_padding_mask=source_padding_mask,
                attention_mask=attention_mask,
                cache=layer_cache,
                position=position,
                positions=positions,
                step_weights=layer_step_weights,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            x, *layer_extras = as_tuple(outputs)  # (B, T, D)
            extras.append(layer_extras)
        x = x if self.final_norm is None else self.final_norm(x)
        lists = [list(kind) for kind in zip(*extras, strict=True)]
        return (x, *lists) if lists else x

    def init_cache(self, encoder_output, batch_size, length, step_weights=None):
        """One `DecoderLayer.init_cache` a layer, as a list."""
        parts = zip(self.layers, step_weights or [None] * self.num_layers, strict=True)
        return [layer.init_cache(encoder_output, batch_size, length, w) for layer, w in parts]

    def compute_output_shape(self, x_shape, encoder_output_shape=None):
        return tuple(x_shape)

    def get_config(self):
        layer_config = self.layers[0].get_config()
        own_config = super().get_config()
        return {"num_layers": self.num_layers, **layer_config, **own_config}
