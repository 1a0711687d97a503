"""The formula of attention, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.layers import attention as attention_module
from keras_transformer.layers.attention import attention, attention_scores, dot_product_attention


def as_array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def softmax(scores):
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


@pytest.mark.parametrize("masked", [False, True])
def test_pure_function_equals_the_formula(random, masked):
    query, key, value = random(2, 2, 3, 4), random(2, 2, 5, 4), random(2, 2, 5, 6)
    mask = np.tril(np.ones((1, 1, 3, 5), bool), k=2) if masked else None
    scores = query @ key.swapaxes(2, 3) / 2  # sqrt(d_k) = 2
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    output, _ = dot_product_attention(query, key, value, mask)
    np.testing.assert_allclose(as_array(output), softmax(scores) @ value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 1, 1, 5), (1, 1, 3, 5), (2, 1, 3, 5)])
def test_masked_keys_weigh_nothing_and_all_the_same_where_all_are_masked(random, shape):
    query, key, mask = 30 * random(2, 2, 3, 4), random(2, 2, 5, 4), random(*shape) > 0
    mask[0, :, 0] = False
    graph = tf.function(attention_scores)  # TensorFlow's optimizer rewrites graphs
    scores = query @ key.swapaxes(2, 3) / 2  # sqrt(d_k) = 2
    seen = np.broadcast_to(mask, scores.shape)
    scores = np.where(seen, scores, np.where(seen.any(-1, keepdims=True), -np.inf, 0.0))
    found = as_array(graph(query, key, mask))
    np.testing.assert_allclose(found, softmax(scores), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("queries", [1, None])
def test_a_mask_chooses_since_a_sum_is_fused_into_a_slow_kernel(queries):
    query, key = tf.TensorSpec((2, 4, queries, 8)), tf.TensorSpec((2, 4, None, 8))
    mask = tf.TensorSpec((1, 1, None, None), tf.bool)
    graph = tf.function(attention_scores).get_concrete_function(query, key, mask).graph
    (product,) = (op for op in graph.get_operations() if "MatMul" in op.type)
    assert [op.type for op in product.outputs[0].consumers()] == ["SelectV2"]


def test_one_query_may_have_another_dtype_than_its_keys_and_has_a_gradient(random):
    query, key = (
        ops.convert_to_tensor(random(2, 3, 1, 4)),
        ops.convert_to_tensor(random(2, 3, 5, 4)),
    )
    half = ops.cast(key, "bfloat16")
    output, _ = dot_product_attention(query, half, half)
    expected, _ = dot_product_attention(query, key, key)
    np.testing.assert_allclose(as_array(ops.cast(output, "float32")), expected, atol=0.05)

    def total(repeats):  # two equal queries have the gradient of one each
        with tf.GradientTape() as tape:
            tape.watch(query)
            queries = ops.repeat(query, repeats, axis=2)
            loss = ops.sum(dot_product_attention(queries, key, key)[0] ** 2) / repeats
        return tape.gradient(loss, query)

    np.testing.assert_allclose(total(1), total(2), atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("needs_scores", [False, True])
@pytest.mark.parametrize("dropout", [None, lambda scores: 2 * scores])
def test_a_fused_kernel_is_taken_unless_scores_are_wanted_or_dropped(
    random, monkeypatch, fused, needs_scores, dropout
):
    monkeypatch.setattr(attention_module, "HAS_FUSED_ATTENTION", fused)
    query, key, value = random(2, 2, 3, 4), random(2, 2, 5, 4), random(2, 2, 5, 4)
    mask = np.tril(np.ones((1, 1, 3, 5), bool))
    options = {"needs_scores": needs_scores, "dropout": dropout}
    output, scores = attention(query, key, value, mask, **options)
    expected, expected_scores = dot_product_attention(query, key, value, mask)
    np.testing.assert_allclose(output, expected * (1 if dropout is None else 2), atol=1e-5)
    if fused and not needs_scores and dropout is None:
        assert scores is None
    else:
        np.testing.assert_array_equal(scores, expected_scores)
