"""A translator or a text generator as a SavedModel that needs no Python of ours."""

import numpy as np
import tensorflow as tf

from keras_transformer.checks import check_choice, check_texts
from keras_transformer.export.precision import PRECISIONS, serving_copy
from keras_transformer.export.version_directory import write_version
from keras_transformer.export.warmup import write_batching_parameters, write_warmup_requests
from keras_transformer.models.decoding_weights import in_blocks, in_spaced_rows
from keras_transformer.training.precision import processor_flags

# Those that are warmed up: each takes `text` alone.
WARM_SIGNATURES = ("serving_default",)
SELF_TEST_TEXTS = ("a", "1 2 3", "")


def export_saved_model(
    translator, directory, *, precision="float32", names=None, overwrite=False, warmup=None
) -> str:
    """Writes the next version of a model directory, all of it or nothing.

    It is tested before it appears; see `write_version`. `translator` is a `Translator` or a
    `TextGenerator`; the other arguments, result and errors are those of `Translator.export`.
    """
    check_choice("precision", precision, PRECISIONS)
    names = None if names is None else check_texts("signatures", names)
    warmup = None if warmup is None else check_texts("warmup", warmup)

    def write(path):
        module = serving_module(translator, precision, names)
        tf.saved_model.save(module, str(path), signatures=module.signature_functions)
        if warmup is not None:
            write_warmup_requests(path, warmup, WARM_SIGNATURES)
            write_batching_parameters(path)
        self_test(path)

    return write_version(directory, write, overwrite)


def serving_module(translator, precision, names=None) -> tf.Module:
    """What is saved: the graph, its weights and the tokenizer, and nothing of Keras."""
    model = serving_copy(translator.model, precision, translator.longest)
    module = tf.Module()
    module.model_weights = [weight.value for weight in model.weights]
    # Copies laid out for the steps of a search, so that no request has to make them.
    head_dim = model.decoder.layers[0].self_attention.head_dim
    module.decoding_weights = tf.nest.map_structure(
        lambda tensor: tf.Variable(tensor, trainable=False),
        laid_out(model.decoding_weights(), head_dim),
    )
    module.tokenizer = translator.tokenizer
    functions = translator.signatures(model, module.decoding_weights)
    for name in names or ():
        check_choice("signatures", name, functions)
    chosen = functions if names is None else {"serving_default", *names}
    module.signature_functions = {name: functions[name] for name in functions if name in chosen}
    return module


def laid_out(weights, head_dim):
    """`decoding_weights` as the processor of this machine multiplies with them fastest."""
    if "avx512f" in processor_flags():
        return in_blocks(weights, head_dim)
    return in_spaced_rows(weights)


def self_test(path) -> None:
    """Loads a SavedModel and asks it.

    Raises:
        RuntimeError: if a score is not finite or an answer is no text.
    """
    ask = tf.saved_model.load(str(path)).signatures["serving_default"]
    output = ask(text=tf.constant(SELF_TEST_TEXTS))
    scores = output["score"].numpy()
    if not np.isfinite(scores).all() or (scores < -1e8).any():
        raise RuntimeError(
            f"The exported model gave the scores {scores.tolist()}; its weights are not finite. "
            "Nothing was exported; train again or use an earlier run."
        )
    for texts in output.values():
        for text in texts.numpy() if texts.dtype == tf.string else ():
            text.decode("utf-8")
