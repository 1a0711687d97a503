"""The loss against a dense float64 formula, and one device against two."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer import MaskedCrossentropy
from keras_transformer.training.losses import smoothed_crossentropy

FIXED = settings(derandomize=True, deadline=None, max_examples=25)


def random_batch(seed, shape=(4, 6), vocab_size=11, scale=3.0):
    """Labels (B, T) of random lengths, padded with 0, and logits (B, T, V)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, vocab_size, shape)
    labels[np.arange(shape[1]) >= rng.integers(1, shape[1] + 1, (shape[0], 1))] = 0
    return labels, rng.normal(0, scale, (*shape, vocab_size)).astype("float32")


def smoothed_labels(labels, vocab_size, label_smoothing):
    return (1 - label_smoothing) * np.eye(vocab_size)[labels] + label_smoothing / vocab_size


def token_losses(labels, logits, label_smoothing):
    """Dense cross entropy (B, T) in float64, 0 at padding."""
    logits = logits.astype("float64") - logits.max(-1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -(smoothed_labels(labels, logits.shape[-1], label_smoothing) * log_probs).sum(-1)
    return losses * (labels != 0)


def gradient_of(loss, labels, logits, **kwargs):
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loss(labels, logits, **kwargs)
    return tape.gradient(value, logits).numpy()


@FIXED
@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 9)),
    vocab_size=st.integers(2, 40),
    label_smoothing=st.sampled_from([0.0, 0.1, 0.9]),
)
def test_the_loss_is_the_dense_cross_entropy_averaged_over_real_tokens(
    seed, shape, vocab_size, label_smoothing
):
    labels, logits = random_batch(seed, shape, vocab_size)
    expected = token_losses(labels, logits, label_smoothing).sum() / (labels != 0).sum()
    loss = MaskedCrossentropy(label_smoothing)
    assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_gradient_is_softmax_minus_the_smoothed_labels(label_smoothing):
    labels, logits = random_batch(0)
    gradient = gradient_of(MaskedCrossentropy(label_smoothing), labels, logits)
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    mask = (labels != 0)[..., None]
    expected = mask * (softmax - smoothed_labels(labels, 11, label_smoothing)) / mask.sum()
    np.testing.assert_allclose(gradient, expected, atol=1e-7)


def test_the_gradient_is_that_of_finite_differences():
    labels, logits = random_batch(1, shape=(1, 3), vocab_size=4)
    weights = np.array([[1.0, 0.5, 2.0]])

    def dense(logits):
        return (weights * token_losses(labels, logits, 0.1)).sum() / (labels != 0).sum()

    expected = np.zeros(logits.shape)
    for place in np.ndindex(logits.shape):
        step = np.zeros(logits.shape)
        step[place] = 1e-5
        expected[place] = (dense(logits + step) - dense(logits - step)) / 2e-5
    gradient = gradient_of(MaskedCrossentropy(0.1), labels, logits, sample_weight=weights)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_graph_of_unknown_shape_gives_the_same_loss_and_gradient(jit_compile):
    loss = MaskedCrossentropy(0.1)
    specs = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None, 11])]
    graph = tf.function(
        lambda labels, logits: (loss(labels, logits), tf.gradients(loss(labels, logits), logits)),
        input_signature=specs,
        jit_compile=jit_compile,
    )
    labels, logits = random_batch(2)
    value, (gradient,) = graph(labels.astype("int32"), logits)
    np.testing.assert_allclose(value, loss(labels, logits), rtol=1e-6)
    np.testing.assert_allclose(gradient, gradient_of(loss, labels, logits), atol=1e-7)


def test_a_batch_of_nothing_but_padding_costs_nothing():
    labels, logits = random_batch(7)
    labels[:] = 0
    assert float(MaskedCrossentropy(0.1)(labels, logits)) == 0
    assert not gradient_of(MaskedCrossentropy(0.1), labels, logits).any()


def test_logits_at_padding_do_not_matter():
    labels, logits = random_batch(3)
    other = np.where((labels == 0)[..., None], 1e4, logits).astype("float32")
    loss = MaskedCrossentropy(0.1)
    assert float(loss(labels, other)) == float(loss(labels, logits))
    np.testing.assert_array_equal(
        gradient_of(loss, labels, other), gradient_of(loss, labels, logits)
    )


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_extreme_logits_stay_finite_and_exact(label_smoothing):
    labels = np.array([[1, 2, 3]])
    logits = np.array(
        [[[-1e4, 1e4, -1e4, -1e4], [1e4, 0, -1e4, 0], [-1e4, -1e4, -1e4, -1e4]]], "float32"
    )
    loss = MaskedCrossentropy(label_smoothing)
    expected = token_losses(labels, logits, label_smoothing).mean()
    assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-6)
    assert np.all(np.isfinite(gradient_of(loss, labels, logits)))


