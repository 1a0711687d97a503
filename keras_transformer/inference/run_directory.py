"""A trained model on disk: data only, checked by its hashes, never pickled code."""

import json
from pathlib import Path

from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.files import MAX_JSON_BYTES, FileError, parse_object
from keras_transformer.inference.run_config import FORMATS, build, check_config, make_config
from keras_transformer.inference.run_files import (
    CONFIG,
    MANIFEST,
    TOKENIZER,
    WEIGHTS,
    is_run,
    read_files,
    write_files,
)
from keras_transformer.models.language_model import LanguageModel
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.weights import declared_shapes, load_weights, weights_as_bytes
from keras_transformer.type_hints import StrPath
from keras_transformer.version_directory import saved_model_path

Model = Transformer | LanguageModel


class RunError(ValueError):
    """A run directory that is missing, damaged or not ours, or a model that none can hold.

    Example:
        >>> try:
        ...     load_run("missing")
        ... except RunError as error:
        ...     print(error)
        missing is no directory; name one that training has written.
    """


def save_run(
    model: Model, tokenizer: Tokenizer, directory: StrPath, *, dtype: str | None = None
) -> None:
    """Writes a model and its tokenizer, so that at every moment the old or the new run loads.

    Args:
        model: a `Transformer` or a `LanguageModel`; the optimizer is left out.
        tokenizer: its `Tokenizer`.
        directory: created where it is missing.
        dtype: the dtype policy of the model when it is loaded, that of `model` by default.

    Raises:
        RunError: if `load_run` could not load it: a subclass, a function of yours as activation,
            weights that are NaN, a tokenizer of another vocabulary.
        OSError: if a file cannot be written; the message names it, and the run stays as it was.

    Example:
        >>> import tempfile
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        >>> model = LanguageModel(**sizes, vocab_size=tokenizer.vocab_size)
        >>> directory = tempfile.mkdtemp()
        >>> save_run(model, tokenizer, directory)
        >>> model, tokenizer = load_run(directory)
        >>> type(model).__name__
        'LanguageModel'
    """
    directory = Path(directory)
    try:
        weights = weights_as_bytes(model)
        shapes = declared_shapes(weights)
        config = make_config(model, shapes, dtype)
        check_config(config, shapes, tokenizer.vocab_size)
    except ValueError as error:
        raise RunError(f"The model cannot be saved in {directory}: {_line(error)}.") from error
    text = json.dumps(config, indent=2) + "\n"
    contents = {CONFIG: text.encode(), TOKENIZER: tokenizer.model, WEIGHTS: weights}
    write_files(directory, contents)


def load_run(directory: StrPath) -> tuple[Model, Tokenizer]:
    """Reads what `save_run` wrote, after comparing every hash; also what format 2 had.

    Args:
        directory: that of `save_run`.

    Returns:
        A `Transformer` or a `LanguageModel`, and its `Tokenizer`.

    Raises:
        RunError: if a file is missing, altered, or of another format.

    Example:
        >>> import tempfile
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        >>> model = LanguageModel(**sizes, vocab_size=tokenizer.vocab_size)
        >>> directory = tempfile.mkdtemp()
        >>> save_run(model, tokenizer, directory)
        >>> load_run(directory)[0].count_params() == model.count_params()
        True
    """
    directory = Path(directory)
    _check_is_run(directory)
    try:
        contents = read_files(directory, (CONFIG, TOKENIZER, WEIGHTS))
        config = parse_object(contents[CONFIG][:MAX_JSON_BYTES], directory / CONFIG)
    except FileError as error:
        raise RunError(str(error)) from error
    if config.get("format") not in FORMATS:
        raise RunError(
            f"{directory} is a run of format {config.get('format')!r}, but this version reads only "
            f"{FORMATS[0]} to {FORMATS[-1]}; train again, or install the version that wrote it."
        )
    try:
        tokenizer, weights = Tokenizer(contents[TOKENIZER]), contents[WEIGHTS]
        check_config(config, declared_shapes(weights), tokenizer.vocab_size)
        model = build(config)
        load_weights(model, weights)
    except Exception as error:  # parsers and Keras have no list of what they raise for such files
        raise RunError(f"{directory} holds no model that fits: {_line(error)}.") from error
    return model, tokenizer


def load_class(directory: StrPath, model_class: type[Model], other: str):
    """Reads a run of one class of models; `other` is the function for those of another."""
    model, tokenizer = load_run(directory)
    if not isinstance(model, model_class):
        found, wanted = type(model).__name__, model_class.__name__
        raise RunError(f"{directory} holds a {found}, not a {wanted}; use {other}.")
    return model, tokenizer


def _check_is_run(directory: Path) -> None:
    if not directory.is_dir():
        raise RunError(f"{directory} is no directory; name one that training has written.")
    if not is_run(directory):
        if saved_model_path(directory):
            raise RunError(f"{directory} is an export; name the run that it was made from.")
        raise RunError(f"{directory} is no run: {MANIFEST} is missing; was training cut short?")


def _line(error) -> str:
    """Returns an error's message as a short line."""
    return " ".join((str(error) or type(error).__name__).split())[:500].rstrip(".")
