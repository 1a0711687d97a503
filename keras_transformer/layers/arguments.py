"""What a layer was constructed with: for its config, and for the layers that it makes."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, TypedDict

import keras
import numpy as np


class LayerOptions(TypedDict, total=False):
    """What all layers of a stack have in common, besides their sizes; see `EncoderLayer`.

    The models take these as keywords of their own and hand them on as one bag.
    """

    dropout: float
    attention_dropout: float
    feed_forward_dropout: float
    activation: str | Callable
    norm_first: bool
    norm: str
    use_bias: bool
    rotary: bool
    cross_attention: bool


def keep_arguments(layer: keras.layers.Layer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps what `layer` is constructed with, for `config_of`.

    Keras's own way does without, but fails on activations that are functions, on NumPy's numbers
    and, in silence, on models.

    Args:
        layer: the layer, in its `__init__`, after `super().__init__()`.
        arguments: `locals()` of its `__init__`.

    Returns:
        The arguments by name, without `self` and Keras's own.
    """
    of_keras = ("self", "__class__", "kwargs", "options", "name", "dtype", "trainable")
    kept = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in {**arguments, **arguments.get("options", {})}.items()
        if name not in of_keras
    }
    layer.arguments = SimpleNamespace(**kept)
    return kept


def config_of(layer: keras.layers.Layer) -> dict[str, Any]:
    """The arguments that `keep_arguments` kept, as JSON has them."""
    config = {}
    for name, value in vars(layer.arguments).items():
        if callable(value):
            value = keras.activations.serialize(value)
        config[name] = list(value) if isinstance(value, tuple) else value
    return config


def layer_options(arguments: Mapping[str, Any]) -> LayerOptions:
    """Those of a model's arguments that its layers share."""
    return LayerOptions(**{k: v for k, v in arguments.items() if k in LayerOptions.__annotations__})
