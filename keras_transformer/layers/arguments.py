"""The arguments of a layer: kept for its config, and passed on to the layers that it makes."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, TypedDict

import keras
import numpy as np

from keras_transformer.checks import check_bool
from keras_transformer.type_hints import Elementwise


class LayerOptions(TypedDict, total=False):
    """The arguments that the layers of a stack share, besides their sizes; see `DecoderLayer`.

    The models have them as keywords and pass them on as `**options`. Only the decoder's layers take
    `cross_attention`.
    """

    dropout: float
    attention_dropout: float
    feed_forward_dropout: float
    activation: str | Elementwise
    norm_first: bool
    norm: str
    use_bias: bool
    rotary: bool
    cross_attention: bool


# The arguments of all layers that are True or False.
BOOLEANS = ("norm_first", "use_bias", "rotary", "cross_attention", "sinusoids")

# The arguments of `keras.layers.Layer`.
OF_KERAS = ("name", "trainable", "dtype")
# What the `locals()` of an `__init__` hold besides the arguments to keep.
NOT_KEPT = ("self", "__class__", "kwargs", "options", *OF_KERAS)


def keep_arguments(layer: keras.layers.Layer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps the arguments of a layer, for `config_of`.

    Keras can record arguments itself, but that fails on functions and NumPy numbers, and silently
    on models.

    Args:
        layer: the layer, in its `__init__`, after `super().__init__()`.
        arguments: `locals()` of its `__init__`; if this takes `**options`, with them unpacked.

    Returns:
        The arguments by name, without `self` and those of `keras.layers.Layer`.

    Raises:
        ValueError: if one of `BOOLEANS` is not a boolean.
    """
    kept = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in arguments.items()
        if name not in NOT_KEPT
    }
    for name in BOOLEANS:
        if name in kept:
            check_bool(name, kept[name])
    layer.arguments = SimpleNamespace(**kept)
    return kept


def config_of(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns the arguments that `keep_arguments` kept, as values that JSON can hold."""
    config = {}
    for name, value in vars(layer.arguments).items():
        if callable(value):
            value = keras.activations.serialize(value)
        config[name] = list(value) if isinstance(value, tuple) else value
    return config


def layer_options(arguments: Mapping[str, Any]) -> LayerOptions:
    """Picks from a model's arguments those that it passes on to its layers."""
    return LayerOptions(**{k: v for k, v in arguments.items() if k in LayerOptions.__annotations__})
