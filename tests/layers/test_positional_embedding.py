import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import PositionalEmbedding
from keras_transformer.layers.positional_embedding import sinusoidal_positions

BFLOAT16_ROUNDING = 2.0**-8  # relative: half of the last of 8 significant bits


def encoding_by_the_formula(length, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same), one entry at a time."""
    table = np.zeros((length, d_model))
    for pos in range(length):
        for i in range((d_model + 1) // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            table[pos, 2 * i] = math.sin(angle)
            if 2 * i + 1 < d_model:
                table[pos, 2 * i + 1] = math.cos(angle)
    return table


def as_array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def embedding_without_tokens(**kwargs):
    """A layer whose embeddings are zero: what comes out are the positions alone."""
    layer = PositionalEmbedding(vocab_size=3, **kwargs)
    layer.build()
    layer.embeddings.assign(np.zeros((3, layer.d_model)))
    return layer


@pytest.mark.parametrize("d_model", [1, 2, 3, 5, 16, 129, 512])
def test_sinusoids_follow_the_formula(d_model):
    table = sinusoidal_positions(2048 if d_model <= 16 else 100, d_model)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table, encoding_by_the_formula(*table.shape), rtol=0, atol=1e-7)


@pytest.mark.parametrize("d_model", [2, 5, 64])
@pytest.mark.parametrize("k", [1, 7, 100])
def test_encoding_at_pos_plus_k_is_a_fixed_rotation_of_that_at_pos(d_model, k):
    pairs = d_model // 2  # the last sine of an odd width has no cosine to turn with
    rotation = np.zeros((2 * pairs, 2 * pairs))  # depends on k, not on pos
    for i in range(pairs):
        angle = k / 10000 ** (2 * i / d_model)
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
            [math.cos(angle), math.sin(angle)],
            [-math.sin(angle), math.cos(angle)],
        ]
    table = sinusoidal_positions(2000 + k, d_model)[:, : 2 * pairs].astype("float64")
    np.testing.assert_allclose(table[:-k] @ rotation.T, table[k:], rtol=0, atol=3e-7)


def test_output_is_embedding_times_root_d_model_plus_position():
    layer = PositionalEmbedding(vocab_size=11, d_model=6)
    ids = np.array([[3, 1, 10, 3], [0, 5, 5, 2]])
    output = as_array(layer(ids))
    expected = as_array(layer.embeddings)[ids] * math.sqrt(6) + encoding_by_the_formula(4, 6)
    np.testing.assert_allclose(output, expected, rtol=1e-6, atol=1e-6)


def test_scaled_embeddings_start_as_large_as_the_sinusoids():
    layer = PositionalEmbedding(vocab_size=1000, d_model=64)
    layer.build()
    assert np.std(as_array(layer.embeddings)) * math.sqrt(64) == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_position_ids_place_the_tokens(as_tensor):
    layer = PositionalEmbedding(vocab_size=11, d_model=5, max_length=8)
    ids = np.array([[3, 1, 4, 1, 5, 9, 2, 6]])
    whole = as_array(layer(ids))
    for start in (0, 3, 7):
        places = np.arange(start, 8)
        places = ops.convert_to_tensor(places) if as_tensor else places
        found = as_array(layer(ids[:, start:], position_ids=places))
        np.testing.assert_array_equal(found, whole[:, start:])


@pytest.mark.parametrize("max_length", [8, 3])
def test_each_token_may_have_a_position_of_its_own(max_length):
    layer = PositionalEmbedding(vocab_size=11, d_model=5, max_length=max_length)
    ids, places = np.array([[3, 1, 4, 1]]), np.array([[0, 2, 0, 1]])
    output = as_array(layer(ids, position_ids=places))
    for t, place in enumerate(places[0]):
        alone = as_array(layer(ids[:, t : t + 1], position_ids=np.array([place])))
        np.testing.assert_array_equal(output[:, t], alone[:, 0])


def test_without_sinusoids_only_the_embedding_is_left():
    layer = PositionalEmbedding(vocab_size=11, d_model=6, sinusoids=False)
    ids = np.array([[3, 1, 10, 3]])
    output = as_array(layer(ids, position_ids=np.arange(4, 8)))
    expected = math.sqrt(6) * as_array(layer.embeddings)[ids]
    np.testing.assert_allclose(output, expected, rtol=1e-6)


def test_sequences_longer_than_max_length_go_on_with_the_formula():
    layer = embedding_without_tokens(d_model=5, max_length=4)
    expected = encoding_by_the_formula(12, 5)
    np.testing.assert_allclose(as_array(layer(np.ones((1, 12), int)))[0], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_rounds_positions_only_once(dtype):
    layer = embedding_without_tokens(d_model=16, dtype=dtype)
    for start in (0, 1990):  # beyond 256 bfloat16 has no room for every integer
        output = layer(np.ones((1, 50), int), position_ids=np.arange(start, start + 50))
        assert keras.backend.standardize_dtype(output.dtype) == dtype.removeprefix("mixed_")
        table = encoding_by_the_formula(2040, 16)[start : start + 50].astype("float32")
        np.testing.assert_array_equal(as_array(output)[0], as_array(ops.cast(table, output.dtype)))


def test_bfloat16_output_differs_by_the_rounding_of_the_embedding_and_the_sum():
    exact = PositionalEmbedding(vocab_size=300, d_model=16)
    mixed = PositionalEmbedding(vocab_size=300, d_model=16, dtype="mixed_bfloat16")
    ids = np.arange(300)[None]  # those beyond 256 must not be rounded
    expected = as_array(exact(ids))[0]
    mixed(ids)
    mixed.set_weights(exact.get_weights())
    embedded = as_array(exact.embeddings) * math.sqrt(16)
    bound = BFLOAT16_ROUNDING * (np.abs(embedded) + np.abs(expected)) * (1 + BFLOAT16_ROUNDING)
    assert np.all(np.abs(as_array(mixed(ids))[0] - expected) <= bound)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_ids_of_any_width_are_accepted(dtype):
    layer = PositionalEmbedding(vocab_size=11, d_model=4)
    ids = [[3, 1, 10]]
    np.testing.assert_array_equal(
        as_array(layer(np.array(ids, dtype))), as_array(layer(np.array(ids, "int16")))
    )


def test_dropout_applies_to_the_sum_in_training_only():
    layer = PositionalEmbedding(vocab_size=9, d_model=8, dropout=0.999)
    ids = np.arange(8)[None]
    undropped = PositionalEmbedding(vocab_size=9, d_model=8)
    undropped(ids)
    layer(ids)
    layer.set_weights(undropped.get_weights())
    np.testing.assert_array_equal(as_array(layer(ids)), as_array(undropped(ids)))
    assert np.mean(as_array(layer(ids, training=True)) == 0) > 0.95


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"vocab_size": 0}, "vocab_size must be an integer of at least 1, but is 0"),
        ({"d_model": -1}, "d_model must be an integer of at least 1, but is -1"),
        ({"d_model": 4.0}, "d_model must be an integer of at least 1, but is 4.0"),
        ({"max_length": True}, "max_length must be an integer of at least 1, but is True"),
        ({"dropout": 1}, r"dropout must be a number in \[0, 1\), but is 1"),
        ({"dropout": "0.1"}, r"dropout must be a number in \[0, 1\), but is '0.1'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        PositionalEmbedding(**{"vocab_size": 10, "d_model": 4, **arguments})
