import numpy as np
import pytest
from keras import ops

from keras_transformer import Decoder

MASKS = {
    "padding_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool),
    "source_padding_mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool),
}


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.fixture
def decoder(randomize):
    def make(**kwargs):
        decoder = Decoder(num_layers=3, d_model=8, num_heads=2, d_ff=16, **kwargs)
        decoder.build((None, None, 8), (None, None, 8))
        return randomize(decoder)

    return make


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_is_its_layers_in_turn(decoder, random, norm_first):
    decoder, x, encoder_output = decoder(norm_first=norm_first), random(2, 4, 8), random(2, 5, 8)
    output, scores = decoder(x, encoder_output, **MASKS, return_attention_scores=True)
    np.testing.assert_array_equal(as_array(decoder(x, encoder_output, **MASKS)), as_array(output))
    assert len(decoder.layers) == len(scores) == 3
    for layer, layer_scores in zip(decoder.layers, scores, strict=True):
        x, expected = layer(x, encoder_output, **MASKS, return_attention_scores=True)
        for name in ("self", "cross"):
            np.testing.assert_array_equal(as_array(layer_scores[name]), as_array(expected[name]))
    assert (decoder.final_norm is not None) == norm_first  # post-norm ends with one already
    expected = decoder.final_norm(x) if norm_first else x
    np.testing.assert_allclose(as_array(output), as_array(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_cached_steps_equal_one_full_pass(decoder, random, norm_first):
    decoder, x, encoder_output = decoder(norm_first=norm_first), random(2, 4, 8), random(2, 5, 8)
    mask = MASKS["source_padding_mask"]
    expected = as_array(decoder(x, encoder_output, source_padding_mask=mask))
    cache = decoder.init_cache(encoder_output, batch_size=2, length=4)
    for t in range(4):
        output, scores, cache = decoder(
            x[:, t : t + 1],
            source_padding_mask=mask,
            cache=cache,
            position=t,
            return_attention_scores=True,
        )
        assert len(scores) == len(cache) == 3
        np.testing.assert_allclose(as_array(output)[:, 0], expected[:, t], rtol=1e-5, atol=1e-5)


def test_wrong_number_of_layers_is_named():
    with pytest.raises(ValueError, match="num_layers must be an integer of at least 1, but is 2.0"):
        Decoder(num_layers=2.0, d_model=8, num_heads=2, d_ff=16)
