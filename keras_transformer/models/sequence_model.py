"""What the models of sequences share: weights from the start, a config, an embedding, an export."""

import keras

from keras_transformer.checks import check_choice
from keras_transformer.layers.arguments import config_of
from keras_transformer.layers.positional_embedding import POSITIONS, PositionalEmbedding


def ids_spec(name="ids"):
    """Token ids (B, T) of any batch size and length."""
    return keras.InputSpec("int32", (None, None), name=name)


class SequenceModel(keras.Model):
    """A model that knows its inputs: it has weights, and can be exported, before its first call.

    A subclass calls `keep_arguments` when it is constructed, and at the end `build()`.
    """

    def __init__(self, **kwargs):
        # Keras would round ids that are floats to a lower precision, and the values of a series.
        super().__init__(autocast=False, **kwargs)

    def build_layers(self):
        """Makes the weights of all layers; each of them reads ids or vectors of width `d_model`."""
        for layer in self.layers:
            layer.build((None, None, self.arguments.d_model))

    def build(self, input_shape=None):
        if not self.built:  # Keras calls this again when it loads a model
            self.build_layers()

    def make_embedding(self, vocab_size, name):
        """The embedding of a vocabulary, as the model's arguments say."""
        arguments = self.arguments
        positions = getattr(arguments, "positions", "sinusoidal")
        return PositionalEmbedding(
            vocab_size,
            arguments.d_model,
            dropout=arguments.dropout,
            max_length=arguments.max_length,
            sinusoids=check_choice("positions", positions, POSITIONS) == "sinusoidal",
            name=name,
            dtype=self.dtype_policy,
        )

    def input_signature(self):
        """The positional inputs of `call`, as `keras.InputSpec`: ids (B, T), if nothing else."""
        return [ids_spec()]

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **options
    ):
        """Keras's `Model.export`, by default with inputs of any batch size and any length.

        Keras takes the shapes from the arguments of `build`, of which such a model has none.
        """
        if input_signature is None:
            input_signature = self.input_signature()
        super().export(filepath, format, verbose, input_signature, **options)

    def get_config(self):
        return {**config_of(self), **super().get_config()}
