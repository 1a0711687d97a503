"""A translator as a SavedModel that needs no Python of ours."""

import os
import shutil
import tempfile
from pathlib import Path

import tensorflow as tf


def export_saved_model(translator, directory) -> str:
    """Writes the next version of a model directory, all of it or nothing.

    The signature `serving_default` takes `text`, strings [None], and returns `translation`,
    strings [None], and `score`, floats [None]. The version is written beside `directory` and
    renamed into it, so that a server that polls `directory` never sees half of one.

    Args:
        translator: a `Translator`.
        directory: the model's directory, created where it is missing.

    Returns:
        The path of the new version, `directory/<version>`.

    Raises:
        ValueError: if `directory` is a file.
        OSError: if it cannot be written.
    """
    directory = Path(directory).absolute()
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file; name a directory to export to.")
    directory.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        module = _serving_module(translator)
        tf.saved_model.save(
            module, str(temporary), signatures={"serving_default": module.serving_default}
        )
        temporary.chmod(0o755)
        version = directory / str(next_version(directory))
        os.rename(temporary, version)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return str(version)


def next_version(directory) -> int:
    """One more than the largest numeric name in `directory`, from 1."""
    return 1 + max(versions(directory), default=0)


def versions(directory) -> list[int]:
    """The numeric names in `directory`, those that TensorFlow Serving reads as versions."""
    return [int(entry.name) for entry in Path(directory).iterdir() if entry.name.isdecimal()]


def saved_model_path(directory):
    """The SavedModel in `directory`: itself, or its newest version; None if there is none."""
    directory = Path(directory)
    if (directory / "saved_model.pb").is_file():
        return directory
    if not directory.is_dir():
        return None
    for version in sorted(versions(directory), reverse=True):
        if (directory / str(version) / "saved_model.pb").is_file():
            return directory / str(version)
    return None


def _serving_module(translator):
    """What is saved: the graph, its weights and the tokenizer, and nothing of Keras."""
    module = tf.Module()
    module.model_weights = [weight.value for weight in translator.model.weights]
    module.tokenizer = translator.tokenizer
    module.serving_default = translator.translate_tensor
    return module
