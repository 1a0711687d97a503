import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import MultiHeadAttention
from keras_transformer.layers.attention_memory import InPlaceKVCache, KVCache, Memory

LN3, LN4, ROOT2 = np.log(3.0), np.log(4.0), np.sqrt(2.0)


def as_array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def softmax(scores):
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def attention_in_numpy(layer, query, value, key, mask):
    """Multi-head attention in float64, a sentence, a head and a query at a time."""
    w_q, b_q, w_m, b_m, output_kernel, output_bias = (
        w.astype("float64") for w in layer.get_weights()
    )
    d_model, width = layer.d_model, layer.d_model // layer.num_heads
    w_k, w_v, b_k, b_v = w_m[:, :d_model], w_m[:, d_model:], b_m[:d_model], b_m[d_model:]
    projected = query @ w_q + b_q, key @ w_k + b_k, value @ w_v + b_v
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
    # W_Q = sqrt(2) ln 3 I and W_K = I: the logit of a pair is ln 3 times its dot product.
    # The bias of the keys, 7, moves all logits of a query alike; that of the values is 0.
    query, key, value = ROOT2 * LN3 * np.eye(2), np.eye(2), np.diag([4.0, 8.0])
    layer.query_projection.kernel.assign(query)
    layer.memory_projection.kernel.assign(np.concatenate([key, value], 1))
    layer.memory_projection.bias.assign([7, 7, 0, 0])
    layer.output_projection.kernel.assign([[1, 1], [0, 1]])
    layer.output_projection.bias.assign([10, 20])
    x = np.eye(2, dtype="float32")[None]
    # Logits of position 0: (ln 3, 0), scores (3/4, 1/4), of position 1 the reverse.
    # Values (4, 0) and (0, 8). Position 0: 3/4 (4, 0) + 1/4 (0, 8) = (3, 2); 1: (1, 6).
    # Output projection: (3, 3 + 2) + (10, 20) = (13, 25) and (1, 1 + 6) + (10, 20) = (11, 27).
    output, scores = layer(x, return_attention_scores=True)
    np.testing.assert_allclose(as_array(scores)[0, 0], [[0.75, 0.25], [0.25, 0.75]], atol=1e-6)
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
    layer.query_projection.kernel.assign(query)
    layer.memory_projection.kernel.assign(np.concatenate([key, value], 1))
    layer.memory_projection.bias.assign([0] * 4 + [1, 2, 3, 4])
    layer.output_projection.kernel.assign(np.triu(np.ones((4, 4))))  # running sums
    x = np.array([[[1, 0, 1, 0], [0, 1, 0, 1]]], "float32")
    # Head 1: scores (3/4, 1/4) and (1/4, 3/4) of the values (4, 0), (0, 8): (3, 2), (1, 6).
    # Head 2: scores (1/5, 4/5) and (4/5, 1/5) of the values (5, 0), (0, 10): (1, 8), (4, 2).
    # Scores sum to 1, so the bias of the values is added whole: (4, 4, 4, 12), (2, 8, 7, 6).
    # Running sums: (4, 8, 12, 24) and (2, 10, 17, 23).
    output, scores = layer(x, return_attention_scores=True)
    np.testing.assert_allclose(as_array(scores)[0, 0], [[0.75, 0.25], [0.25, 0.75]], atol=1e-6)
    np.testing.assert_allclose(as_array(scores)[0, 1], [[0.2, 0.8], [0.8, 0.2]], atol=1e-6)
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


