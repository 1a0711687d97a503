"""What `translate` and `evaluate` call to get from strings to strings."""

from pathlib import Path

import tensorflow as tf

from keras_transformer.export.run_directory import is_run, load_translator
from keras_transformer.export.saved_model import saved_model_path

EXPORT_BATCH_SIZE = 32


def search_options(options) -> dict:
    """The arguments of a `Translator` that were given on the command line."""
    names = ("search", "beam_size", "length_penalty")
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def load(path, options):
    """A function from a list of strings to a list of strings, from a run or an export.

    Raises:
        ValueError: if `path` is neither, or search options are given for an export.
    """
    if is_run(path):
        return load_translator(path, **search_options(options))
    exported = saved_model_path(path)
    if exported is None:
        what = "is neither a run nor an export" if Path(path).exists() else "does not exist"
        raise ValueError(f"{path} {what}; name a directory that train or export has written.")
    if given := search_options(options):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{path} is an export, whose search is fixed; leave out {names}.")
    return load_export(exported)


def load_export(path):
    import tensorflow_text  # noqa: F401, the SavedModel holds its ops

    model = tf.saved_model.load(str(path))
    signature = model.signatures["serving_default"]

    def translate(texts):
        translations = [""] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), EXPORT_BATCH_SIZE):
            rows = order[start : start + EXPORT_BATCH_SIZE]
            output = signature(tf.constant([texts[i] for i in rows]))["translation"].numpy()
            for i, text in zip(rows, output, strict=True):
                translations[i] = text.decode()
        # The signature lives as long as the model that owns its variables.
        assert model is not None
        return translations

    return translate
