"""A trained model on disk: data only, checked by its hashes, never pickled code."""

import hashlib
import json
from pathlib import Path

from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.export.text_generator import TextGenerator
from keras_transformer.export.translator import Translator
from keras_transformer.export.version_directory import saved_model_path
from keras_transformer.models.language_model import LanguageModel
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.checkpoints import replacing

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.weights.h5", "tokenizer.model"
MANIFEST = "manifest.json"
FORMAT = 1
MODELS = {"Transformer": Transformer, "LanguageModel": LanguageModel}


class RunError(ValueError):
    """A run directory that is missing, damaged or not ours."""


def save_run(model, tokenizer, directory, *, dtype=None) -> None:
    """Writes a model and its tokenizer; each file replaces its predecessor whole.

    Args:
        model: a `Transformer` or a `LanguageModel`.
        tokenizer: its `Tokenizer`.
        directory: created where it is missing.
        dtype: the dtype policy of the model when it is loaded, that of `model` by default.

    Raises:
        OSError: if it cannot be written.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "format": FORMAT,
        "class": type(model).__name__,
        "dtype": dtype or model.dtype_policy.name,
        "parameters": model.count_params(),
        "model": _arguments(model),
    }
    with replacing(directory / CONFIG) as path:
        _write_json(path, config)
    with replacing(directory / TOKENIZER) as path:
        tokenizer.save(path)
    with replacing(directory / WEIGHTS) as path:
        model.save_weights(path)
    hashes = {name: _sha256(directory / name) for name in (CONFIG, TOKENIZER, WEIGHTS)}
    with replacing(directory / MANIFEST) as path:
        _write_json(path, hashes)


def is_run(directory) -> bool:
    """Whether `directory` looks like one that `save_run` wrote."""
    return (Path(directory) / MANIFEST).is_file()


def load_run(directory):
    """Reads what `save_run` wrote, after comparing every hash.

    Returns:
        A `Transformer` or a `LanguageModel`, and its `Tokenizer`.

    Raises:
        RunError: if a file is missing, altered, or of another format.
    """
    directory = Path(directory)
    _verify(directory)
    config = json.loads((directory / CONFIG).read_text("utf-8"))
    if config.get("format") != FORMAT:
        raise RunError(
            f"{directory / CONFIG} has format {config.get('format')!r}, but this version reads "
            f"{FORMAT}; train again, or install the version that wrote it."
        )
    tokenizer = Tokenizer.load(directory / TOKENIZER)
    try:
        # A run that names no class holds a translator.
        model_class = MODELS[config.get("class", "Transformer")]
        model = model_class(**config["model"], dtype=config["dtype"])
        _check_parameters(model, config["parameters"])
        model.load_weights(directory / WEIGHTS)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{directory} holds no model that fits: {error}") from error
    return model, tokenizer


def load_translator(directory, **settings) -> Translator:
    """A `Translator` from a run directory; settings and errors as there and in `load_run`."""
    return Translator(*_load_class(directory, Transformer, "load_generator"), **settings)


def load_generator(directory, **settings) -> TextGenerator:
    """A `TextGenerator` from a run directory; settings and errors as there and in `load_run`."""
    return TextGenerator(*_load_class(directory, LanguageModel, "load_translator"), **settings)


def _load_class(directory, model_class, other):
    model, tokenizer = load_run(directory)
    if not isinstance(model, model_class):
        found, wanted = type(model).__name__, model_class.__name__
        raise RunError(f"{directory} holds a {found}, not a {wanted}; use {other}.")
    return model, tokenizer


def _check_parameters(model, parameters: int) -> None:
    # Keras loads the weights of a deeper model into a shallower one without a word.
    if model.count_params() != parameters:
        raise ValueError(
            f"the weights are {parameters} numbers, the configured model has {model.count_params()}"
        )


def _arguments(model) -> dict:
    """The constructor arguments of a model, without what Keras adds."""
    config = model.get_config()
    return {name: config[name] for name in config if name not in ("name", "trainable", "dtype")}


def _verify(directory: Path) -> None:
    if not directory.is_dir():
        raise RunError(f"{directory} is no directory; name one that training has written.")
    manifest = directory / MANIFEST
    if not manifest.is_file():
        if saved_model_path(directory):
            raise RunError(f"{directory} is an export; name the run that it was made from.")
        raise RunError(f"{directory} is no run: {MANIFEST} is missing; was training cut short?")
    try:
        hashes = dict(json.loads(manifest.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise RunError(f"{manifest} is damaged: {error}; restore it or train again.") from error
    for name in (CONFIG, TOKENIZER, WEIGHTS):
        path = directory / name
        if not path.is_file():
            raise RunError(f"{path} is missing; restore it or train again.")
        if _sha256(path) != hashes.get(name):
            raise RunError(f"{path} is not the file that was saved; restore it or train again.")


def _write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
