import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import MultiHeadAttention
from keras_transformer.layers.dot_product_attention import (
    attention_weights,
    batched_product,
    dot_product_attention,
    fused_attention,
)

LN3, LN4, ROOT2 = np.log(3.0), np.log(4.0), np.sqrt(2.0)


def as_array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def softmax(scores):
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def attention_in_numpy(layer, query, value, key, mask):
    """Multi-head attention in float64, a sentence, a head and a query at a time."""
    kernel, bias, output_kernel, output_bias = (w.astype("float64") for w in layer.get_weights())
    d_model, width = layer.d_model, layer.head_dim
    projected = [
        x @ kernel[:, i * d_model : (i + 1) * d_model] + bias[i * d_model : (i + 1) * d_model]
        for i, x in enumerate((query, key, value))
    ]
    merged = np.zeros(query.shape)
    for b, t, h in np.ndindex(*query.shape[:2], layer.num_heads):
        q, k, v = (x[b][:, h * width : (h + 1) * width] for x in projected)
        scores = np.where(mask[b, t], k @ q[t] / np.sqrt(width), -np.inf)
        merged[b, t, h * width : (h + 1) * width] = softmax(scores) @ v
    return merged @ output_kernel + output_bias


@pytest.fixture
def attention(randomize):
    """A layer of 2 heads in width 8, all of whose weights, biases too, are random."""

    def make(**kwargs):
        layer = MultiHeadAttention(d_model=8, num_heads=2, **kwargs)
        layer.build((None, None, 8))
        return randomize(layer)

    return make


def test_single_head_agrees_with_hand_worked_numbers():
    layer = MultiHeadAttention(d_model=2, num_heads=1)
    layer.build((None, None, 2))
    # W_Q = sqrt(2) ln 3 I and W_K = I: the score of a pair is ln 3 times its dot product.
    # The bias of the keys, 7, moves all scores of a query alike; that of the values is 0.
    query, key, value = ROOT2 * LN3 * np.eye(2), np.eye(2), np.diag([4.0, 8.0])
    layer.kernel.assign(np.concatenate([query, key, value], 1))
    layer.bias.assign([0, 0, 7, 7, 0, 0])
    layer.output_projection.kernel.assign([[1, 1], [0, 1]])
    layer.output_projection.bias.assign([10, 20])
    x = np.eye(2, dtype="float32")[None]
    # Scores of position 0: (ln 3, 0), weights (3/4, 1/4), of position 1 the reverse.
    # Values (4, 0) and (0, 8). Position 0: 3/4 (4, 0) + 1/4 (0, 8) = (3, 2); 1: (1, 6).
    # Output projection: (3, 3 + 2) + (10, 20) = (13, 25) and (1, 1 + 6) + (10, 20) = (11, 27).
    output, weights = layer(x, return_attention_scores=True)
    np.testing.assert_allclose(as_array(weights)[0, 0], [[0.75, 0.25], [0.25, 0.75]], atol=1e-6)
    np.testing.assert_allclose(as_array(output)[0], [[13, 25], [11, 27]], atol=1e-5)
    # Causal: position 0 sees itself alone, (4, 0), hence (4, 4) + (10, 20).
    causal = layer(x, use_causal_mask=True)
    np.testing.assert_allclose(as_array(causal)[0], [[14, 24], [11, 27]], atol=1e-5)


def test_two_heads_agree_with_hand_worked_numbers():
    layer = MultiHeadAttention(d_model=4, num_heads=2)
    layer.build((None, None, 4))
    query, key, value = np.zeros((4, 4)), np.eye(4), np.diag([4.0, 8.0, 5.0, 10.0])
    query[:2, :2] = ROOT2 * LN3 * np.eye(2)  # head 1 looks at the own position
    query[2:, 2:] = ROOT2 * LN4 * np.eye(2)[::-1]  # head 2 at the other one
    layer.kernel.assign(np.concatenate([query, key, value], 1))
    layer.bias.assign([0] * 8 + [1, 2, 3, 4])
    layer.output_projection.kernel.assign(np.triu(np.ones((4, 4))))  # running sums
    x = np.array([[[1, 0, 1, 0], [0, 1, 0, 1]]], "float32")
    # Head 1: weights (3/4, 1/4) and (1/4, 3/4) of the values (4, 0), (0, 8): (3, 2), (1, 6).
    # Head 2: weights (1/5, 4/5) and (4/5, 1/5) of the values (5, 0), (0, 10): (1, 8), (4, 2).
    # Weights sum to 1, so the bias of the values is added whole: (4, 4, 4, 12), (2, 8, 7, 6).
    # Running sums: (4, 8, 12, 24) and (2, 10, 17, 23).
    output, weights = layer(x, return_attention_scores=True)
    np.testing.assert_allclose(as_array(weights)[0, 0], [[0.75, 0.25], [0.25, 0.75]], atol=1e-6)
    np.testing.assert_allclose(as_array(weights)[0, 1], [[0.2, 0.8], [0.8, 0.2]], atol=1e-6)
    np.testing.assert_allclose(as_array(output)[0], [[4, 8, 12, 24], [2, 10, 17, 23]], atol=1e-5)


