import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.layer_norm import LayerNorm


def gradients(layer, x, weight, training):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=training)
        loss = tf.reduce_sum(tf.cast(y, "float32") * weight)
    return y, tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])


@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 8), (2, 1, 3, 16)])
def test_output_and_gradients_are_those_of_keras(shape):
    rng = np.random.default_rng(0)
    x, weight = (rng.normal(size=shape).astype("float32") * 3 + 1 for _ in range(2))
    own, stock = LayerNorm(epsilon=1e-6), keras.layers.LayerNormalization(epsilon=1e-6)
    for layer in (own, stock):
        layer.build(shape)
        layer.set_weights([rng.normal(size=shape[-1:]) for _ in layer.weights])
    stock.set_weights(own.get_weights())
    y, expected = gradients(stock, x, weight, training=True)
    for training in (False, True):
        result, found = gradients(own, x, weight, training)
        np.testing.assert_allclose(result, y, atol=1e-5)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4)


def test_a_constant_row_has_the_same_finite_gradient_in_training():
    x = np.full((2, 4), 3, "float32")
    layer = LayerNorm(epsilon=1e-6)
    weight = np.arange(4, dtype="float32")
    (y, found), (_, plain) = (gradients(layer, x, weight, training) for training in (True, False))
    assert np.allclose(y, 0)
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("arguments", [{"center": False}, {"scale": False}])
def test_a_norm_may_lack_a_weight_as_in_keras(arguments):
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32")
    stock = keras.layers.LayerNormalization(**arguments)
    np.testing.assert_allclose(LayerNorm(**arguments)(x), stock(x), atol=1e-5)


def test_another_axis_is_refused():
    with pytest.raises(ValueError, match="over the last axis, but axis is 1; leave it at -1"):
        LayerNorm(axis=1)(np.ones((2, 3, 4)))
    assert LayerNorm(axis=[2])(np.ones((2, 3, 4))).shape == (2, 3, 4)
