"""The encoder: a stack of `EncoderLayer`."""

import keras
from keras import ops

from keras_transformer.layers.encoder_layer import EncoderLayer
from keras_transformer.layers.masks import takes_carried_masks
from keras_transformer.models.stack import Stack


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(Stack):
    """A stack of `num_layers` encoder layers, for vectors from any source.

    "Attention Is All You Need", section 3.1. Pre-norm layers are followed by one more norm.

    Args:
        num_layers: N.
        d_model, num_heads, d_ff: the sizes of each layer; see `EncoderLayer`.
        **options: further arguments of `EncoderLayer`.

    Call arguments:
        x: tensor (B, S, D).
        padding_mask: boolean (B, S), True at real positions. A mask that Keras carries with `x`
            hides positions as well.
        scores: a `ScoreRecorder`, which gets the attention scores of each layer.
        training: whether dropout is applied; Keras passes it on to the layers inside.

    Returns:
        Tensor (B, S, D).

    Raises:
        ValueError: for a number, a width or a rate out of range, or a mask of floats.

    Example:
        >>> ops.shape(Encoder(num_layers=2, d_model=8, num_heads=2, d_ff=32)(np.ones((1, 3, 8))))
        (1, 3, 8)
    """

    layer_class = EncoderLayer

    @takes_carried_masks("x")
    def call(self, x, *, padding_mask=None, scores=None, **carried):
        x = ops.cast(x, self.compute_dtype)
        for layer in self.layers:
            x = layer(x, padding_mask=padding_mask, scores=scores, **carried)  # (B, S, D)
        return x if self.final_norm is None else self.final_norm(x)
