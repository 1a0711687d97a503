"""What each attention of a model attends to, layer by layer and head by head."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.layers.masks import padding_mask


class AttentionWeights(NamedTuple):
    """The weights of the paper's three uses of attention (section 3.2.3), without dropout.

    Row t of a map says how much the position that writes target token t, or the encoder's position
    t, takes from each position it may attend to; it sums to 1.

    Attributes:
        encoder: float32 (N, B, H, S, S), source positions to source positions.
        decoder: float32 (N, B, H, T, T), target positions to those up to themselves.
        cross: float32 (N, B, H, T, S), target positions to source positions.
    """

    encoder: Any
    decoder: Any
    cross: Any


def attention_weights_of(model, inputs) -> AttentionWeights:
    """The pass of `model.hidden` once more, keeping what every layer attends to.

    Args:
        model: a `Transformer`.
        inputs: a pair `(source_ids, target_ids)`, integers (B, S) and (B, T), as the model takes.

    Returns:
        `AttentionWeights`.
    """
    source_ids, target_ids = inputs
    source_padding_mask = padding_mask(source_ids, PAD_ID)
    encoder_output, encoder_scores = model.encoder(
        model.source_embedding(source_ids, training=False),
        padding_mask=source_padding_mask,
        return_attention_scores=True,
        training=False,
    )  # (B, S, D), N times (B, H, S, S)
    _, decoder_scores = model.decoder(
        model.target_embedding(target_ids, training=False),
        encoder_output,
        padding_mask=padding_mask(target_ids, PAD_ID),
        source_padding_mask=source_padding_mask,
        return_attention_scores=True,
        training=False,
    )
    return AttentionWeights(
        encoder=ops.stack(encoder_scores),
        decoder=ops.stack([scores["self"] for scores in decoder_scores]),
        cross=ops.stack([scores["cross"] for scores in decoder_scores]),
    )
