"""Keras's `export` for models that know their inputs before they have been called."""

import keras


def ids_spec(name="ids"):
    """Token ids (B, T) of any batch size and length."""
    return keras.InputSpec("int32", (None, None), name=name)


class Exportable:
    """A mixin for a `keras.Model` with weights from the start: `export` needs no call before it.

    Keras takes the shapes of an export from the arguments of `build`, of which such a model has
    none, and would make ids numbers of float32.
    """

    def input_signature(self):
        """The positional inputs of `call`, as `keras.InputSpec`: ids (B, T), if nothing else."""
        return [ids_spec()]

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **options
    ):
        """Keras's `Model.export`, by default with inputs of any batch size and any length."""
        if input_signature is None:
            input_signature = self.input_signature()
        super().export(filepath, format, verbose, input_signature, **options)
