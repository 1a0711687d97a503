"""A translator or a text generator as a SavedModel that needs no Python of ours."""

from dataclasses import replace

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_transformer.checks import check_choice, check_texts
from keras_transformer.export.packed import pack
from keras_transformer.export.warmup import write_batching_parameters, write_warmup_requests
from keras_transformer.version_directory import write_version

PRECISIONS = ("float32", "bfloat16")
# The layers whose products take most of the time. The sums around them and the logits would lose
# in bfloat16's 8 bits what decides between two translations.
SUBLAYERS = r".*/(self_attention|cross_attention|feed_forward)(/.*)?"
# Those that are warmed up: each takes `text` alone.
WARM_SIGNATURES = ("serving_default",)
SELF_TEST_TEXTS = ("a", "1 2 3", "")


def export_saved_model(
    graph, directory, *, precision="float32", names=None, overwrite=False, warmup=None
) -> str:
    """Writes the next version of a model directory, all of it or nothing.

    It is tested before it appears; see `write_version`. `graph` is that of a `Translator` or a
    `TextGenerator`; the other arguments, result and errors are those of `Translator.export`.
    """
    check_choice("precision", precision, PRECISIONS)
    names = None if names is None else check_texts("signatures", names)
    warmup = None if warmup is None else check_texts("warmup", warmup)

    def write(path):
        module = serving_module(graph, precision, names)
        tf.saved_model.save(module, str(path), signatures=module.signature_functions)
        if warmup is not None:
            write_warmup_requests(path, warmup, WARM_SIGNATURES)
            write_batching_parameters(path)
        self_test(path)

    return write_version(directory, write, overwrite)


def serving_module(graph, precision, names=None) -> tf.Module:
    """What is saved: the functions, the weights and the tokenizer, and nothing of Keras."""
    graph = replace(graph, model=serving_copy(graph.model, precision, graph.max_tokens))
    weights = pack(graph.model)
    functions = {name: getattr(graph, name) for name in graph.signatures}
    for name in names or ():
        check_choice("signatures", name, functions)
    chosen = functions if names is None else {"serving_default", *names}
    module = tf.Module()
    module.graph = graph  # its functions hold it only weakly
    module.model_weights = weights
    module.tokenizer = graph.tokenizer
    module.signature_functions = {name: functions[name] for name in functions if name in chosen}
    return module


def serving_copy(model, precision: str, max_length: int):
    """The same model with attention and feed-forward networks in `precision`.

    With bfloat16, half the memory for their weights and on CPUs that have it about twice the
    arithmetic. Embeddings, the sums of the residual connections, softmax, layer normalization,
    logits and the scores of a search stay in float32.

    Args:
        model: a `Transformer` or a `LanguageModel`.
        precision: "float32" or "bfloat16".
        max_length: the longest sequence it will meet; its table of positions has no more.

    Returns:
        A model of the same class.
    """
    policy = keras.dtype_policies.DTypePolicyMap("float32")
    policy[SUBLAYERS] = keras.DTypePolicy(precision)
    config = {**model.get_config(), "dtype": policy, "max_length": max_length}
    copy = type(model).from_config(config)
    for new, old in zip(copy.weights, model.weights, strict=True):
        new.assign(ops.cast(old.value, new.dtype))
    return copy


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
