"""Each fast form of attention against the formula: the outputs, and TensorFlow's gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import MultiHeadAttention
from keras_transformer.layers import fast_attention
from keras_transformer.layers.attention import dot_product_attention
from keras_transformer.layers.fast_attention import (
    attention,
    fused_attention,
    memory_efficient_attention,
)

PADDED = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]], bool)  # one row without keys


@pytest.fixture(autouse=True)
def four_queries_are_many(monkeypatch):
    monkeypatch.setattr(fast_attention, "LONG", 4)


def plain(query, key, value, mask=None, is_causal=False):
    return dot_product_attention(query, key, value, mask)[0]


def attention_in_training(query, key, value, mask=None, is_causal=False):
    return attention(query, key, value, mask, is_causal=is_causal, training=True)[0]


def tensors(num_queries, num_keys=None, dtype="float32"):
    """Query, key, value and the gradient of the output, of 3 sentences and 2 heads."""
    rng = np.random.default_rng(0)
    lengths = (num_queries, num_keys or num_queries, num_keys or num_queries, num_queries)
    return [
        tf.cast(rng.normal(size=(3, 2, length, width)), dtype)
        for length, width in zip(lengths, (4, 4, 6, 6), strict=True)
    ]


def output_and_gradients(function, query, key, value, upstream, *args):
    with tf.GradientTape() as tape:
        tape.watch([query, key, value])
        output = function(query, key, value, *args)
    return [output, *tape.gradient(output, [query, key, value], output_gradients=upstream)]


def causal(length, padded=None):
    mask = np.tril(np.ones((1, 1, length, length), bool))
    return mask if padded is None else mask & padded[:, None, None, :length]


@pytest.mark.parametrize(
    "num_queries, mask",
    [
        (3, None),
        (5, None),
        (5, PADDED[:, None, None]),  # (B, 1, 1, S)
        (5, np.random.default_rng(1).random((3, 1, 5, 5)) > 0.6),
        (5, np.eye(5, dtype=bool)[None, None] & False),
    ],
)
def test_output_and_gradients_are_those_of_the_plain_formula(num_queries, mask):
    num_keys = 5 if mask is None else mask.shape[-1]
    arguments = *tensors(num_queries, num_keys), mask
    found = output_and_gradients(attention_in_training, *arguments)
    expected = output_and_gradients(plain, *arguments)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_scores_of_a_single_key_have_no_gradient():
    query, key, value, upstream = tensors(5, 1)
    found = output_and_gradients(attention_in_training, query, key, value, upstream)
    for gradient in found[1:3]:
        np.testing.assert_allclose(gradient, np.zeros_like(gradient), atol=1e-5)
    expected = output_and_gradients(plain, query, key, value, upstream)[3]
    np.testing.assert_allclose(found[3], expected, rtol=1e-5)


@pytest.mark.parametrize("length", [3, 4, 5, 9])
@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
def test_whole_and_halves_agree_with_the_plain_formula_on_either_side_of_many(
    length, in_graph, is_causal
):
    arguments = *tensors(length), causal(length), is_causal
    function = attention_in_training
    if in_graph:  # of any length, as in `fit`
        shapes = [tf.TensorSpec((None, 2, None, x.shape[-1])) for x in arguments[:4]]
        mask = tf.TensorSpec((1, 1, None, None), "bool")

        @tf.function(input_signature=[*shapes, mask], autograph=False)
        def graph(query, key, value, upstream, mask):
            args = query, key, value, upstream, mask, is_causal
            return output_and_gradients(attention_in_training, *args)

        found = graph(*arguments[:5])
    else:
        found = output_and_gradients(function, *arguments)
    expected = output_and_gradients(plain, *arguments)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_halves_keep_the_mask_of_padding():
    mask = causal(5, np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 0, 0, 0, 0]], bool))
    arguments = *tensors(5), mask, True
    found = output_and_gradients(attention_in_training, *arguments)
    for a, b in zip(found, output_and_gradients(plain, *arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_in_half_precision_it_errs_little_more_than_the_plain_formula(dtype):
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(4, 2, 64, 32)) for _ in range(4)]
    exact, derived, found = (
        output_and_gradients(function, *(tf.cast(x, kind) for x in inputs), causal(64), True)
        for function, kind in ((plain, "float64"), (plain, dtype), (attention_in_training, dtype))
    )
    for a, b, c in zip(found, derived, exact, strict=True):
        assert a.dtype == dtype
        error, usual = (np.abs(tf.cast(x, "float64") - c).mean() for x in (a, b))
        assert error < 1.4 * usual


def test_a_large_gradient_of_one_query_reaches_no_other():
    query, key, value, upstream = tensors(5)
    gradient = output_and_gradients(memory_efficient_attention, query, key, value, upstream)[1]
    upstream = tf.tensor_scatter_nd_update(upstream, [[0, 0, 2]], [tf.fill([6], 1e6)])
    changed = output_and_gradients(memory_efficient_attention, query, key, value, upstream)[1]
    differs = np.any(np.asarray(gradient) != np.asarray(changed), axis=-1)  # (B, H, T)
    assert np.argwhere(differs).tolist() == [[0, 0, 2]]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_layer_has_one_gradient_in_training_and_outside(jit_compile):
    layer = MultiHeadAttention(d_model=8, num_heads=2)
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 6, 8)), "float32")
    layer.build(x.shape)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def step(training):
        with tf.GradientTape() as tape:
            output = layer(x, use_causal_mask=True, training=training)
            loss = tf.reduce_sum(output**2)
        return tape.gradient(loss, [v.value for v in layer.trainable_variables])

    for a, b in zip(step(True), step(False), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_fewer_keys_than_queries_may_be_causal():
    layer, rng = MultiHeadAttention(d_model=8, num_heads=2), np.random.default_rng(0)
    x, value = (rng.normal(size=(1, length, 8)).astype("float32") for length in (9, 2))
    outputs = [layer(x, value, use_causal_mask=True, training=flag) for flag in (True, False)]
    np.testing.assert_allclose(*map(keras.ops.convert_to_numpy, outputs), rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 1, 1, 5), (1, 1, 3, 5), (1, 1, 1, 5), (2, 1, 3, 5)])
def test_the_fused_kernel_gives_the_formula_and_sees_a_mask_of_every_query(
    monkeypatch, random, shape
):
    query, key, value = random(2, 4, 3, 8), random(2, 4, 5, 8), random(2, 4, 5, 8)
    mask = (np.arange(5) < np.arange(3, 3 + shape[0])[:, None, None, None]) & np.ones(shape, bool)
    masks, of_keras = [], ops.dot_product_attention

    def fused_kernel(*args, mask):
        masks.append(mask)
        return of_keras(*args, mask=mask)

    monkeypatch.setattr(ops, "dot_product_attention", fused_kernel)
    expected, _ = dot_product_attention(query, key, value, mask)
    np.testing.assert_allclose(fused_attention(query, key, value, mask), expected, atol=1e-5)
    assert [mask.shape for mask in masks] == [(shape[0], 1, 3, 5)]


@pytest.mark.parametrize("needs_scores", [False, True])
@pytest.mark.parametrize("dropout", [None, lambda scores: 2 * scores])
def test_scores_are_made_only_if_wanted_and_dropout_acts_on_them(needs_scores, dropout):
    query, key, value, _ = tensors(5)
    options = {"needs_scores": needs_scores, "dropout": dropout, "training": True}
    output, scores = attention(query, key, value, **options)
    expected, expected_scores = dot_product_attention(query, key, value)
    factor = 1 if dropout is None else 2
    np.testing.assert_allclose(output, factor * expected, rtol=1e-5, atol=1e-6)
    if needs_scores or dropout is not None:
        np.testing.assert_array_equal(scores, expected_scores)
    else:
        assert scores is None
