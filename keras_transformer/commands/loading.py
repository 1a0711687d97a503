"""What `translate` and `evaluate` call to get from strings to strings."""

import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import tensorflow as tf

from keras_transformer.decoding.strategies import Beam, Greedy
from keras_transformer.inference.run_directory import is_run, load_translator
from keras_transformer.inference.text_search import as_tensor
from keras_transformer.inference.translator import translate_in_batches
from keras_transformer.training.shards import num_cores
from keras_transformer.version_directory import saved_model_path

# The options that are fields of a strategy, and those that are arguments of a `Translator`.
STRATEGY = ("length_penalty", "coverage_penalty", "min_length", "no_repeat_ngram")
LENGTHS = ("max_source_length", "max_length")


def given_options(options) -> dict:
    """The options of a search that were given on the command line."""
    values = {name: getattr(options, name) for name in ("search", "beam_size", *STRATEGY, *LENGTHS)}
    return {name: value for name, value in values.items() if value is not None}


def search_options(options) -> dict:
    """The arguments of a `Translator` that were given on the command line.

    Raises:
        ValueError: if an option of a beam search was given for another.
    """
    given = given_options(options)
    lengths = {name: given.pop(name) for name in LENGTHS if name in given}
    if given.pop("search", "beam") == "beam":
        size = {"size": given.pop("beam_size")} if "beam_size" in given else {}
        return {"strategy": Beam(**size, **given), **lengths}
    for name in ("beam_size", "coverage_penalty"):
        if name in given:
            option = dashed([name])
            raise ValueError(f"{option} needs a beam search; leave it out, or --search greedy.")
    return {"strategy": Greedy(**given), **lengths}


def dashed(names) -> str:
    """Names of options as the command line has them."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


@contextmanager
def loaded(path, options):
    """A function from a list of strings to a list of strings, from a run or an export.

    At the end it says how many texts were too long to be read whole.

    Raises:
        ValueError: if `path` is neither, or search options are given for an export.
    """
    # A thread for each batch that is searched; see `inference.text_search`.
    with suppress(RuntimeError):  # TensorFlow runs already, with threads of its own
        tf.config.threading.set_intra_op_parallelism_threads(1)
    if is_run(path):
        cores = {"num_parallel_batches": num_cores()}
        translator = load_translator(path, **cores, **search_options(options))
        max_length = translator.graph.max_source_length
        cut = []  # for each text, whether it is longer than what is read

        def translate(texts):
            cut.extend(are_cut(translator, texts))
            return translator(texts)

        yield translate
        if any(cut):
            print(
                f"note: {sum(cut)} of {len(cut)} lines are read up to token {max_length}; give a "
                "larger --max-source-length, and --max-length for what is written, or one "
                "sentence per line",
                file=sys.stderr,
            )
        return
    exported = saved_model_path(path)
    if exported is None:
        what = "is neither a run nor an export" if Path(path).exists() else "does not exist"
        raise ValueError(f"{path} {what}; name a directory that train or export has written.")
    if given := given_options(options):
        raise ValueError(f"{path} is an export, whose search is fixed; leave out {dashed(given)}.")
    import tensorflow_text  # noqa: F401, the SavedModel holds its ops

    model = tf.saved_model.load(str(exported))
    yield lambda texts: translate_in_batches(texts, model.signatures["serving_default"]).texts


def are_cut(translator, texts) -> list[bool]:
    """Whether a translator reads only the beginning of each text."""
    texts = as_tensor([text.strip() for text in texts])
    lengths = translator.tokenizer.tokenize(texts).row_lengths() + 1
    return (lengths > translator.graph.max_source_length).numpy().tolist()
