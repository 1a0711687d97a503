import numpy as np
import pytest
from keras import ops

from keras_transformer import Encoder
from keras_transformer.layers.attention_memory import ScoreRecorder

MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.fixture
def encoder(randomize):
    def make(**kwargs):
        encoder = Encoder(num_layers=3, d_model=8, num_heads=2, d_ff=16, **kwargs)
        encoder.build((None, None, 8))
        return randomize(encoder)

    return make


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_is_its_layers_in_turn(encoder, random, norm_first):
    encoder, x = encoder(norm_first=norm_first), random(2, 5, 8)
    found, expected_scores = ScoreRecorder(), ScoreRecorder()
    output = encoder(x, padding_mask=MASK, scores=found)
    np.testing.assert_array_equal(as_array(encoder(x, padding_mask=MASK)), as_array(output))
    assert len(encoder.layers) == 3
    for layer in encoder.layers:
        x = layer(x, padding_mask=MASK, scores=expected_scores)
    kinds = found.self_attention, expected_scores.self_attention
    for a, b in zip(*kinds, strict=True):
        np.testing.assert_array_equal(as_array(a), as_array(b))
    assert (encoder.final_norm is not None) == norm_first  # post-norm ends with one already
    expected = encoder.final_norm(x) if norm_first else x
    np.testing.assert_allclose(as_array(output), as_array(expected), rtol=1e-5, atol=1e-5)


def test_wrong_number_of_layers_is_named():
    with pytest.raises(ValueError, match="num_layers must be an integer of at least 1, but is 0"):
        Encoder(num_layers=0, d_model=8, num_heads=2, d_ff=16)
