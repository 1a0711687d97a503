"""A translator or a text generator as a SavedModel that runs without this package."""

import tensorflow as tf

from keras_transformer.checks import check_choice, check_texts
from keras_transformer.decoding.result import LEAST_POSSIBLE
from keras_transformer.export.card import write_card
from keras_transformer.export.precision import PRECISIONS, fastest_precision, in_precision
from keras_transformer.export.seal import save_sealed
from keras_transformer.export.tested_export import self_test
from keras_transformer.export.warmup import (
    check_warmup,
    write_batching_parameters,
    write_warmup_requests,
)
from keras_transformer.version_directory import write_version

# What of a graph is a setting of the export.
LIMITS = ("max_source_length", "max_length", "batch_size", "num_parallel_batches")
SELF_TEST_TEXTS = ("a", "1 2 3", "")


def export_saved_model(
    graph,
    directory,
    *,
    precision="float32",
    names=None,
    overwrite=False,
    warmup=None,
    run=None,
) -> str:
    """Writes the next version of a model directory, after a test; see `write_version`.

    `graph` is that of a `Translator` or a `TextGenerator`, and `run` the card of the run that its
    model comes from. The other arguments, the result and the errors are those of
    `Translator.export`.
    """
    check_choice("precision", precision, (*PRECISIONS, "auto"))
    names = None if names is None else check_texts("signatures", names)
    for name in names or ():
        check_choice("signatures", name, graph.signatures)
    if warmup is not None:
        warmup = check_texts("warmup", warmup)
        check_warmup(warmup)

    def write(path):
        chosen, seconds = (precision, {})
        if precision == "auto":
            chosen, seconds = fastest_precision(graph)
        module = serving_module(graph, chosen, names)
        save_sealed(module, path, module.signature_functions)
        if warmup is not None:
            write_warmup_requests(path, warmup)
            write_batching_parameters(path)
        self_test(path, {"text": SELF_TEST_TEXTS}, LEAST_POSSIBLE)
        settings = {
            "search": {"strategy": type(graph.strategy).__name__, **vars(graph.strategy)},
            "limits": {name: getattr(graph, name) for name in LIMITS if hasattr(graph, name)},
            "precision": chosen,
            **({"seconds_per_step": seconds} if seconds else {}),
            **({"int8_products": num_int8_products(module)} if chosen == "int8" else {}),
            "signatures": sorted(module.signature_functions),
            "warmup_texts": 0 if warmup is None else len(warmup),
        }
        write_card(path, directory, graph.model, graph.tokenizer, run=run, **settings)

    return write_version(directory, write, overwrite)


def num_int8_products(module) -> int:
    """Returns how many matrices of a module are integers to multiply by."""
    return sum(weight.dtype == tf.qint8 for weight in module.model_weights)


def serving_module(graph, precision, names=None) -> tf.Module:
    """Builds what is saved: functions, weights and the tokenizer, and nothing of Keras."""
    graph, weights = in_precision(graph, precision)
    functions = {name: getattr(graph, name) for name in graph.signatures}
    chosen = functions if names is None else {"serving_default", *names}
    module = tf.Module()
    module.graph = graph  # a tf.function keeps only a weak reference to it
    module.model_weights = weights
    module.tokenizer = graph.tokenizer
    module.signature_functions = {name: functions[name] for name in functions if name in chosen}
    return module