@pytest.mark.parametrize("num_heads", [1, 2, 8])
def test_layer_equals_loops_in_numpy(random, randomize, num_heads):
    layer = MultiHeadAttention(d_model=8, num_heads=num_heads)
    query, value, key = random(2, 3, 8), random(2, 5, 8), random(2, 5, 8)
    layer.build(query.shape, value.shape, key.shape)
    randomize(layer)
    mask = random(2, 3, 5) > -0.5
    mask[:, :, 0] = True
    expected = attention_in_numpy(layer, query, value, key, mask)
    output = layer(query, value, key, attention_mask=mask)
    np.testing.assert_allclose(as_array(output), expected, rtol=0, atol=1e-5)


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
    weights = attention_weights
    if keras.backend.backend() == "tensorflow":  # whose optimizer rewrites graphs
        weights = tf.function(attention_weights)
    scores = query @ key.swapaxes(2, 3) / 2  # sqrt(d_k) = 2
    seen = np.broadcast_to(mask, scores.shape)
    scores = np.where(seen, scores, np.where(seen.any(-1, keepdims=True), -np.inf, 0.0))
    found = as_array(weights(query, key, mask))
    np.testing.assert_allclose(found, softmax(scores), rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize("queries", [1, None])
def test_a_mask_is_subtracted_since_a_sum_is_fused_into_a_slow_kernel(queries):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tf.function needs the TensorFlow backend")
    query, key = tf.TensorSpec((2, 4, queries, 8)), tf.TensorSpec((2, 4, None, 8))
    mask = tf.TensorSpec((1, 1, None, None), tf.bool)
    graph = tf.function(attention_weights).get_concrete_function(query, key, mask).graph
    (product,) = (op for op in graph.get_operations() if "MatMul" in op.type)
    assert [op.type for op in product.outputs[0].consumers()] == ["Sub"]


@pytest.mark.parametrize("queries", [1, 2])
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 0.05)])
def test_products_of_one_query_are_those_of_many(queries, dtype, tolerance):
    """TensorFlow has another kernel for one."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3, queries, 5)), rng.normal(size=(2, 3, 5, 4))
    x, y = ops.convert_to_tensor(x, dtype), ops.convert_to_tensor(y, dtype)
    expected = np.array(ops.cast(x, "float32")) @ np.array(ops.cast(y, "float32"))
    transposed = ops.transpose(y, (0, 1, 3, 2))
    for result in (batched_product(x, y), batched_product(x, transposed, transpose=True)):
        assert keras.backend.standardize_dtype(result.dtype) == dtype
        np.testing.assert_allclose(ops.cast(result, "float32"), expected, atol=tolerance)


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


def test_fused_self_attention_equals_explicit_value_and_key(attention, random):
    layer, x = attention(), random(2, 5, 8)
    fused = as_array(layer(x))
    np.testing.assert_allclose(as_array(layer(x, x)), fused, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(as_array(layer(x, x, x)), fused, rtol=1e-5, atol=1e-5)


def test_key_is_the_value_by_default(attention, random):
    layer, query, value = attention(), random(2, 3, 8), random(2, 5, 8)
    expected = as_array(layer(query, value, value))
    np.testing.assert_allclose(as_array(layer(query, value)), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(as_array(layer(query, value, random(2, 5, 8))) - expected).max() > 0.01


def test_causal_mask_by_flag_equals_the_explicit_one(attention, random):
    layer, x = attention(), random(2, 5, 8)
    triangle = np.tril(np.ones((1, 5, 5), bool))
    np.testing.assert_array_equal(
        as_array(layer(x, use_causal_mask=True)), as_array(layer(x, attention_mask=triangle))
    )
    keys = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], bool)
    np.testing.assert_array_equal(
        as_array(layer(x, use_causal_mask=True, attention_mask=keys)),
        as_array(layer(x, attention_mask=triangle & keys[:, None])),
    )


def test_content_of_masked_keys_changes_nothing(attention, random):
    layer, query, value = attention(), random(2, 3, 8), random(2, 5, 8)
    mask = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 0]], bool)
    other = np.where(mask[..., None], value, 1000 * random(2, 5, 8))
    output, changed = (as_array(layer(query, v, attention_mask=mask)) for v in (value, other))
    np.testing.assert_array_equal(output, changed)
    shortened = layer(query[:1], value[:1, :3])  # masked equals absent
    np.testing.assert_allclose(as_array(shortened), output[:1], rtol=1e-5, atol=1e-5)


def test_scores_sum_to_one_and_are_zero_where_masked(attention, random):
    layer, x = attention(dropout=0.5), random(2, 5, 8)
    mask = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], bool)
    output, scores = layer(
        x, attention_mask=mask, use_causal_mask=True, return_attention_scores=True
    )
    scores, may_attend = as_array(scores), np.tril(np.ones((5, 5), bool)) & mask[:, None, None]
    assert output.shape == (2, 5, 8) and scores.shape == (2, 2, 5, 5)
    np.testing.assert_allclose(scores.sum(-1), np.ones((2, 2, 5)), rtol=1e-5, atol=1e-5)
    assert np.array_equal(scores > 0, np.broadcast_to(may_attend, scores.shape))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "float16"])
def test_scores_are_exact_in_half_precision(random, dtype):
    layer = MultiHeadAttention(d_model=8, num_heads=2, dtype=dtype)
    output, scores = layer(random(2, 100, 8), return_attention_scores=True)
    assert keras.backend.standardize_dtype(output.dtype) == dtype.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(scores.dtype) == "float32"
    np.testing.assert_allclose(as_array(scores).sum(-1), np.ones((2, 2, 100)), atol=1e-6)


def test_a_single_key_takes_all_the_weight(attention, random):
    layer, query, value = attention(), random(2, 3, 8), random(2, 1, 8)
    output, scores = layer(query, value, return_attention_scores=True)
    assert np.array_equal(as_array(scores), np.ones((2, 2, 3, 1)))
    twice = layer(query, np.repeat(value, 2, axis=1))
    np.testing.assert_allclose(as_array(output), as_array(twice), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "mixed_float16"])
def test_fully_masked_row_has_finite_outputs_and_gradients(random, dtype):
    embedding = keras.layers.Dense(8, dtype=dtype)  # its gradient is that of the layer's input
    inputs, mask = keras.Input((3, 8)), keras.Input((3,), dtype="bool")
    outputs = MultiHeadAttention(8, 2, dtype=dtype)(embedding(inputs), attention_mask=mask)
    model = keras.Model([inputs, mask], outputs)
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True, auto_scale_loss=False)
    x, keys = random(2, 3, 8), np.array([[False] * 3, [True, True, False]])
    before = embedding.get_weights()[0]
    loss = model.train_on_batch([x, keys], random(2, 3, 8))
    assert np.isfinite(loss)
    assert all(np.isfinite(as_array(weight)).all() for weight in model.weights)
    assert np.isfinite(as_array(model([x, keys]))).all()
    assert not np.array_equal(embedding.get_weights()[0], before)


@pytest.mark.parametrize("chunks", [[1, 1, 1, 1, 1, 1], [2, 3, 1], [6]])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_cached_chunks_equal_one_causal_pass(attention, random, chunks, as_tensor):
    layer, x = attention(), random(2, 6, 8)
    expected = as_array(layer(x, use_causal_mask=True))
    cache, outputs, position = layer.init_cache(batch_size=2, length=9), [], 0
    for chunk in np.split(x, np.cumsum(chunks)[:-1], axis=1):
        output, new_cache = layer(
            chunk,
            use_causal_mask=True,
            cache=cache,
            position=ops.convert_to_tensor(position) if as_tensor else position,
        )
        assert np.all(as_array(cache[0])[:, :, position:] == 0)  # the old cache is unchanged
        cache, position = new_cache, position + chunk.shape[1]
        outputs.append(as_array(output))
    np.testing.assert_allclose(np.concatenate(outputs, 1), expected, rtol=1e-5, atol=1e-5)


def test_cached_steps_run_in_a_loop_of_the_graph(attention, random):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tf.function needs the TensorFlow backend")
    layer, x = attention(), random(2, 4, 8)

    @tf.function
    def step_by_step(x):
        def step(position, cache, outputs):
            token = x[:, position : position + 1]
            y, cache = layer(token, use_causal_mask=True, cache=cache, position=position)
            return position + 1, cache, ops.slice_update(outputs, (0, position, 0), y)

        start = (0, layer.init_cache(2, 4), ops.zeros_like(x))
        return ops.while_loop(lambda position, *_: position < 4, step, start)[2]

    expected = as_array(layer(x, use_causal_mask=True))
    np.testing.assert_allclose(as_array(step_by_step(x)), expected, rtol=1e-5, atol=1e-5)


def test_cross_attention_from_a_computed_cache_equals_the_direct_one(attention, random):
    layer, query, value = attention(), random(2, 3, 8), random(2, 5, 8)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
    cache = layer.compute_cache(value)
    assert [tuple(part.shape) for part in cache] == [(2, 2, 5, 4), (2, 2, 5, 4)]
    output, scores, returned = layer(
        query, attention_mask=mask, cache=cache, return_attention_scores=True
    )
    expected, expected_scores = layer(
        query, value, attention_mask=mask, return_attention_scores=True
    )
    np.testing.assert_allclose(as_array(output), as_array(expected), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(as_array(scores), as_array(expected_scores), rtol=1e-5, atol=1e-5)
    for part, returned_part in zip(cache, returned, strict=True):
        np.testing.assert_array_equal(as_array(part), as_array(returned_part))


@pytest.mark.parametrize("position", [None, 0])
def test_keys_from_a_cache_and_from_arguments_are_refused(attention, random, position):
    layer, query = attention(), random(2, 3, 8)
    cache = layer.compute_cache(query)
    for arguments in ({"value": query}, {"key": query}):
        with pytest.raises(ValueError, match="from cache or from value and key, but received both"):
            layer(query, cache=cache, position=position, **arguments)


def test_dropout_drops_attention_weights_in_training_only(attention, random):
    dropped, plain, x = attention(dropout=0.999), attention(), random(2, 5, 8)
    dropped.set_weights(plain.get_weights())
    np.testing.assert_array_equal(as_array(dropped(x)), as_array(plain(x)))
    output = as_array(dropped(x, training=True))
    bias = as_array(plain.output_projection.bias)  # is left when all weights are dropped
    assert np.mean(np.all(np.isclose(output, bias), axis=-1)) > 0.8


def test_heads_that_do_not_divide_the_width_are_named():
    with pytest.raises(ValueError, match="d_model=10 and num_heads=4; choose num_heads among"):
        MultiHeadAttention(d_model=10, num_heads=4)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_heads": 0}, "num_heads must be an integer of at least 1, but is 0"),
        ({"d_model": 2.5}, "d_model must be an integer of at least 1, but is 2.5"),
        ({"dropout": -0.1}, r"dropout must be a number in \[0, 1\), but is -0.1"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**{"d_model": 8, "num_heads": 2, **arguments})


@pytest.mark.parametrize("wrong", range(3))
def test_inputs_of_another_width_are_refused(random, wrong):
    inputs = [random(2, 3, 6 if i == wrong else 8) for i in range(3)]
    with pytest.raises(ValueError, match=r"width d_model=8, but received the shape \(2, 3, 6\)"):
        MultiHeadAttention(d_model=8, num_heads=2)(*inputs)


@pytest.mark.parametrize("shape", [(4, 4), (2, 3), (1, 1, 4, 4), (2, 4, 5)])
def test_a_mask_of_another_shape_is_refused(attention, random, shape):
    layer = attention()
    x = random(1, 4, layer.d_model) if shape == (4, 4) else random(2, 4, layer.d_model)
    with pytest.raises(
        ValueError, match=r"attention_mask must be .B, S. or broadcast to .*needs an"
    ):
        layer(x, attention_mask=np.ones(shape, "bool"))
    for fitting in ((1, 4), (x.shape[0], 1), (1, 4, 4), (x.shape[0], 1, 4)):
        assert layer(x, attention_mask=np.ones(fitting, "bool")).shape == x.shape


def test_step_weights_of_self_attention_do_not_make_it_of_cross_attention(attention, random):
    layer, query, value = attention(), random(2, 3, 8), random(2, 5, 8)
    for arguments in ((query,), (query, value)):
        output = layer(*arguments, step_weights=layer.step_weights())
        np.testing.assert_allclose(
            as_array(output), as_array(layer(*arguments)), rtol=1e-5, atol=1e-5
        )
