import numpy as np
import pytest
from keras import ops

from keras_transformer.layers.norms import make_norm
from keras_transformer.layers.residual import Residual


def as_array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def layer_norm(x, gamma, beta, epsilon=1e-6):
    """Ba et al. (2016), in float64."""
    centred = x - x.astype("float64").mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + epsilon) * gamma + beta


def rms_norm(x, scale, epsilon=1e-6):
    """Zhang and Sennrich (2019), equation 4, in float64."""
    x = x.astype("float64")
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon) * scale


FORMULAS = {"layer_norm": layer_norm, "rms_norm": rms_norm}
KINDS = pytest.mark.parametrize("kind", FORMULAS)


@KINDS
def test_output_is_that_of_the_formula(random, randomize, kind):
    x, layer = 5 * random(2, 3, 6) + 2, make_norm(kind, "norm", "float32")
    layer.build(x.shape)
    expected = FORMULAS[kind](x, *randomize(layer).get_weights())
    np.testing.assert_allclose(as_array(layer(x)), expected, rtol=1e-5, atol=1e-5)


@KINDS
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_rounded_once(random, kind, dtype):
    """In float16 the squares alone would be infinite."""
    layer, x = make_norm(kind, "norm", dtype), ops.cast(300 * random(2, 3, 6), dtype)
    output = layer(x)
    weights = [np.array(ops.cast(weight, "float32")) for weight in layer.weights]
    expected = ops.cast(FORMULAS[kind](as_array(x), *weights).astype("float32"), dtype)
    np.testing.assert_allclose(as_array(output), as_array(expected), rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("norm_first", [False, True])
def test_residual_normalizes_as_it_is_told(random, randomize, norm_first):
    layer, x = Residual(norm_first=norm_first, norm="rms_norm"), random(2, 3, 4)
    layer.build(x.shape)
    (scale,) = randomize(layer).get_weights()
    output = layer(x, sublayer=lambda x: 3 * x)
    expected = x + 3 * rms_norm(x, scale) if norm_first else rms_norm(4 * x, scale)
    np.testing.assert_allclose(as_array(output), expected, rtol=1e-5, atol=1e-5)


def test_another_norm_is_refused():
    with pytest.raises(
        ValueError, match="norm must be one of 'layer_norm', 'rms_norm', but is 'no'"
    ):
        Residual(norm="no")
