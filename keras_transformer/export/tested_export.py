"""The export of a model of numbers: saved, loaded, asked once, and only then a version."""

import os

import numpy as np
import tensorflow as tf

from keras_transformer.backend import check_tensorflow
from keras_transformer.version_directory import write_version


def export_tested(
    model,
    directory: str | os.PathLike,
    signatures: dict[str, tuple],
    example: dict[str, np.ndarray],
    *,
    overwrite: bool = False,
    tokenizer=None,
) -> str:
    """Writes the next version of a model directory after `serving_default` has answered.

    Args:
        model: the Keras model whose weights the signatures use.
        directory: as for `write_version`.
        signatures: the name of each, and a tuple of its function and the `tf.TensorSpec` of each
            argument; the function returns a dict of tensors.
        example: inputs of `serving_default`, to test it.
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
        tf.saved_model.save(module, str(path), signatures=functions)
        loaded = tf.saved_model.load(str(path)).signatures["serving_default"]
        outputs = loaded(**{name: tf.constant(value) for name, value in example.items()})
        for name, values in outputs.items():
            if not np.isfinite(values.numpy()).all():
                raise RuntimeError(
                    f"The exported model returned {name} that are not finite, because its weights "
                    "are not. Nothing was exported; train again or use an earlier checkpoint."
                )

    return write_version(directory, write, overwrite)
