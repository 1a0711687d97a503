import numpy as np
import pytest
from keras import ops

from keras_transformer.layers.residual import Residual


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


def layer_norm(x, norm):
    gamma, beta = norm.get_weights()
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, -1, keepdims=True) + 1e-6) * gamma + beta


@pytest.fixture
def residual(randomize):
    def make(**kwargs):
        layer = Residual(**kwargs)
        layer.build((None, None, 4))
        return randomize(layer)

    return make


def sublayer(x):
    return 3 * x**2 - 1


def test_post_norm_is_layer_norm_of_x_plus_sublayer_of_x(residual, random):
    layer, x = residual(), random(2, 3, 4)
    output = layer(x, sublayer=sublayer)
    expected = layer_norm(x + sublayer(x), layer.norm)
    np.testing.assert_allclose(as_array(output), expected, rtol=1e-5, atol=1e-5)


def test_pre_norm_is_x_plus_sublayer_of_layer_norm_of_x(residual, random):
    layer, x = residual(norm_first=True), random(2, 3, 4)
    output = layer(x, sublayer=sublayer)
    expected = x + sublayer(layer_norm(x, layer.norm))
    np.testing.assert_allclose(as_array(output), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_applies_to_the_sublayer_alone_in_training_only(residual, random, norm_first):
    layer, x, y = residual(dropout=0.999, norm_first=norm_first), random(2, 9, 4), random(2, 9, 4)
    without_y = x if norm_first else layer_norm(x, layer.norm)
    with_y = x + y if norm_first else layer_norm(x + y, layer.norm)
    output, training = (
        as_array(layer(x, sublayer=lambda _: y, training=flag)) for flag in (False, True)
    )
    np.testing.assert_allclose(output, with_y, rtol=0, atol=1e-5)
    dropped = np.isclose(training, without_y, atol=1e-5)
    assert np.mean(np.all(dropped, axis=-1)) > 0.8


def test_wrong_rate_is_named():
    with pytest.raises(ValueError, match=r"dropout must be a number in \[0, 1\), but is 2"):
        Residual(dropout=2)
