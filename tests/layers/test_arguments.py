"""Arguments that are True or False: booleans of Python and NumPy, and nothing else."""

import json

import keras
import numpy as np
import pytest

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    Forecaster,
    LanguageModel,
    MultiHeadAttention,
    PositionalEmbedding,
    SequenceClassifier,
    Transformer,
    TransformerSchedule,
)
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.residual import Residual

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8}
STACK = {"num_layers": 1, **SIZES}
SERIES = {"history_length": 4, "horizon": 2, **STACK}
CASES = [
    (MultiHeadAttention, {"d_model": 8, "num_heads": 2}, ("rotary", "use_bias")),
    (FeedForward, {"d_model": 8, "d_ff": 8}, ("use_bias",)),
    (PositionalEmbedding, {"vocab_size": 9, "d_model": 8}, ("sinusoids",)),
    (Residual, {}, ("norm_first",)),
    (Dense, {"units": 8}, ("use_bias",)),
    (EncoderLayer, SIZES, ("norm_first", "rotary", "use_bias")),
    (DecoderLayer, SIZES, ("norm_first", "rotary", "use_bias", "cross_attention")),
    (Encoder, STACK, ("norm_first", "rotary", "use_bias")),
    (Decoder, STACK, ("norm_first", "rotary", "use_bias", "cross_attention")),
    (Transformer, {**STACK, "source_vocab_size": 9}, ("norm_first", "use_bias")),
    (LanguageModel, {**STACK, "vocab_size": 9}, ("norm_first", "use_bias")),
    (SequenceClassifier, {**STACK, "vocab_size": 9, "num_classes": 3}, ("norm_first", "use_bias")),
    (Forecaster, SERIES, ("norm_first", "use_bias")),
]
PAIRS = [(case[0], case[1], name) for case in CASES for name in case[2]]


@pytest.mark.parametrize(("layer_class", "arguments", "name"), PAIRS)
def test_booleans_are_checked_and_kept(layer_class, arguments, name):
    for value in (True, np.bool_(False)):
        config = layer_class(**arguments, **{name: value}).get_config()
        loaded = layer_class.from_config(json.loads(json.dumps(config)))
        assert loaded.get_config()[name] is bool(value)
    for value in ("no", 0, 1, 1.0, None, [True], np.int64(1), float("nan")):
        with pytest.raises(ValueError, match=f"{name} must be True or False, but is"):
            layer_class(**arguments, **{name: value})


@pytest.mark.parametrize("value", [["layer_norm"], None, 1, b"rms_norm"])
def test_a_norm_of_another_type_is_refused_by_name(value):
    with pytest.raises(ValueError, match="norm must be one of"):
        EncoderLayer(**SIZES, norm=value)


@pytest.mark.parametrize("value", [None, "8", 8.5, -8, True])
def test_a_forecaster_names_its_width(value):
    with pytest.raises(ValueError, match="d_model must be"):
        Forecaster(**{**SERIES, "d_model": value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", None),
        ("scale", "1"),
        ("scale", float("inf")),
        ("total_steps", 1.5),
        ("total_steps", -1),
        ("cooldown_steps", None),
        ("cooldown_steps", 0.5),
    ],
)
def test_a_schedule_names_what_is_no_number(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        TransformerSchedule(8, **{name: value})


def test_a_schedule_keeps_numbers_of_numpy():
    schedule = TransformerSchedule(
        8, scale=np.float32(0.5), cooldown_steps=np.int64(2), total_steps=np.int64(9)
    )
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(schedule)))
    assert keras.saving.deserialize_keras_object(config).get_config() == schedule.get_config()
