"""What the models of sequences share: weights from the start, a config, an embedding, an export."""

import keras

from keras_transformer import backend
from keras_transformer.checks import check_choice
from keras_transformer.keras_names import KerasNames
from keras_transformer.layers.arguments import config_of
from keras_transformer.layers.low_rank import LowRankAdaptation
from keras_transformer.layers.positional_embedding import POSITIONS, PositionalEmbedding


def ids_spec(name="ids"):
    """Describes token ids (B, T) of any batch size and length."""
    return keras.InputSpec("int32", (None, None), name=name)


def check_floatx():
    """Raises a ValueError if Keras would average losses in a dtype of few digits."""
    floatx = keras.config.floatx()
    if floatx in ("float16", "bfloat16"):
        raise ValueError(
            f"Keras counts rows and averages losses in keras.config.floatx(), but {floatx} has too "
            f'few digits; set it to "float32", and make the model with dtype="mixed_{floatx}".'
        )


class SequenceModel(KerasNames, LowRankAdaptation, keras.Model):
    """A model that knows its inputs: it has weights, and can be exported, before its first call.

    The `__init__` of a subclass calls `keep_arguments`, and at its end `build()`. So a subclass of
    it sets its own layers before it calls `super().__init__()`.
    """

    def __init__(self, **kwargs):
        # Otherwise Keras would round the values of a series, and ids given as floats.
        super().__init__(autocast=False, **kwargs)

    reads_ids = True  # each input is (B, T)

    @property
    def adds_sinusoids(self) -> bool:
        """Whether positions come from a table, which has `max_length` rows."""
        return getattr(self.arguments, "positions", "sinusoidal") == "sinusoidal"

    def build_layers(self):
        """Makes the weights of all layers; each of them reads ids or vectors of width `d_model`."""
        for layer in self.layers:
            is_embedding = isinstance(layer, PositionalEmbedding)
            layer.build((None, None) if is_embedding else (None, None, self.arguments.d_model))

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

    def compute_output_spec(self, *args, **kwargs):
        """Describes the output, which is float32 in every precision."""
        return keras.KerasTensor(super().compute_output_spec(*args, **kwargs).shape, "float32")

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

    def check_batch(self, inputs, labels=None, sample_weight=None):
        """Raises a ValueError if the shapes of a batch do not fit the model or each other.

        `fit`, `evaluate` and `predict` call it for each batch. A size that is unknown fits.

        Args:
            inputs: as in the call, with a `KerasTensor` for each tensor.
            labels: `KerasTensor`, or None.
            sample_weight: `KerasTensor`, or None.
        """
        tensors = [x for x in keras.tree.flatten((inputs, labels)) if x is not None and x.shape]
        rows = {x.shape[0] for x in tensors} - {None}
        if len(rows) > 1:
            raise ValueError(
                "Inputs and labels of a batch must have as many rows as each other, but have "
                f"{' and '.join(map(str, sorted(rows)))}."
            )
        for ids in keras.tree.flatten(inputs) if self.reads_ids else ():
            if ids is not None and len(ids.shape) != 2:
                raise ValueError(
                    f"{type(self).__name__} reads ids (B, T), padded with 0, but received the "
                    f"shape {tuple(ids.shape)}."
                )
            most = self.arguments.max_length
            if ids is not None and (ids.shape[1] or 0) > most and self.adds_sinusoids:
                raise ValueError(
                    f"Rows of ids must have at most max_length={most} positions, but have "
                    f"{ids.shape[1]}; cut them, or make the model with a larger max_length."
                )

    def check_class_weight(self, class_weight):
        """Raises a ValueError if this `class_weight`, not None, has no meaning for the model."""

    def fit(self, *args, class_weight=None, **kwargs):
        """Trains as `keras.Model.fit` does, after `check_class_weight`."""
        if class_weight is not None:
            self.check_class_weight(class_weight)
        return super().fit(*args, class_weight=class_weight, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        """Trains as `keras.Model.train_on_batch` does, after `check_class_weight`."""
        if class_weight is not None:
            self.check_class_weight(class_weight)
        return super().train_on_batch(x, y, sample_weight, class_weight, return_dict)

    def make_train_function(self, force=False):
        check_floatx()
        self._make("train_function", super().make_train_function, force)

    def make_test_function(self, force=False):
        check_floatx()
        self._make("test_function", super().make_test_function, force)

    def make_predict_function(self, force=False):
        self._make("predict_function", super().make_predict_function, force)

    def _make(self, name, make_of_keras, force):
        """Sets a function of Keras's trainer, with `check_batch` before it."""
        if getattr(self, name) is not None and not force:
            return

        def make():
            current = getattr(self, name)
            make_of_keras(force=True)
            made = getattr(self, name)
            setattr(self, name, current)
            return made

        setattr(self, name, backend.checked_function(make, self.check_batch))

    def get_config(self):
        return {**super().get_config(), **config_of(self)}
