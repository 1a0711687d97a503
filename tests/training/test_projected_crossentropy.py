import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training import projected_crossentropy as module
from keras_transformer.training.losses import smoothed_crossentropy
from keras_transformer.training.projected_crossentropy import projected_crossentropy

B, T, D, V = 3, 5, 8, 17


def inputs(copies=1, seed=0):
    rng = np.random.default_rng(seed)
    hidden_states = tf.constant(rng.normal(size=(copies * B, T, D)), tf.float32)
    kernel = tf.constant(rng.normal(size=(V, D)), tf.float32)
    labels = rng.integers(0, V, (B, T))
    weights = tf.constant(rng.random((B, T)) * (labels > 3), tf.float32)
    return hidden_states, kernel, labels, weights


def with_logits(hidden_states, kernel, labels, weights, smoothing, r_drop):
    """The same sum by way of all logits."""
    logits = tf.matmul(hidden_states, kernel, transpose_b=True)
    parts = tf.split(logits, 2 if r_drop else 1)
    losses = sum(smoothed_crossentropy(labels, z, smoothing) for z in parts) / len(parts)
    if r_drop:
        log_p, log_q = (tf.nn.log_softmax(z) for z in parts)
        divergence = tf.reduce_sum((tf.exp(log_p) - tf.exp(log_q)) * (log_p - log_q), -1)
        losses += r_drop / 4 * divergence
    return tf.reduce_sum(weights * losses)


def value_and_gradients(function, hidden_states, kernel):
    with tf.GradientTape() as tape:
        tape.watch([hidden_states, kernel])
        value = function(hidden_states, kernel) / 7.0
    return value, tape.gradient(value, [hidden_states, kernel])


@pytest.mark.parametrize("chunk_rows", [1, 4, 6, 1024])
@pytest.mark.parametrize(("smoothing", "r_drop"), [(0.0, 0.0), (0.1, 0.0), (0.1, 3.0)])
def test_value_and_gradients_are_those_of_the_logits(monkeypatch, chunk_rows, smoothing, r_drop):
    for name in ("CHUNK_ROWS", "R_DROP_CHUNK_ROWS"):
        monkeypatch.setattr(module, name, chunk_rows)
    hidden_states, kernel, labels, weights = inputs(2 if r_drop else 1)
    value, gradients = value_and_gradients(
        lambda h, e: projected_crossentropy(h, e, labels, weights, smoothing, r_drop)[0],
        hidden_states,
        kernel,
    )
    expected, expected_gradients = value_and_gradients(
        lambda h, e: with_logits(h, e, labels, weights, smoothing, r_drop), hidden_states, kernel
    )
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, other, atol=1e-6)


def test_the_second_sum_is_the_loss_without_smoothing_and_r_drop():
    hidden_states, kernel, labels, weights = inputs(copies=2)
    _, nll = projected_crossentropy(hidden_states, kernel, labels, weights, 0.1, 3.0)
    np.testing.assert_allclose(
        nll,
        with_logits(hidden_states[:B], kernel, labels, weights, 0, 0) / 2
        + with_logits(hidden_states[B:], kernel, labels, weights, 0, 0) / 2,
        rtol=1e-5,
    )


def test_equal_predictions_diverge_by_nothing():
    hidden_states, kernel, labels, weights = inputs()
    twice = tf.concat([hidden_states, hidden_states], 0)
    with_r_drop, _ = projected_crossentropy(twice, kernel, labels, weights, 0.1, 9.0)
    without, _ = projected_crossentropy(hidden_states, kernel, labels, weights, 0.1)
    np.testing.assert_allclose(with_r_drop, without, rtol=1e-5)


def test_tokens_without_weight_change_nothing():
    hidden_states, kernel, labels, weights = inputs()
    value, _ = projected_crossentropy(hidden_states, kernel, labels, weights)
    moved = hidden_states + 100.0 * tf.cast(weights == 0, tf.float32)[..., None]
    np.testing.assert_allclose(
        projected_crossentropy(moved, kernel, labels, weights)[0], value, rtol=1e-5
    )


def test_a_hopeless_prediction_costs_a_finite_loss():
    hidden_states, kernel = tf.constant([[[1e4]]]), tf.constant([[-1.0], [1.0]])
    value, (gradient, _) = value_and_gradients(
        lambda h, e: projected_crossentropy(h, e, [[0]], tf.ones((1, 1)))[0], hidden_states, kernel
    )
    assert np.isfinite(value) and value * 7 > 80
    np.testing.assert_allclose(gradient * 7, [[[2.0]]], rtol=1e-5)  # -(-1) + 1


@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_bfloat16_products_give_the_gradient_to_their_precision(r_drop):
    hidden_states, kernel, labels, weights = inputs(2 if r_drop else 1)

    def loss(h, e):
        return projected_crossentropy(h, e, labels, weights, 0.1, r_drop)[0]

    value, gradients = value_and_gradients(loss, hidden_states, kernel)
    low, low_gradients = value_and_gradients(loss, tf.cast(hidden_states, tf.bfloat16), kernel)
    np.testing.assert_allclose(low, value, rtol=0.02)
    assert low_gradients[0].dtype == tf.bfloat16 and low_gradients[1].dtype == tf.float32
    for a, b in zip(low_gradients, gradients, strict=True):
        np.testing.assert_allclose(tf.cast(a, tf.float32), b, atol=0.03)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_surprising_token_costs_what_it_costs(dtype):
    # With a probability of e^-20, which float16 cannot hold, and bfloat16 only nearly.
    hidden_states = tf.constant([[[20.0, 0.0]]], dtype)
    kernel = tf.constant([[0.0, 1.0], [1.0, 0.0]])
    _, nll = projected_crossentropy(hidden_states, kernel, np.array([[0]]), tf.ones((1, 1)))
    assert abs(float(nll) - 20) < 0.01


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_kernel_of_any_dtype_have_gradients_of_it(dtype):
    hidden_states, kernel, labels, weights = inputs()

    def loss(h, e):
        return projected_crossentropy(h, e, labels, weights, 0.1)[0]

    value, gradients = value_and_gradients(loss, hidden_states, kernel)
    lower = [tf.cast(x, dtype) for x in (hidden_states, kernel)]
    other, other_gradients = value_and_gradients(loss, *lower)
    np.testing.assert_allclose(value, other, rtol=0.02)
    for a, b in zip(gradients, other_gradients, strict=True):
        assert b.dtype == dtype
        np.testing.assert_allclose(a, tf.cast(b, "float32"), atol=0.02)
