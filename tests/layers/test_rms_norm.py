import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers.residual import Residual
from keras_transformer.layers.rms_norm import RMSNorm


def as_array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def rms_norm(x, scale, epsilon=1e-6):
    """Zhang and Sennrich (2019), equation 4, in float64."""
    x = x.astype("float64")
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon) * scale


@pytest.fixture
def norm(randomize):
    layer = RMSNorm(epsilon=1e-6)
    layer.build((None, None, 6))
    return randomize(layer)


def test_output_is_x_over_its_root_mean_square(norm, random):
    x = 5 * random(2, 3, 6) + 2
    (scale,) = norm.get_weights()
    np.testing.assert_allclose(as_array(norm(x)), rms_norm(x, scale), rtol=1e-5, atol=1e-5)


def test_layer_is_that_of_keras(norm, random):
    x, other = random(2, 3, 6), keras.layers.RMSNormalization(epsilon=1e-6)
    other.build(x.shape)
    other.set_weights(norm.get_weights())
    np.testing.assert_allclose(as_array(norm(x)), as_array(other(x)), rtol=1e-5, atol=1e-6)


def test_scale_of_the_input_does_not_matter_and_zeros_stay_zero(norm, random):
    x = random(2, 3, 6)
    np.testing.assert_allclose(as_array(norm(1000 * x)), as_array(norm(x)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(as_array(norm(np.zeros((1, 2, 6), "float32"))), 0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_rounded_once(random, dtype):
    """In float16 the squares alone would be infinite."""
    layer, x = RMSNorm(dtype=dtype), ops.cast(300 * random(2, 3, 6), dtype)
    output = layer(x)
    expected = ops.cast(rms_norm(as_array(x), np.ones(6)).astype("float32"), dtype)
    np.testing.assert_allclose(as_array(output), as_array(expected), rtol=2**-7, atol=0)


@pytest.mark.parametrize("norm_first", [False, True])
def test_residual_normalizes_as_it_is_told(random, randomize, norm_first):
    layer, x = Residual(norm_first=norm_first, norm="rms_norm"), random(2, 3, 4)
    layer.build(x.shape)
    (scale,) = randomize(layer).get_weights()
    output = layer(x, 3 * layer.prepare(x))
    expected = x + 3 * rms_norm(x, scale) if norm_first else rms_norm(4 * x, scale)
    np.testing.assert_allclose(as_array(output), expected, rtol=1e-5, atol=1e-5)


def test_another_norm_is_refused():
    with pytest.raises(
        ValueError, match="norm must be one of 'layer_norm', 'rms_norm', but is 'no'"
    ):
        Residual(norm="no")