def test_sample_weight_multiplies_each_tokens_loss():
    labels, logits = random_batch(4)
    losses, count = token_losses(labels, logits, 0.1), (labels != 0).sum()
    weights = np.random.default_rng(0).uniform(0, 2, labels.shape)
    sentence_weights = weights[:, 0]
    for weight, expected in (
        (weights, losses * weights),
        (sentence_weights, losses * sentence_weights[:, None]),
        (sentence_weights[:, None], losses * sentence_weights[:, None]),
    ):
        value = MaskedCrossentropy(0.1)(labels, logits, sample_weight=weight)
        assert float(value) == pytest.approx(expected.sum() / count, rel=1e-6)


def test_without_reduction_the_plain_mean_is_the_mean_over_real_tokens():
    labels, logits = random_batch(5)
    values = np.asarray(MaskedCrossentropy(0.1, reduction=None)(labels, logits))
    losses = token_losses(labels, logits, 0.1)
    np.testing.assert_allclose(values, losses * labels.size / (labels != 0).sum(), rtol=1e-5)
    assert values.mean() == pytest.approx(losses.sum() / (labels != 0).sum(), rel=1e-6)


def test_labels_beyond_what_bfloat16_can_count_are_exact():
    """bfloat16 has no integers between 2048 and 2064: 2049 must not become 2048."""
    labels = np.array([[2049, 2055, 257]])
    logits = np.zeros((1, 3, 2100), "float32")
    logits[0, [0, 1, 2], labels[0]] = 16.0
    half = tf.cast(logits, "bfloat16")
    keras.config.set_floatx("bfloat16")
    try:
        loss = MaskedCrossentropy()
        assert float(loss(labels, half)) == pytest.approx(2099 * np.exp(-16.0), rel=1e-2)
    finally:
        keras.config.set_floatx("float32")
    with tf.GradientTape() as tape:
        tape.watch(half)
        value = loss(labels, half - 16.0 * tf.cast(logits > 0, "bfloat16"))  # all equal
    gradient = tf.cast(tape.gradient(value, half), "float32").numpy()
    assert gradient.argmin(-1).tolist() == labels.tolist()
    np.testing.assert_allclose(gradient.min(-1), -1 / 3, rtol=1e-2)


def test_token_losses_keep_the_shape_of_the_labels():
    labels, logits = random_batch(6, shape=(2, 3))
    losses = smoothed_crossentropy(labels, logits)
    assert losses.shape == (2, 3) and losses.dtype == tf.float32
    assert smoothed_crossentropy(labels[0], logits[0]).shape == (3,)


def test_the_config_describes_the_loss():
    loss = MaskedCrossentropy(label_smoothing=0.2, name="cost")
    config = {"label_smoothing": 0.2, "reduction": "sum_over_batch_size", "name": "cost"}
    assert loss.get_config() == config
    restored = keras.losses.deserialize(keras.losses.serialize(loss))
    assert isinstance(restored, MaskedCrossentropy)
    assert restored.get_config() == config


@pytest.mark.parametrize("rate", [-0.1, 1.0, True, "0.1"])
def test_a_label_smoothing_out_of_range_is_refused(rate):
    with pytest.raises(ValueError, match=r"label_smoothing must be a number in \[0, 1\)"):
        MaskedCrossentropy(rate)


@pytest.mark.parametrize("reduction", ["sum", "mean_with_sample_weight"])
def test_a_reduction_that_is_no_mean_over_real_tokens_is_refused(reduction):
    with pytest.raises(ValueError, match="reduction must be one of 'sum_over_batch_size', None"):
        MaskedCrossentropy(reduction=reduction)


def test_a_compiled_loss_of_negative_labels_is_no_number():
    labels, logits = random_batch(0)
    labels[0, 1] = -100
    for of_graph in (MaskedCrossentropy(), MaskedCrossentropy(reduction=None)):
        loss = tf.function(of_graph, jit_compile=True)(tf.constant(labels), tf.constant(logits))
        assert np.isnan(np.sum(loss))


