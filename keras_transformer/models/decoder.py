"""The decoder: a stack of `DecoderLayer`."""

import keras
from keras import ops

from keras_transformer.layers.decoder_layer import DecoderLayer
from keras_transformer.layers.masks import takes_carried_masks
from keras_transformer.models.stack import Stack


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(Stack):
    """A stack of `num_layers` decoder layers.

    "Attention Is All You Need", section 3.1. Pre-norm layers are followed by one more norm.

    Args:
        num_layers: N.
        d_model, num_heads, d_ff: the sizes of each layer; see `DecoderLayer`.
        **options: further arguments of `DecoderLayer`.

    Call arguments:
        x: tensor (B, T, D).
        encoder_output: tensor (B, S, D), or the list that `project_memory` returns for it; None
            without cross-attention.
        padding_mask: boolean (B, T), True at real target tokens.
        source_padding_mask: boolean (B, S), True at real source tokens. Masks that Keras carries
            with `x` and `encoder_output` hide positions as well.
        attention_mask: boolean (B, T, T), or with a cache (B, T, L), True = may attend; any of the
            three sizes may be 1. It replaces the causal mask, but not `padding_mask`.
        position_ids: integers (T,) or (B, T), the positions for `rotary`; by default they continue
            after the cache.
        cache: a list of `KVCache`, one per layer, for a step of a search.
        scores: a `ScoreRecorder`, which gets the attention scores of each layer.
        training: whether dropout is applied; Keras passes it on to the layers inside.

    Returns:
        Tensor (B, T, D).

    Raises:
        ValueError: for a number, a width or a rate out of range, or a mask of floats.

    Example:
        >>> decoder = Decoder(num_layers=2, d_model=8, num_heads=2, d_ff=32)
        >>> ops.shape(decoder(np.ones((1, 3, 8)), np.ones((1, 5, 8))))
        (1, 3, 8)
    """

    layer_class = DecoderLayer

    # Keras finds the shapes that it passes by these names.
    def build(self, x_shape, encoder_output_shape=None):
        super().build(x_shape, encoder_output_shape)

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
        x = ops.cast(x, self.compute_dtype)
        is_projected = isinstance(encoder_output, (list, tuple))
        memories = encoder_output if is_projected else [encoder_output] * self.num_layers
        if is_projected:  # a `Memory` carries no mask
            carried.pop("encoder_output_mask", None)
        caches = cache or [None] * self.num_layers
        for layer, memory, layer_cache in zip(self.layers, memories, caches, strict=True):
            x = layer(
                x,
                memory,
                padding_mask=padding_mask,
                source_padding_mask=source_padding_mask,
                attention_mask=attention_mask,
                position_ids=position_ids,
                cache=layer_cache,
                scores=scores,
                **carried,
            )  # (B, T, D)
        return x if self.final_norm is None else self.final_norm(x)

    def project_memory(self, encoder_output):
        """Projects `encoder_output` once for each layer's cross-attention: a list of `Memory`."""
        return [layer.cross_attention.project_memory(encoder_output) for layer in self.layers]
