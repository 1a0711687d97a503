import numpy as np
import pytest
from keras import ops

from keras_transformer import EncoderLayer
from keras_transformer.layers.attention_memory import ScoreRecorder


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


def encoder_layer_in_numpy(layer, x, mask):
    """Section 3.1 of the paper in float64, from the layer's weights alone."""
    weights = {w.path.split("/", 1)[1]: v.astype("float64") for w, v in weights_of(layer)}

    def layer_norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        variance = np.mean(centred**2, -1, keepdims=True)
        gamma, beta = (weights[f"{name}_residual/norm/{part}"] for part in ("gamma", "beta"))
        return centred / np.sqrt(variance + 1e-6) * gamma + beta

    def dense(x, name):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    def self_attention(x):
        query = dense(x, "self_attention/query_projection")
        key, value = np.split(dense(x, "self_attention/memory_projection"), 2, axis=-1)
        heads = []
        for columns in np.split(np.arange(8), 2):
            q, k, v = query[..., columns], key[..., columns], value[..., columns]
            exponentials = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(len(columns))) * mask[:, None]
            heads.append(exponentials / exponentials.sum(-1, keepdims=True) @ v)
        return dense(np.concatenate(heads, -1), "self_attention/output_projection")

    def feed_forward(x):
        return dense(np.maximum(0, dense(x, "feed_forward/inner")), "feed_forward/outer")

    for name, sublayer in (("self_attention", self_attention), ("feed_forward", feed_forward)):
        if layer.arguments.norm_first:
            x = x + sublayer(layer_norm(x, name))
        else:
            x = layer_norm(x + sublayer(x), name)
    return x


def weights_of(layer):
    return zip(layer.weights, layer.get_weights(), strict=True)


@pytest.fixture
def encoder_layer(randomize):
    def make(**kwargs):
        layer = EncoderLayer(d_model=8, num_heads=2, d_ff=16, **kwargs)
        layer.build((None, None, 8))
        return randomize(layer)

    return make


MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)


@pytest.mark.parametrize("norm_first", [False, True])
def test_layer_equals_the_paper_in_numpy(encoder_layer, random, norm_first):
    layer, x = encoder_layer(norm_first=norm_first), random(2, 5, 8)
    for mask in (MASK, np.ones((2, 5), bool)):
        expected = encoder_layer_in_numpy(layer, x, mask)
        output = as_array(layer(x, padding_mask=mask))
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(as_array(layer(x)), output)  # no mask: all positions are real


@pytest.mark.parametrize("norm_first", [False, True])
def test_layer_is_composed_of_its_sublayers(encoder_layer, random, norm_first):
    layer, x = encoder_layer(norm_first=norm_first, activation="gelu"), random(2, 5, 8)
    first_norm, second_norm = layer.self_attention_residual.norm, layer.feed_forward_residual.norm
    if norm_first:
        y = x + layer.self_attention(first_norm(x), attention_mask=MASK)
        expected = y + layer.feed_forward(second_norm(y))
    else:
        y = first_norm(x + layer.self_attention(x, attention_mask=MASK))
        expected = second_norm(y + layer.feed_forward(y))
    output = layer(x, padding_mask=MASK)
    np.testing.assert_allclose(as_array(output), as_array(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_padding_changes_no_real_position(encoder_layer, random, norm_first):
    layer, x = encoder_layer(norm_first=norm_first), random(2, 5, 8)
    output = as_array(layer(x, padding_mask=MASK))
    changed = as_array(layer(np.where(MASK[..., None], x, 100), padding_mask=MASK))
    np.testing.assert_array_equal(output[MASK], changed[MASK])
    np.testing.assert_allclose(as_array(layer(x[1:, :3]))[0], output[1, :3], rtol=0, atol=1e-5)


def test_scores_are_those_of_the_masked_attention(encoder_layer, random):
    layer, x = encoder_layer(), random(2, 5, 8)
    recorder = ScoreRecorder()
    output = layer(x, padding_mask=MASK, scores=recorder)
    np.testing.assert_array_equal(as_array(output), as_array(layer(x, padding_mask=MASK)))
    assert not recorder.cross_attention
    (scores,) = map(as_array, recorder.self_attention)
    assert scores.shape == (2, 2, 5, 5)
    assert np.array_equal(scores > 0, np.broadcast_to(MASK[:, None, None], scores.shape))


def test_an_unknown_activation_is_named():
    with pytest.raises(ValueError, match="rleu"):
        EncoderLayer(d_model=8, num_heads=2, d_ff=16, activation="rleu")


def test_rotary_attention_sees_the_order_of_its_inputs(random, randomize):
    """Without positions it does not: the outputs are permuted with the inputs."""
    order, x = [3, 1, 4, 0, 2], random(1, 5, 8)
    options = {"d_model": 8, "num_heads": 2, "d_ff": 16, "norm": "rms_norm", "activation": "swiglu"}
    differences = []
    for rotary in (False, True):
        layer = EncoderLayer(**options, rotary=rotary)
        layer.build(x.shape)
        randomize(layer)
        permuted = as_array(layer(x[:, order]))
        differences.append(np.abs(permuted - as_array(layer(x))[:, order]).max())
    assert differences[0] < 1e-5 and differences[1] > 1e-2
