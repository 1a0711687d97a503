"""The encoder with a head that tells what kind of sequence it has read."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_int
from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.linear import Linear
from keras_transformer.layers.masks import padding_mask
from keras_transformer.layers.pooling import masked_mean
from keras_transformer.layers.positional_embedding import PositionalEmbedding
from keras_transformer.models.encoder import Encoder
from keras_transformer.models.exportable import Exportable


@keras.saving.register_keras_serializable(package="keras_transformer")
class SequenceClassifier(Exportable, keras.Model):
    """Reads a sequence of token ids and says which of `num_classes` it belongs to.

    The encoder of "Attention Is All You Need" (section 3.1), the mean of its output over real
    positions, and a linear map. Token ids, since what is classified is mostly text, whose padding
    the ids show by themselves; vectors go through `Linear`, `Encoder` and `masked_mean` in a model
    of your own. The mean, since it adds no token that stands for nothing and every position
    learns from the first step on. Weights exist from the start, so no `build` is needed.

    Args:
        num_classes: C.
        vocab_size: V, the number of token ids, padding included.
        num_layers: N.
        d_model: D, the width; a multiple of `num_heads`.
        num_heads: H.
        d_ff: the width inside the feed-forward networks.
        dropout: rate applied to each sub-layer's output, to the sum of embeddings and positions,
            and to the mean.
        attention_dropout: rate applied to the attention weights.
        feed_forward_dropout: rate applied inside the feed-forward networks.
        activation: activation of the feed-forward networks.
        norm_first: pre-norm instead of the paper's post-norm.
        max_length: the longest sequence, in tokens, when lengths are unknown to the graph.

    Call arguments:
        ids: integers (B, T), padded with 0.
        training: whether dropout is applied.

    Returns:
        Logits (B, C), float32. Those of a row do not depend on its padding; a row of nothing but
        padding has the logits of the mean 0.

    Raises:
        ValueError: for a size or a rate out of range.

    Example:
        >>> model = SequenceClassifier(
        ...     num_classes=3, vocab_size=12, num_layers=1, d_model=8, num_heads=2, d_ff=16
        ... )
        >>> ops.shape(model(np.array([[5, 6, 3], [7, 0, 0]])))
        (2, 3)
    """

    def __init__(
        self,
        *,
        num_classes,
        vocab_size,
        num_layers,
        d_model,
        num_heads,
        d_ff,
        dropout=0.1,
        attention_dropout=0.0,
        feed_forward_dropout=0.0,
        activation="relu",
        norm_first=False,
        max_length=2048,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # else ids that are floats are rounded
        self.num_classes = check_positive_int("num_classes", num_classes)
        policy = self.dtype_policy
        self.embedding = PositionalEmbedding(
            vocab_size,
            d_model,
            dropout=dropout,
            max_length=max_length,
            name="embedding",
            dtype=policy,
        )
        self.encoder = Encoder(
            num_layers,
            d_model,
            num_heads,
            d_ff,
            dropout=dropout,
            attention_dropout=attention_dropout,
            feed_forward_dropout=feed_forward_dropout,
            activation=activation,
            norm_first=norm_first,
            name="encoder",
            dtype=policy,
        )
        self.dropout_layer = Dropout(dropout, name="dropout", dtype=policy)
        self.output_projection = Linear(num_classes, name="output_projection", dtype=policy)
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        self.embedding.build()
        self.encoder.build((None, None, self.embedding.d_model))
        self.output_projection.build((None, self.embedding.d_model))
        self.built = True

    def call(self, ids, training=None):
        mask = padding_mask(ids, PAD_ID)  # (B, T)
        x = self.embedding(ids, training=training)  # (B, T, D)
        x = masked_mean(self.encoder(x, padding_mask=mask, training=training), mask)  # (B, D)
        x = self.dropout_layer(x, training=training)
        return ops.cast(self.output_projection(x), "float32")  # (B, C)

    def compute_output_shape(self, ids_shape):
        return (ids_shape[0], self.num_classes)

    def get_config(self):
        stack = self.encoder.get_config()
        del stack["norm"], stack["rotary"]
        own = {
            "num_classes": self.num_classes,
            "vocab_size": self.embedding.vocab_size,
            "max_length": self.embedding.max_length,
        }
        return {**stack, **own, **super().get_config()}
