"""Loads what a command translates with: a run or an export, and the options of its search."""

import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import tensorflow as tf

from keras_transformer.commands.options import SEARCH
from keras_transformer.decoding.strategies import Beam, Greedy
from keras_transformer.inference.run_directory import is_run, load_translator
from keras_transformer.inference.translator import translate_in_batches
from keras_transformer.training.shards import num_cores
from keras_transformer.version_directory import check_version, saved_model_path

SEARCH_OPTIONS = [option.name.removeprefix("--").replace("-", "_") for option in SEARCH]
# The options that are arguments of a `Translator`; the others are fields of its strategy.
LENGTHS = ("max_source_length", "max_length")


def given_options(options, names=SEARCH_OPTIONS) -> dict:
    """Returns those of the named options that were given on the command line."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def search_options(options) -> dict:
    """Returns the arguments of a `Translator` that were given on the command line.

    Raises:
        ValueError: if a value is out of range, or a greedy search does not take it.
    """
    given = given_options(options)
    lengths = {name: given.pop(name) for name in LENGTHS if name in given}
    if given.pop("search", "beam") == "beam":
        size = {"size": given.pop("beam_size")} if "beam_size" in given else {}
        return {"strategy": Beam(**size, **given), **lengths}
    if others := [name for name in given if name not in vars(Greedy())]:
        raise ValueError(f"{dashed(others)} needs a beam search; leave it out, or --search greedy.")
    return {"strategy": Greedy(**given), **lengths}


def dashed(names) -> str:
    """Returns the names of options as they are typed, such as `--beam-size`."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


@contextmanager
def loaded(path, options):
    """Yields a function that translates a list of strings by a run or an export.

    At the end it prints how many texts were too long to be read whole.

    Raises:
        ValueError: if `path` is neither, or search options are given for an export.
    """
    # Each batch has one thread; see `inference.text_search`.
    with suppress(RuntimeError):  # TensorFlow has started its threads already
        tf.config.threading.set_intra_op_parallelism_threads(1)
    if is_run(path):
        cores = {"num_parallel_batches": num_cores()}
        translator = load_translator(path, **cores, **search_options(options))
        limit = f"are read up to token {translator.graph.max_source_length}; give"
        with _cuts_counted(translator.translate_tensor, limit) as translate:
            yield translate
        return
    exported = saved_model_path(path)
    if exported is None:
        what = "is neither a run nor an export" if Path(path).exists() else "does not exist"
        raise ValueError(f"{path} {what}; name a directory that train or export has written.")
    if given := given_options(options):
        raise ValueError(f"{path} is an export with a fixed search; leave out {dashed(given)}.")
    if not check_version(exported):
        print(f"note: {exported} has no manifest; its files are not checked", file=sys.stderr)
    import tensorflow_text  # noqa: F401, the SavedModel holds its ops

    model = tf.saved_model.load(str(exported))
    signature = model.signatures["serving_default"]

    def serve(text):
        answer = signature(text=text)
        # An export of an older version does not say which sources it cuts.
        return {"source_cut": tf.zeros_like(answer["score"], tf.bool), **answer}

    with _cuts_counted(serve, "are longer than the export reads; export it with") as translate:
        yield translate


@contextmanager
def _cuts_counted(function, limit):
    """Yields a function from texts to translations; prints how many texts were cut at the end."""
    cut = []  # for each text, whether only its beginning was read

    def translate(texts):
        translations, new = translate_in_batches(texts, function)
        cut.extend(new)
        return translations.texts

    yield translate
    if any(cut):
        print(
            f"note: {sum(cut)} of {len(cut)} lines {limit} a larger --max-source-length (and "
            "--max-length), or give one sentence per line",
            file=sys.stderr,
        )