ONE_AND_TWO_DEVICES = """
import keras
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

from keras_transformer import MaskedAccuracy, MaskedCrossentropy, Perplexity, Transformer
from keras_transformer.training.callbacks import TokenLogs
from keras_transformer.training.distribution import strategy_scope

LENGTHS = [  # target tokens of the four rows of each batch; the second device has the last two
    [7, 6, 1, 0],
    [5, 7, 0, 0],
    [0, 0, 1, 2],
    [3, 4, 5, 6],
]
rng = np.random.default_rng(0)


def rows(lengths):
    ids = rng.integers(4, 12, (4, 7), dtype="int32")
    return np.where(np.arange(7) < np.array(lengths)[:, None], ids, 0).astype("int32")


batches = [((rows(lengths), rows(lengths)), rows(lengths)) for lengths in LENGTHS]
ids = tf.TensorSpec((None, None), tf.int32)


def train(strategy, clipnorm=None, micro_batches=1):
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=((ids, ids), ids)
    ).apply(tf.data.experimental.assert_cardinality(len(batches)))
    with strategy_scope(strategy):
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        assert replicas == (2 if strategy == "mirrored" else 1)
        keras.utils.set_random_seed(1)
        model = Transformer(
            num_layers=1, d_model=8, num_heads=2, d_ff=16, source_vocab_size=12, dropout=0.0
        )
        start = model.get_weights()
        # Not Adam, to which the size of the gradient does not matter.
        model.compile(
            keras.optimizers.SGD(0.5, global_clipnorm=clipnorm),
            loss=MaskedCrossentropy(0.1),
            metrics=[MaskedAccuracy(), Perplexity(name="by_logits")],
            micro_batches=micro_batches,
            run_eagerly=strategy == "none",  # sooner done than a graph is built
        )
    history = model.fit(
        dataset, epochs=2, verbose=0, shuffle=False, callbacks=[TokenLogs()]
    ).history
    history["step_loss"] = [float(model.step_metrics.step_loss.result())]
    moved = max(np.abs(a - b).max() for a, b in zip(start, model.get_weights()))
    assert moved > 0.01, moved
    names = "masked_accuracy", "by_logits", "perplexity", "gradient_norm", "step_loss"
    return model.get_weights(), [history[name] for name in names]


def compare(one, two):
    for a, b in zip(one[0], two[0]):
        np.testing.assert_allclose(a, b, atol=1e-5)
    for a, b in zip(one[1], two[1]):
        np.testing.assert_allclose(a, b, rtol=1e-5)


free, limit = train("none"), 0.1
compare(free, train("mirrored"))
clipped = train("none", limit)
assert max(np.abs(a - b).max() for a, b in zip(free[0], clipped[0])) > 0.01
compare(clipped, train("mirrored", limit, micro_batches=2))
print("same weights")
"""


@pytest.mark.slow
def test_two_devices_train_the_same_weights_as_one_clipped_and_in_parts_too():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run(
        [sys.executable, "-c", ONE_AND_TWO_DEVICES],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert run.stdout == "same weights\n", run.stderr


def test_lists_are_as_good_as_arrays():
    labels, logits = [[1, 0], [2, 1]], np.arange(12.0).reshape(2, 2, 3)
    loss = MaskedCrossentropy()
    expected = float(loss(np.array(labels), logits, np.array([1.0, 2.0])))
    assert float(loss(labels, logits.tolist(), [1.0, 2.0])) == pytest.approx(expected)


def test_a_mask_that_the_predictions_carry_changes_nothing():
    rng = np.random.default_rng(0)
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(ids)
    model = keras.Model(ids, keras.layers.Dense(9)(x))
    model.compile("sgd", MaskedCrossentropy())
    labels = np.array([[5, 6, 7, 8], [5, 6, 0, 0]])
    loss = MaskedCrossentropy()(labels, model.predict(labels, verbose=0))
    assert model.evaluate(labels, labels, verbose=0) == pytest.approx(float(loss), rel=1e-5)
    weights = rng.uniform(size=labels.shape).astype("float32")
    loss = MaskedCrossentropy()(labels, model.predict(labels, verbose=0), weights)
    found = model.evaluate(labels, labels, sample_weight=weights, verbose=0)
    assert found == pytest.approx(float(loss), rel=1e-5)
