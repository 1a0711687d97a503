import keras
import numpy as np
import pytest

from keras_transformer.layers.dropout import Dropout


def dropped(rate, size=400_000, calls=1, dtype="float32"):
    layer = Dropout(rate, seed=3, dtype=dtype)
    x = keras.ops.ones((size // calls,), dtype)
    return [
        keras.ops.convert_to_numpy(keras.ops.cast(layer(x, training=True), "float32"))
        for _ in range(calls)
    ]


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_a_number_is_dropped_with_the_rate_and_the_mean_stays(rate):
    (y,) = dropped(rate)
    assert abs((y == 0).mean() - rate) < 0.006  # one step of 1/256 and chance
    np.testing.assert_allclose(y[y != 0], 1 / (1 - rate), rtol=1e-6)


def test_the_rate_is_exact_over_many_calls_though_a_byte_has_256_values():
    rate = 0.1  # 25.6 / 256
    shares = [float((y == 0).mean()) for y in dropped(rate, size=4_000_000, calls=400)]
    assert abs(np.mean(shares) - rate) < 5e-4
    assert np.std(shares) > 1e-3  # calls differ by a step: 25/256 and 26/256


def test_what_is_dropped_differs_between_calls_and_not_between_equal_seeds():
    first, second = dropped(0.5, calls=2)
    again, _ = dropped(0.5, calls=2)
    assert (first != second).any()
    np.testing.assert_array_equal(first, again)


def test_neighbours_are_dropped_independently():
    (y,) = dropped(0.5)
    kept = (y != 0).astype("float64")
    for distance in (1, 2, 3, 4, 8):
        assert abs(np.corrcoef(kept[:-distance], kept[distance:])[0, 1]) < 0.01


@pytest.mark.parametrize("training", [False, None])
def test_nothing_is_dropped_outside_training(training):
    x = np.arange(6.0, dtype="float32")
    np.testing.assert_array_equal(Dropout(0.5)(x, training=training), x)


def test_the_gradient_passes_where_the_number_passed():
    import tensorflow as tf

    x = tf.ones((1000,))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = Dropout(0.3, seed=1)(x, training=True)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_lower_precision_keeps_its_dtype():
    y = Dropout(0.5, dtype="mixed_bfloat16")(keras.ops.ones((8,), "bfloat16"), training=True)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"


def test_what_a_byte_cannot_say_is_left_to_keras():
    (y,) = dropped(0.999)
    assert abs(y.mean() - 1) < 0.2
    y = Dropout(0.5, noise_shape=(4, 1), seed=3)(np.ones((4, 100)), training=True)
    assert set(keras.ops.convert_to_numpy(y).sum(axis=1)) <= {0.0, 200.0}
