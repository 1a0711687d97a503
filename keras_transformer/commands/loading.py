"""What `translate` and `evaluate` call to get from strings to strings."""

import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import tensorflow as tf

from keras_transformer.export.run_directory import is_run, load_translator
from keras_transformer.export.strings import as_tensor
from keras_transformer.export.translator import translate_in_batches
from keras_transformer.export.version_directory import saved_model_path
from keras_transformer.training.streams import num_cores


def search_options(options) -> dict:
    """The arguments of a `Translator` that were given on the command line."""
    names = (
        "search",
        "beam_size",
        "length_penalty",
        "coverage_penalty",
        "min_length",
        "no_repeat_ngram",
        "max_source_length",
        "max_length",
    )
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


@contextmanager
def loaded(path, options):
    """A function from a list of strings to a list of strings, from a run or an export.

    In the end it says how many of them were longer than what a run reads of one.

    Raises:
        ValueError: if `path` is neither, or search options are given for an export.
    """
    # A thread for each stream of a search; see `export.row_batches`.
    with suppress(RuntimeError):  # TensorFlow runs already, with threads of its own
        tf.config.threading.set_intra_op_parallelism_threads(1)
    if is_run(path):
        translator = load_translator(path, num_streams=num_cores(), **search_options(options))
        cut = []  # for each text, whether it is

        def translate(texts):
            cut.extend(are_cut(translator, texts))
            return translator(texts)

        yield translate
        say_cut(cut, translator.settings.max_source_length)
        return
    exported = saved_model_path(path)
    if exported is None:
        what = "is neither a run nor an export" if Path(path).exists() else "does not exist"
        raise ValueError(f"{path} {what}; name a directory that train or export has written.")
    if given := search_options(options):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{path} is an export, whose search is fixed; leave out {names}.")
    yield load_export(exported)


def are_cut(translator, texts) -> list[bool]:
    """Whether each text is longer than what a translator reads of one."""
    texts = as_tensor([text.strip() for text in texts])
    lengths = translator.tokenizer.tokenize(texts).row_lengths() + 1
    return (lengths > translator.settings.max_source_length).numpy().tolist()


def say_cut(cut, longest) -> None:
    if any(cut):
        print(
            f"note: {sum(cut)} of {len(cut)} lines are read up to token {longest}; give a larger "
            "--max-source-length, and --max-length for what is written, or a sentence a line",
            file=sys.stderr,
        )


def load_export(path):
    """A function from a list of strings to a list of strings, from a SavedModel."""
    import tensorflow_text  # noqa: F401, the SavedModel holds its ops

    model = tf.saved_model.load(str(path))

    def translate(texts):
        return translate_in_batches(texts, model.signatures["serving_default"]).texts

    return translate