def test_self_attention_equals_explicit_value_and_key(attention, random):
    layer, x = attention(), random(2, 5, 8)
    expected = as_array(layer(x))
    np.testing.assert_allclose(as_array(layer(x, x)), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(as_array(layer(x, x, x)), expected, rtol=1e-5, atol=1e-5)


def test_a_key_is_refused_without_a_value_of_its_own(attention, random):
    layer, x = attention(), random(2, 3, 8)
    with pytest.raises(ValueError, match="key stands beside a value .* there is no value"):
        layer(x, key=x)
    with pytest.raises(ValueError, match="there is a Memory, which has keys"):
        layer(x, layer.project_memory(x), x)


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


def test_a_single_key_takes_it_all(attention, random):
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


def empty_cache(kind, length, dtype="float32"):
    """Of the layer of `attention`, for two sentences."""
    keys, values = (ops.zeros((2, 2, length, 4), dtype) for _ in range(2))
    return kind(keys, values, 0)


@pytest.mark.parametrize("kind", [KVCache, InPlaceKVCache])
@pytest.mark.parametrize("chunks", [[1, 1, 1, 1, 1, 1], [2, 2, 2], [4, 2], [6]])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_cached_chunks_equal_one_causal_pass(attention, random, kind, chunks, rotary, as_tensor):
    layer, x = attention(rotary=rotary), random(2, 6, 8)
    expected = as_array(layer(x, use_causal_mask=True))
    cache, outputs = empty_cache(kind, length=12), []
    for chunk in np.split(x, np.cumsum(chunks)[:-1], axis=1):
        index, old = cache.index, cache.keys
        cache.index = ops.convert_to_tensor(index) if as_tensor else index
        outputs.append(as_array(layer(chunk, use_causal_mask=True, cache=cache)))
        if kind is KVCache:
            assert np.all(as_array(old)[:, :, index:] == 0)  # the old tensors are unchanged
        cache.index = index + chunk.shape[1]
    np.testing.assert_allclose(np.concatenate(outputs, 1), expected, rtol=1e-5, atol=1e-5)


def test_a_cache_without_keys_takes_those_of_the_call(attention, random):
    layer, x, cache = attention(), random(2, 5, 8), KVCache()
    output = as_array(layer(x, use_causal_mask=True, cache=cache))
    np.testing.assert_array_equal(output, as_array(layer(x, use_causal_mask=True)))
    for found, expected in zip((cache.keys, cache.values), layer.project_memory(x), strict=True):
        np.testing.assert_array_equal(as_array(found), as_array(expected))


@pytest.mark.parametrize("kind", [KVCache, InPlaceKVCache])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_cached_steps_run_in_a_loop_of_the_graph(attention, random, kind, jit_compile):
    if jit_compile and kind is InPlaceKVCache:
        pytest.skip("XLA has no operation that writes in place")
    layer, x = attention(), random(2, 4, 8)

    @tf.function(jit_compile=jit_compile)
    def step_by_step(x, keys, values):
        def step(position, keys, values, outputs):
            cache = kind(keys, values, position)
            y = layer(x[:, position][:, None], use_causal_mask=True, cache=cache)
            outputs = tf.tensor_scatter_nd_update(outputs, [[position]], [y[:, 0]])
            return position + 1, cache.keys, cache.values, outputs

        start = (0, keys, values, tf.zeros((4, 2, 8)))
        return ops.while_loop(lambda position, *_: position < 4, step, start)[3]

    expected = as_array(layer(x, use_causal_mask=True)).swapaxes(0, 1)
    cache = empty_cache(kind, length=4)
    found = as_array(step_by_step(x, cache.keys, cache.values))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_cross_attention_to_a_memory_equals_that_to_the_vectors(attention, random):
    layer, query, value, key = attention(), random(2, 3, 8), random(2, 5, 8), random(2, 5, 8)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
    options = {"attention_mask": mask, "return_attention_scores": True}
    for inputs in ((value,), (value, key)):
        memory = layer.project_memory(*inputs)
        assert isinstance(memory, Memory) and layer.project_memory(memory) is memory
        assert [tuple(part.shape) for part in memory] == [(2, 2, 5, 4), (2, 2, 5, 4)]
        found, expected = layer(query, memory, **options), layer(query, *inputs, **options)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(as_array(a), as_array(b), rtol=1e-5, atol=1e-5)


def test_scores_of_a_functional_model_are_those_of_a_call(attention, random):
    layer, inputs = attention(), [keras.Input((None, 8)), keras.Input((None, 8))]
    model = keras.Model(inputs, layer(*inputs, return_attention_scores=True))
    arrays = [random(2, 3, 8), random(2, 5, 8)]
    for a, b in zip(model(arrays), layer(*arrays, return_attention_scores=True), strict=True):
        np.testing.assert_array_equal(as_array(a), as_array(b))


def test_without_biases_it_is_the_one_whose_biases_are_zero(attention, random):
    layer, plain, x = attention(), attention(use_bias=False), random(2, 5, 8)
    kernels = [w for w in layer.weights if w.path.endswith("kernel")]
    assert [w.shape for w in plain.weights] == [w.shape for w in kernels]
    plain.set_weights([as_array(w) for w in kernels])
    for weight in layer.weights:
        if weight.path.endswith("bias"):
            weight.assign(ops.zeros_like(weight))
    np.testing.assert_allclose(as_array(plain(x)), as_array(layer(x)), rtol=1e-5, atol=1e-6)


def test_dropout_drops_scores_in_training_only(attention, random):
    dropped, plain, x = attention(dropout=0.999), attention(), random(2, 5, 8)
    dropped.set_weights(plain.get_weights())
    np.testing.assert_array_equal(as_array(dropped(x)), as_array(plain(x)))
    output = as_array(dropped(x, training=True))
    bias = as_array(plain.output_projection.bias)  # is left when all scores are dropped
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
        ValueError, match=r"A mask must be .B, S. or broadcast to .*pass mask.None."
    ):
        layer(x, attention_mask=np.ones(shape, "bool"))
    for fitting in ((1, 4), (x.shape[0], 1), (1, 4, 4), (x.shape[0], 1, 4)):
        assert layer(x, attention_mask=np.ones(fitting, "bool")).shape == x.shape


@pytest.mark.parametrize("shape", [(2, 8), (2, 3, 1, 8)])
def test_inputs_of_another_rank_are_refused(attention, shape):
    for x in (np.zeros(shape, "float32"), keras.Input(shape[1:])):
        with pytest.raises(ValueError, match=r"reads tensors \(B, T, D\), but received the shape"):
            attention()(x)
