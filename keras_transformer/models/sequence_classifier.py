"""The encoder with a head that classifies a sequence."""

from collections.abc import Mapping
from typing import Unpack

import keras
from keras import ops

from keras_transformer.checks import check_number
from keras_transformer.data.special_tokens import PAD_ID
from keras_transformer.layers.arguments import keep_arguments, layer_options
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.masks import padding_mask
from keras_transformer.layers.pooling import masked_mean
from keras_transformer.models.encoder import Encoder
from keras_transformer.models.sequence_model import SequenceModel
from keras_transformer.training.losses import check_reads_logits, check_weights
from keras_transformer.type_hints import Elementwise, KerasOptions

# Keras's losses for rows that may belong to several classes.
BINARY_CROSS_ENTROPIES = (keras.losses.binary_crossentropy, keras.losses.binary_focal_crossentropy)


def check_exclusive_classes(loss, num_classes: int) -> None:
    """Refuses a binary cross entropy, which is for rows that may belong to several classes.

    Args:
        loss: what was given to `compile`.
        num_classes: the number of the model's classes.
    """
    function = keras.losses.get(loss) if isinstance(loss, str | type) else loss
    if getattr(function, "fn", function) in BINARY_CROSS_ENTROPIES:
        raise ValueError(
            f"loss={loss!r} reads each logit as a yes or no of its own, but a sequence belongs to "
            f"exactly one of num_classes={num_classes}; give "
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True), for two classes with "
            "num_classes=2. If a sequence may belong to several, use Encoder and masked_mean in a "
            "model of your own."
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class SequenceClassifier(SequenceModel):
    """Reads a sequence of token ids and says which of `num_classes` it belongs to.

    The encoder of "Attention Is All You Need" (section 3.1), the mean of its output over real
    positions, and a linear map. The mean needs no extra token, and every position learns from the
    first step on. To classify vectors instead of ids, use `Dense`, `Encoder` and `masked_mean` in
    a model of your own. The weights exist from the start; you need not call `build`.

    Args:
        num_classes: C, at least 2. A sequence belongs to exactly one of them.
        vocab_size: V, the number of token ids, padding included.
        num_layers: N.
        d_model, num_heads, d_ff: the sizes of each layer; see `EncoderLayer`.
        dropout: rate applied to the output of each sub-layer, to the embeddings and to the mean.
        attention_dropout, feed_forward_dropout, activation, norm_first, norm, use_bias: as in
            `EncoderLayer`; the defaults are the paper's.
        max_length: the longest sequence that a graph of unknown length can read.

    Call arguments:
        ids: integers (B, T), padded with 0.
        training: whether dropout is applied.

    Returns:
        Logits (B, C), float32. They do not depend on padding. The mean of a row of padding is 0.

    Raises:
        ValueError: for a size or a rate out of range, or an unknown `norm`.

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
        num_classes: int,
        vocab_size: int,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        activation: str | Elementwise = "relu",
        norm_first: bool = False,
        norm: str = "layer_norm",
        use_bias: bool = True,
        max_length: int = 2048,
        **kwargs: Unpack[KerasOptions],
    ):
        super().__init__(**kwargs)
        options = layer_options(keep_arguments(self, locals()))
        allowed, remedy = "an integer of at least 2", "for two classes give num_classes=2"
        check_number("num_classes", num_classes, int, allowed, lambda x: x >= 2, remedy)
        self.num_classes = int(num_classes)
        policy = self.dtype_policy
        self.embedding = self.make_embedding(vocab_size, "embedding")
        self.encoder = Encoder(
            num_layers, d_model, num_heads, d_ff, name="encoder", dtype=policy, **options
        )
        self.dropout_layer = Dropout(dropout, name="dropout", dtype=policy)
        self.output_projection = Dense(self.num_classes, name="output_projection", dtype=policy)
        self.build()

    def call(self, ids, training=None):
        mask = padding_mask(ids, PAD_ID)  # (B, T)
        x = self.embedding(ids, training=training)  # (B, T, D)
        x = masked_mean(self.encoder(x, padding_mask=mask, training=training), mask)  # (B, D)
        x = self.dropout_layer(x, training=training)
        return ops.cast(self.output_projection(x), "float32")  # (B, C)

    def compile(self, optimizer="rmsprop", loss=None, *args, **kwargs):
        """Prepares the model for `fit`, as `keras.Model.compile` does, for a loss of logits.

        Args:
            optimizer: a Keras optimizer.
            loss: a loss of one class for each row, such as
                `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`.
            *args, **kwargs: further arguments of `keras.Model.compile`.

        Raises:
            ValueError: if the loss reads probabilities, or each logit as a yes or no.
        """
        check_exclusive_classes(loss, self.num_classes)
        check_reads_logits(loss, type(self).__name__)
        super().compile(optimizer, loss, *args, **kwargs)

    def compile_from_config(self, config):
        # Keras's own compiles no model that has a `compile` of its own.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def check_batch(self, inputs, labels=None, sample_weight=None):
        super().check_batch(inputs, labels, sample_weight)
        if labels is None:
            return
        if labels.dtype == "string":
            raise ValueError(
                f"labels must be integers, the numbers 0 to {self.num_classes - 1} of the classes, "
                "but are strings; give np.unique(labels, return_inverse=True)[1]."
            )
        shape = tuple(labels.shape)
        if len(shape) != 1 and (len(shape) != 2 or shape[1] not in (None, 1, self.num_classes)):
            raise ValueError(
                f"labels must be classes (B,), or one-hot rows (B, {self.num_classes}), but have "
                f"the shape {shape}."
            )
        if sample_weight is not None:
            check_weights(sample_weight, (shape[0], 1))

    def check_class_weight(self, class_weight):
        """Refuses what is no mapping, and weights of classes that the model does not have."""
        if not isinstance(class_weight, Mapping):
            raise ValueError(
                "class_weight must be a dict of class to weight, such as {0: 1.0, 1: 9.0}, but is "
                f"{class_weight!r}."
            )
        unknown = [x for x in class_weight if x not in range(self.num_classes)]
        if unknown:
            raise ValueError(
                f"class_weight has weights for {unknown}, but the classes are 0 to "
                f"{self.num_classes - 1}."
            )

    def compute_output_shape(self, ids_shape):
        return (ids_shape[0], self.num_classes)
