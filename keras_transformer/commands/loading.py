"""Loads what a command asks: a run or an export, as a function from texts to answers."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.commands.messages import log
from keras_transformer.commands.search import PLAIN, WITH_OPTIONS, export_signature, search_options
from keras_transformer.data.processes import num_cores
from keras_transformer.inference.run_directory import is_run
from keras_transformer.inference.text_search import as_tensor
from keras_transformer.inference.translator import Translator, load_translator
from keras_transformer.inference.word_alignment import word_pairs
from keras_transformer.models.ensemble import Ensemble
from keras_transformer.version_directory import check_version, saved_model_path

BATCH_SIZE = 128
# What only a graph does, and no export.
OF_PYTHON = {"nbest": "nbest_with_options", "align": "align_with_options"}


class Loaded(NamedTuple):
    """A model that answers.

    Attributes:
        ask: from columns, a dict of lists of strings, to a list of answers, a dict for each row. It
            may be called in several threads.
        batch_size: the best number of rows in a call.
        threads: the best number of calls at a time.
        limit: what is read of a long line, and what helps, for a note.
    """

    ask: Callable
    batch_size: int
    threads: int
    limit: str


def load(path, options, what: str) -> Loaded:
    """Loads a run or an export.

    Args:
        path: of either.
        options: of the command line. With a `prefix_file`, the columns have a "prefix".
        what: "best", "nbest", "align" or "score".

    Raises:
        ValueError: if an option is out of range, or the export has no signature for it.
    """
    return load_runs([path], options, what) if is_run(path) else _export(path, options, what)


def load_runs(paths, options, what: str) -> Loaded:
    """Loads a run, or several as an `Ensemble`; their tokenizers are the same.

    Args:
        paths: of the runs.
        options, what: as for `load`.

    Raises:
        ValueError: as `load`.
    """
    _use_one_thread_a_call()
    batch_size = options.batch_size or BATCH_SIZE
    has_prefix = getattr(options, "prefix_file", None) is not None
    arguments = {"num_parallel_batches": 1, "batch_size": batch_size, **search_options(options)}
    translator, *others = (load_translator(path, **arguments) for path in paths)
    if others:
        models = Ensemble([translator.model, *(other.model for other in others)])
        translator = Translator(models, translator.tokenizer, **arguments)
    graph = translator.graph
    names = {**WITH_OPTIONS, **OF_PYTHON} if has_prefix else PLAIN
    function = getattr(graph, names[what])
    defaults = {}
    if has_prefix:
        alpha = graph.strategy.length_penalty
        defaults = {"length_penalty": alpha, "max_length": graph.max_length}
    limit = (
        f"are read up to token {graph.max_source_length}; give a larger --max-source-length (and "
        "--max-length), or give one sentence per line"
    )
    return Loaded(_asking(graph, function, defaults), batch_size, num_cores(), limit)


def _use_one_thread_a_call() -> None:
    """Gives an operation one thread, since calls run beside one another; see `text_search`."""
    with suppress(RuntimeError):  # TensorFlow has started its threads already
        tf.config.threading.set_intra_op_parallelism_threads(1)


def _export(path, options, what) -> Loaded:
    _use_one_thread_a_call()
    exported = saved_model_path(path)
    name, defaults = export_signature(options, what)
    if not check_version(exported):
        log(f"note: {exported} has no manifest; its files are not checked")
    import tensorflow_text  # noqa: F401, the SavedModel holds its ops

    model = tf.saved_model.load(str(exported))
    if name not in model.signatures:
        others = ", ".join(sorted(model.signatures))
        raise ValueError(
            f"{exported} has no signature {name}, but {others}; export it with --signatures "
            f"{name}, or name the run."
        )
    function = model.signatures[name]
    most = function.structured_outputs["translations"].shape[1] if what == "nbest" else None
    if most is not None and options.nbest > most:
        raise ValueError(f"{exported} gives at most --nbest {most}; export it with a larger beam.")
    limit = (
        "are longer than the export reads; export it with a larger --max-source-length (and "
        "--max-length), or give one sentence per line"
    )
    batch_size = options.batch_size or BATCH_SIZE
    return Loaded(_asking(model, function, defaults), batch_size, num_cores(), limit)


def _asking(owner, function, defaults):
    """Makes a function from columns to a list of answers, by a function of tensors.

    It keeps `owner`, without which the function of a graph or a SavedModel has no weights.
    """
    dtypes = {"length_penalty": np.float32, "max_length": np.int32}

    def ask(columns, owner=owner):
        inputs = {name: as_tensor(values) for name, values in columns.items()}
        count = len(next(iter(columns.values())))
        for name, value in defaults.items():
            inputs[name] = tf.constant(np.full(count, value, dtypes[name]))
        if defaults and "prefix" not in inputs:
            inputs["prefix"] = tf.constant([""] * count)
        output = {name: tensor.numpy() for name, tensor in function(**inputs).items()}
        rows = zip(*output.values(), strict=True)
        return [_answer(dict(zip(output, row, strict=True))) for row in rows]

    return ask


def _answer(row) -> dict:
    """One row of what a signature answers, of Python's types. What it does not say is None."""
    attention = row.pop("attention", None)  # nothing that is written needs it whole
    answer = {"source_cut": None} | {name: _plain(value) for name, value in row.items()}
    if attention is not None:
        for name in ("source_pieces", "target_pieces"):
            answer[name] = [piece for piece in answer[name] if piece]
        pieces = answer["source_pieces"], answer["target_pieces"]
        attention = attention[: len(pieces[1]), : len(pieces[0])]
        answer["alignment"] = word_pairs(attention, *pieces)
    if "token_log_probs" in row:
        answer["token_log_probs"] = answer["token_log_probs"][: answer["length"]]
    return answer


def _plain(value):
    """A scalar or an array of NumPy as a string, a number or a list of them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray) and value.ndim < 2:
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
