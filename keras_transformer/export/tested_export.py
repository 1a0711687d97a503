"""Exports a model with numeric inputs and outputs, after its SavedModel has answered once."""

import numpy as np
import tensorflow as tf

from keras_transformer.backend import check_tensorflow
from keras_transformer.export.card import write_card
from keras_transformer.export.seal import save_sealed
from keras_transformer.type_hints import StrPath
from keras_transformer.version_directory import write_version


def export_tested(
    model,
    directory: StrPath,
    signatures: dict[str, tuple],
    example: dict[str, np.ndarray],
    *,
    overwrite: bool = False,
    tokenizer=None,
) -> str:
    """Writes the next version of a model directory after `serving_default` has answered.

    Args:
        model: the Keras model that the signatures use.
        directory: as for `write_version`.
        signatures: for each name, a tuple of its function and the `tf.TensorSpec` of each argument.
            The function returns a dict of tensors.
        example: inputs of `serving_default`, to test it with.
        overwrite: whether to replace a version that exists.
        tokenizer: the tokenizer that the signatures use, if any.

    Returns:
        The path of the new version.

    Raises:
        ValueError: if the version exists, or the Keras backend is not TensorFlow.
        RuntimeError: if an output for the example is not finite.
    """
    check_tensorflow("SavedModel")
    module = tf.Module()
    module.model_weights = [weight.value for weight in model.weights]
    module.tokenizer = tokenizer
    functions = {
        name: tf.function(function, input_signature=specs, autograph=False)
        for name, (function, *specs) in signatures.items()
    }

    def write(path):
        save_sealed(module, path, functions)
        self_test(path, example)
        write_card(path, directory, model, tokenizer, signatures=sorted(signatures))

    return write_version(directory, write, overwrite)


def self_test(path, example: dict, least: float = -np.inf) -> None:
    """Loads a SavedModel and asks its signature `serving_default`.

    Args:
        path: the path of the SavedModel.
        example: the inputs, by name.
        least: a number that stands for one that is not finite, as every smaller number does.

    Raises:
        RuntimeError: if a number in the answer is not finite.
        UnicodeDecodeError: if a string in the answer is not UTF-8.
    """
    answer = tf.saved_model.load(str(path)).signatures["serving_default"]
    for name, values in answer(**{k: tf.constant(v) for k, v in example.items()}).items():
        values = values.numpy()
        if values.dtype == object:  # strings
            for text in values.ravel():
                text.decode("utf-8")
        elif not np.isfinite(values).all() or np.any(values < least):
            raise RuntimeError(
                f"The output {name!r} of the exported model is not finite, because its weights are "
                "not finite. Nothing was exported; train again or use an earlier checkpoint."
            )
