"""Rotary positions: the paper's rotation, and what attention sees of it."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import Decoder, MultiHeadAttention
from keras_transformer.layers.attention_memory import KVCache
from keras_transformer.layers.rotary import rotate


def as_array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def rotated_by_complex_numbers(x, positions):
    """Pairs as complex numbers, times `exp(i m theta)`, in float64; positions (B, T)."""
    d = x.shape[-1]
    theta = 10000.0 ** (-2 * np.arange(d // 2) / d)
    numbers = x[..., 0::2].astype("float64") + 1j * x[..., 1::2]  # (B, H, T, d/2)
    numbers = numbers * np.exp(1j * positions[:, None, :, None] * theta)
    return np.stack([numbers.real, numbers.imag], axis=-1).reshape(x.shape)


@pytest.mark.parametrize("d", [2, 4, 10, 64])
def test_pairs_turn_as_complex_numbers_do(random, d):
    x, positions = random(2, 3, 5, d), np.array([[0, 1, 2, 3, 4], [7, 7, 100, 0, 2000]])
    expected = rotated_by_complex_numbers(x, positions)
    np.testing.assert_allclose(as_array(rotate(x, positions)), expected, rtol=0, atol=1e-3)
    near = positions % 100
    expected = rotated_by_complex_numbers(x, near)
    np.testing.assert_allclose(as_array(rotate(x, near)), expected, rtol=0, atol=5e-5)


def test_positions_of_all_rows_are_those_of_each(random):
    x, positions = random(2, 3, 4, 6), np.array([3, 1, 4, 15])
    expected = as_array(rotate(x, np.tile(positions, (2, 1))))
    np.testing.assert_array_equal(as_array(rotate(x, positions)), expected)
    np.testing.assert_array_equal(as_array(rotate(x, 0 * positions)), x)
    from_seven = as_array(rotate(x, np.arange(7, 11)))
    np.testing.assert_array_equal(as_array(rotate(x, first=7)), from_seven)


@pytest.mark.parametrize("shift", [1, 17, 1000])
def test_products_depend_on_the_distance_alone(random, shift):
    """And they do depend on it."""
    query, key, places = random(1, 2, 6, 8), random(1, 2, 6, 8), np.arange(6)

    def products(query_places, key_places):
        turned = as_array(rotate(query, query_places)), as_array(rotate(key, key_places))
        return turned[0] @ turned[1].swapaxes(2, 3)

    expected = products(places, places)
    moved = products(places + shift, places + shift)
    np.testing.assert_allclose(moved, expected, rtol=0, atol=2e-3)
    assert np.abs(products(places + shift, places) - expected).max() > 0.1


def test_lengths_stay(random):
    x = random(2, 2, 5, 8)
    turned = as_array(rotate(x, np.arange(5) * 31))
    np.testing.assert_allclose(
        np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5
    )


def test_half_precision_is_rounded_once(random):
    x = ops.cast(random(1, 2, 5, 8), "bfloat16")
    turned = rotate(x, np.arange(5) + 300)
    exact = rotate(ops.cast(x, "float32"), np.arange(5) + 300)
    assert turned.dtype == x.dtype
    np.testing.assert_array_equal(as_array(turned), as_array(ops.cast(exact, "bfloat16")))


def test_attention_turns_queries_and_keys_and_no_values(random, randomize):
    """Against plain attention of the same weights, whose heads are turned outside."""
    layer, x = MultiHeadAttention(d_model=8, num_heads=2, rotary=True), random(2, 5, 8)
    layer.build(x.shape)
    w_q, b_q, w_m, b_m, output_kernel, output_bias = (
        w.astype("float64") for w in randomize(layer).get_weights()
    )
    query, key, value = (
        part.reshape(2, 5, 2, 4).swapaxes(1, 2)
        for part in (x @ w_q + b_q, *np.split(x @ w_m + b_m, 2, axis=-1))
    )
    places = np.tile(np.arange(5), (2, 1))
    query, key = (rotated_by_complex_numbers(part, places) for part in (query, key))
    scores = np.exp(query @ key.swapaxes(2, 3) / 2) * np.tril(np.ones((5, 5)))
    scores /= scores.sum(-1, keepdims=True)
    heads = (scores @ value).swapaxes(1, 2).reshape(2, 5, 8)
    output = as_array(layer(x, use_causal_mask=True))
    np.testing.assert_allclose(output, heads @ output_kernel + output_bias, rtol=0, atol=1e-5)


@pytest.fixture
def decoder(randomize):
    """A decoder-only stack of modern layers."""
    decoder = Decoder(
        num_layers=2,
        d_model=8,
        num_heads=2,
        d_ff=16,
        activation="swiglu",
        norm_first=True,
        norm="rms_norm",
        rotary=True,
        cross_attention=False,
    )
    decoder.build((None, None, 8))
    return randomize(decoder)


def test_a_stack_sees_distances_and_no_places(decoder, random):
    x = random(2, 6, 8)
    output = as_array(decoder(x))
    moved = as_array(decoder(x, position_ids=np.arange(6) + 50))
    np.testing.assert_allclose(moved, output, rtol=0, atol=1e-4)
    stretched = as_array(decoder(x, position_ids=np.arange(6) * 2))
    assert np.abs(stretched - output).max() > 1e-2


def empty_caches(decoder, batch_size, length):
    shape = (batch_size, 2, length, 4)
    return [KVCache(ops.zeros(shape), ops.zeros(shape)) for _ in decoder.layers]


@pytest.mark.parametrize("chunks", [[1] * 6, [4, 2], [6]])
def test_cached_chunks_equal_one_full_pass(decoder, random, chunks):
    x = random(2, 6, 8)
    expected = as_array(decoder(x))
    caches, outputs = empty_caches(decoder, 2, length=7), []
    for chunk in np.split(x, np.cumsum(chunks)[:-1], axis=1):
        outputs.append(as_array(decoder(chunk, cache=caches)))
        for cache in caches:
            cache.index += chunk.shape[1]
    np.testing.assert_allclose(np.concatenate(outputs, 1), expected, rtol=0, atol=1e-5)


def test_places_in_the_cache_need_not_be_positions(decoder, random):
    """As in a search, where the keys of several hypotheses lie side by side."""
    x = random(1, 3, 8)
    expected = as_array(decoder(x))
    caches, visible = empty_caches(decoder, 1, length=8), np.zeros((1, 1, 8), bool)
    for t, place in enumerate([1, 4, 6]):
        visible[..., place] = True
        for cache in caches:
            cache.index = place
        ids = np.array([[t]])
        output = decoder(x[:, t : t + 1], attention_mask=visible, cache=caches, position_ids=ids)
        np.testing.assert_allclose(as_array(output)[:, 0], expected[:, t], rtol=0, atol=1e-5)


def test_wrong_uses_are_named(random):
    with pytest.raises(ValueError, match="d_model=6 and num_heads=2 make heads of width 3; choose"):
        MultiHeadAttention(d_model=6, num_heads=2, rotary=True)
    layer, x = MultiHeadAttention(d_model=8, num_heads=2, rotary=True), random(1, 4, 8)
    layer.build(x.shape)
    for arguments in ({"value": x}, {"key": x}, {"value": layer.project_memory(x)}):
        with pytest.raises(ValueError, match="rotary attention is self-attention: call it with"):
            layer(random(1, 3, 8), **arguments)
