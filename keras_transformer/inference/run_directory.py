"""A trained model on disk: data only, checked by its hashes, never pickled code."""

import hashlib
import json
from pathlib import Path

from keras_transformer._typing import StrPath
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.strategies import Strategy
from keras_transformer.inference.text_generator import TextGenerator
from keras_transformer.inference.translator import Translator
from keras_transformer.models.language_model import LanguageModel
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.checkpoints import replacing
from keras_transformer.version_directory import saved_model_path

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.weights.h5", "tokenizer.model"
MANIFEST = "manifest.json"
FORMAT = 2
OF_KERAS = ("name", "trainable", "dtype")  # what Keras adds to a model's arguments
Model = Transformer | LanguageModel
MODELS = {"Transformer": Transformer, "LanguageModel": LanguageModel}


class RunError(ValueError):
    """A run directory that is missing, damaged or not ours.

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
    """Writes a model and its tokenizer; each file replaces its predecessor whole.

    Args:
        model: a `Transformer` or a `LanguageModel`.
        tokenizer: its `Tokenizer`.
        directory: created where it is missing.
        dtype: the dtype policy of the model when it is loaded, that of `model` by default.

    Raises:
        OSError: if it cannot be written.

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
    directory.mkdir(parents=True, exist_ok=True)
    arguments = model.get_config()
    config = {
        "format": FORMAT,
        "class": type(model).__name__,
        "dtype": dtype or model.dtype_policy.name,
        "parameters": model.count_params(),
        "model": {name: arguments[name] for name in arguments if name not in OF_KERAS},
    }
    hashes = {}
    for name, write in (
        (CONFIG, lambda path: _write_json(path, config)),
        (TOKENIZER, tokenizer.save),
        (WEIGHTS, model.save_weights),
        (MANIFEST, lambda path: _write_json(path, hashes)),
    ):
        with replacing(directory / name) as path:
            write(path)
        hashes[name] = _sha256(directory / name)


def is_run(directory: StrPath) -> bool:
    """Whether `directory` looks like one that `save_run` wrote."""
    return (Path(directory) / MANIFEST).is_file()


def load_run(directory: StrPath) -> tuple[Model, Tokenizer]:
    """Reads what `save_run` wrote, after comparing every hash.

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
    _verify(directory)
    config = json.loads((directory / CONFIG).read_text("utf-8"))
    if config.get("format") != FORMAT:
        raise RunError(
            f"{directory} is a run of format {config.get('format')!r}, but this version reads only "
            f"{FORMAT}; train again, or install the version that wrote it."
        )
    tokenizer = Tokenizer.load(directory / TOKENIZER)
    try:
        model_class = MODELS[config["class"]]
        model = model_class(**config["model"], dtype=config["dtype"])
        # Keras loads the weights of a deeper model into a shallower one without a word.
        if (count := model.count_params()) != (saved := config["parameters"]):
            raise ValueError(f"the weights are {saved} numbers, the configured model has {count}")
        model.load_weights(directory / WEIGHTS)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{directory} holds no model that fits: {error}") from error
    return model, tokenizer


def load_translator(directory: StrPath, strategy: Strategy | str = "beam", **options) -> Translator:
    """A `Translator` from a run directory.

    Args:
        directory: that of `save_run`.
        strategy, options: arguments of `Translator`.

    Returns:
        A `Translator`.

    Raises:
        RunError, ValueError: as `load_run` and `Translator`.

    Example:
        >>> import tempfile
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        >>> model = Transformer(**sizes, source_vocab_size=tokenizer.vocab_size)
        >>> directory = tempfile.mkdtemp()
        >>> save_run(model, tokenizer, directory)
        >>> load_translator(directory, "greedy", max_length=9)(["", " "])
        ['', '']
    """
    parts = _load_class(directory, Transformer, "load_generator")
    return Translator(*parts, strategy, **options)


def load_generator(
    directory: StrPath, strategy: Strategy | str = "greedy", **options
) -> TextGenerator:
    """A `TextGenerator` from a run directory.

    Args:
        directory: that of `save_run`.
        strategy, options: arguments of `TextGenerator`.

    Returns:
        A `TextGenerator`.

    Raises:
        RunError, ValueError: as `load_run` and `TextGenerator`.

    Example:
        >>> import tempfile
        >>> tokenizer = Tokenizer.train_on_texts(["a dog runs"] * 9, vocab_size=300)
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
        >>> model = LanguageModel(**sizes, vocab_size=tokenizer.vocab_size)
        >>> directory = tempfile.mkdtemp()
        >>> save_run(model, tokenizer, directory)
        >>> load_generator(directory, max_length=9).strategy == Greedy()
        True
    """
    parts = _load_class(directory, LanguageModel, "load_translator")
    return TextGenerator(*parts, strategy, **options)


def _load_class(directory, model_class, other):
    model, tokenizer = load_run(directory)
    if not isinstance(model, model_class):
        found, wanted = type(model).__name__, model_class.__name__
        raise RunError(f"{directory} holds a {found}, not a {wanted}; use {other}.")
    return model, tokenizer


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
