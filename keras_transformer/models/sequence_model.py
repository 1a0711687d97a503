"""What the models of sequences share: weights from the start, a config, an embedding, an export."""

import keras

from keras_transformer.checks import check_choice
from keras_transformer.layers.arguments import config_of
from keras_transformer.layers.positional_embedding import POSITIONS, PositionalEmbedding


def ids_spec(name="ids"):
    """Describes token ids (B, T) of any batch size and length."""
    return keras.InputSpec("int32", (None, None), name=name)


class SequenceModel(keras.Model):
    """A model that knows its inputs: it has weights, and can be exported, before its first call.

    The `__init__` of a subclass calls `keep_arguments`, and at its end `build()`.
    """

    def __init__(self, **kwargs):
        # Else Keras would round the values of a series, and ids given as floats.
        super().__init__(autocast=False, **kwargs)

    def build_layers(self):
        """Makes the weights of all layers; each of them reads ids or vectors of width `d_model`."""
        for layer in self.layers:
            layer.build((None, None, self.arguments.d_model))

    def build(self, input_shape=None):
        if not self.built:  # Keras calls this again when it loads a model
            self.build_layers()

    def make_embedding(self, vocab_size, name, positions="sinusoidal"):
        """Makes the embedding of a vocabulary from the model's arguments."""
        arguments = self.arguments
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
        """Describes each positional input of `call` by a `keras.InputSpec`: by default, ids."""
        return [ids_spec()]

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **options
    ):
        """Exports like `keras.Model.export`, by default for inputs of any batch size and length.

        Keras takes the shapes from the arguments of `build`, but these models call it without any.
        """
        if input_signature is None:
            input_signature = self.input_signature()
        super().export(filepath, format, verbose, input_signature, **options)

    def get_config(self):
        return {**super().get_config(), **config_of(self)}
