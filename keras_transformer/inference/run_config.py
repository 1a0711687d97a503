"""The config of a run: what makes its model, compared with its weights before anything is built."""

import inspect
import math
import warnings

import keras

from keras_transformer.checks import check_choice, check_int
from keras_transformer.layers.arguments import OF_KERAS
from keras_transformer.layers.feed_forward import GATES
from keras_transformer.models.language_model import LanguageModel
from keras_transformer.models.transformer import Transformer

FORMAT, FORMATS = 3, (2, 3)  # written, and read
MODELS = {"Transformer": Transformer, "LanguageModel": LanguageModel}
VOCABULARIES = ("source_vocab_size", "target_vocab_size", "vocab_size")
SIZES = ("num_layers", "num_decoder_layers", "d_model", "num_heads", "d_ff", "max_length")
# The fewest arrays of a layer: kernels of attention and feed-forward, scales of norms.
LEAST_ARRAYS = 7
# The numbers of the largest table of sinusoids that is always read; a larger one may have this
# multiple of the weights.
SINUSOIDS, SINUSOIDS_PER_WEIGHT = 2**24, 4


def make_config(model, shapes, dtype=None) -> dict:
    """Describes a model by JSON data.

    Args:
        model: a `Transformer` or a `LanguageModel`.
        shapes: of its weights, from `declared_shapes`.
        dtype: the name of a dtype policy; that of `model` by default.
    """
    if type(model) not in MODELS.values():
        raise ValueError(
            f"it must be a {' or a '.join(MODELS)} itself, but is a {type(model).__name__}; save "
            "the weights of other models with save_weights"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a function as activation, which is refused later
        arguments = model.get_config()
    return {
        "format": FORMAT,
        "class": type(model).__name__,
        "dtype": dtype or model.dtype_policy.name,
        "parameters": _total(shapes),
        "model": {name: arguments[name] for name in arguments if name not in OF_KERAS},
    }


def build(config: dict):
    """Builds the model of a config that `check_config` has seen."""
    return MODELS[config["class"]](**config["model"], dtype=config["dtype"])


def check_config(config: dict, shapes: dict, num_pieces: int) -> None:
    """Raises a ValueError if a config makes no model, or one of other sizes than its weights.

    Args:
        config: from `make_config`, or read from a file.
        shapes: of the weights, from `declared_shapes`.
        num_pieces: the number of ids of the tokenizer.
    """
    model_class = MODELS[check_choice("class", config.get("class"), tuple(MODELS))]
    policy = keras.DTypePolicy(_word("dtype", config.get("dtype")))
    if "float" not in policy.variable_dtype or "float" not in policy.compute_dtype:
        raise ValueError(f"dtype must be of floating-point numbers, but is {policy.name!r}")
    arguments = config.get("model")
    if not isinstance(arguments, dict):
        raise ValueError(f"model must hold the arguments of a model, but is {arguments!r}")
    _check_arguments(model_class, arguments)
    for name in VOCABULARIES:
        if arguments.get(name) is not None and arguments[name] < num_pieces:
            raise ValueError(
                f"{name}={arguments[name]}, but the tokenizer has {num_pieces} ids; use the "
                "tokenizer that the model was trained with"
            )
    _check_sizes(arguments, shapes)
    if config.get("parameters") != (total := _total(shapes)):
        raise ValueError(f"it has {config.get('parameters')!r} parameters, the weights are {total}")


def _check_arguments(model_class, arguments) -> None:
    known = inspect.signature(model_class).parameters
    wrong = [name for name in arguments if name not in known]
    wrong += [
        name
        for name, parameter in known.items()
        if parameter.kind is parameter.KEYWORD_ONLY
        and parameter.default is parameter.empty
        and name not in arguments
    ]
    if wrong:
        raise ValueError(f"{model_class.__name__} has other arguments: {', '.join(wrong)}")
    for name, value in arguments.items():
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"{name} must be a number or a word, but is {value!r}")
        if value is not None and name in (*SIZES, *VOCABULARIES):
            check_int(name, value, 1)
    activation = arguments.get("activation", "relu")
    if activation not in GATES:
        keras.activations.get(_word("activation", activation))


def _check_sizes(arguments, shapes) -> None:
    """Compares sizes with those of the weights, so that no small file makes a large model."""
    total, d_model, d_ff = _total(shapes), arguments["d_model"], arguments["d_ff"]
    depth = arguments["num_layers"]
    if "source_vocab_size" in arguments:
        depth += arguments.get("num_decoder_layers") or depth
    rows = sum(arguments.get(name) or 0 for name in VOCABULARIES)
    if arguments.get("tied_embeddings", "all") == "all":
        rows -= arguments.get("target_vocab_size") or 0
    least = d_model * (rows + depth * (4 * d_model + 2 * d_ff))
    if least > total or LEAST_ARRAYS * depth > len(shapes):
        sizes = {name: arguments[name] for name in (*SIZES, *VOCABULARIES) if name in arguments}
        raise ValueError(f"the weights are {len(shapes)} arrays of {total} numbers, not of {sizes}")
    most = max(SINUSOIDS, SINUSOIDS_PER_WEIGHT * total)
    has_sinusoids = arguments.get("positions", "sinusoidal") == "sinusoidal"
    if has_sinusoids and arguments.get("max_length", 1) * d_model > most:
        raise ValueError(
            f"max_length={arguments['max_length']} times d_model={d_model} is over {most}; use a "
            'smaller max_length, or positions="rotary"'
        )


def _total(shapes) -> int:
    return sum(map(math.prod, shapes.values()))


def _word(name, value) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a word, but is {value!r}")
    return value
