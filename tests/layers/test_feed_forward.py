import math

import numpy as np
import pytest
from keras import ops

from keras_transformer import FeedForward


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


def test_output_is_two_dense_layers_with_a_relu_between(random, randomize):
    layer, x = FeedForward(d_model=4, d_ff=6), random(2, 3, 4)
    layer.build(x.shape)
    w_1, b_1, w_2, b_2 = randomize(layer).get_weights()
    expected = np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2
    np.testing.assert_allclose(as_array(layer(x)), expected, rtol=1e-5, atol=1e-5)


def test_activation_is_the_one_asked_for(random, randomize):
    layer, x = FeedForward(d_model=4, d_ff=6, activation="tanh"), random(2, 3, 4)
    layer.build(x.shape)
    w_1, b_1, w_2, b_2 = randomize(layer).get_weights()
    expected = np.tanh(x @ w_1 + b_1) @ w_2 + b_2
    np.testing.assert_allclose(as_array(layer(x)), expected, rtol=1e-5, atol=1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


GATES = {
    "swiglu": lambda x: x * sigmoid(x),
    "geglu": lambda x: x * np.vectorize(lambda y: (1 + math.erf(y / math.sqrt(2))) / 2)(x),
    "reglu": lambda x: np.maximum(0, x),
}


@pytest.mark.parametrize("activation", GATES)
def test_gated_output_is_that_of_the_paper(random, randomize, activation):
    """Shazeer (2020), equations 5 and 6: (f(x W) * x V) W_2, f the gate, no biases."""
    layer, x = FeedForward(d_model=4, d_ff=6, activation=activation), random(2, 3, 4)
    layer.build(x.shape)
    fused, w_2 = randomize(layer).get_weights()
    w, v = fused[:, :6], fused[:, 6:]
    expected = (GATES[activation](x @ w) * (x @ v)) @ w_2
    np.testing.assert_allclose(as_array(layer(x)), expected, rtol=1e-5, atol=1e-5)


def test_gated_network_of_two_thirds_the_width_has_as_many_parameters():
    plain, gated = FeedForward(8, 24), FeedForward(8, 16, activation="swiglu")
    plain.build((None, 8)), gated.build((None, 8))
    biases = 24 + 8
    assert gated.count_params() == plain.count_params() - biases


def test_gated_dropout_applies_after_the_gate(random):
    layer = FeedForward(d_model=4, d_ff=6, activation="swiglu", dropout=0.999)
    output = as_array(layer(random(2, 10, 4), training=True))
    assert np.mean(np.all(output == 0, axis=-1)) > 0.8


def test_each_position_is_computed_alone(random):
    layer, x = FeedForward(d_model=4, d_ff=6), random(2, 5, 4)
    together = as_array(layer(x))
    for t in range(5):
        alone = as_array(layer(x[:, t : t + 1]))
        np.testing.assert_allclose(alone[:, 0], together[:, t], rtol=1e-5, atol=1e-5)


def test_dropout_applies_between_the_two_layers_in_training_only(random, randomize):
    layer, x = FeedForward(d_model=4, d_ff=6, dropout=0.999), random(2, 10, 4)
    layer.build(x.shape)
    w_1, b_1, w_2, b_2 = randomize(layer).get_weights()
    expected = np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2
    np.testing.assert_allclose(as_array(layer(x)), expected, rtol=1e-5, atol=1e-5)
    bias_is_left = np.all(np.isclose(as_array(layer(x, training=True)), b_2), axis=-1)
    assert np.mean(bias_is_left) > 0.8


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"d_model": 0}, "d_model must be an integer of at least 1, but is 0"),
        ({"d_ff": None}, "d_ff must be an integer of at least 1, but is None"),
        ({"dropout": 1.0}, r"dropout must be a number in \[0, 1\), but is 1.0"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        FeedForward(**{"d_model": 4, "d_ff": 8, **arguments})


def test_inputs_of_another_width_are_refused(random):
    with pytest.raises(ValueError, match=r"FeedForward expects inputs of width d_model=8, but rec"):
        FeedForward(8, 16)(random(1, 2, 16))
