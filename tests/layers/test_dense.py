import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.dense import Dense


@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (2, 3, 5, 6), (0, 6), (2, 0, 6)])
@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_layer_is_that_of_keras(random, shape, use_bias, activation, dtype):
    options = {"activation": activation, "use_bias": use_bias, "dtype": dtype}
    layer = Dense(4, bias_initializer="normal", **options)
    dense = keras.layers.Dense(4, **options)
    x = random(*shape)
    layer.build(shape), dense.build(shape)
    dense.set_weights(layer.get_weights())
    expected, output = dense(x), layer(x)
    assert output.shape == (*shape[:-1], 4) and output.dtype == expected.dtype
    tolerance = 1e-6 if dtype == "float32" else 0.02
    np.testing.assert_allclose(
        tf.cast(output, "float32"), tf.cast(expected, "float32"), atol=tolerance
    )


@pytest.mark.parametrize("known", [(None, None), (3, None), (None, 5)])
def test_axes_may_be_unknown(random, known):
    layer, x = Dense(4), random(3, 5, 6)
    layer.build(x.shape)
    graph = tf.function(layer, input_signature=[tf.TensorSpec((*known, 6))])
    np.testing.assert_allclose(graph(x), layer(x), rtol=1e-6)
    inputs = keras.Input((None, 6))
    assert layer(inputs).shape == (None, None, 4)


def test_a_number_of_units_of_numpy_is_accepted_and_a_wrong_one_is_named():
    assert Dense(np.int64(3)).get_config()["units"] == 3
    with pytest.raises(ValueError, match="units must be an integer of at least 1, but is 0"):
        Dense(0)
