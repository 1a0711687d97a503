import numpy as np
import pytest
from keras import ops

from keras_transformer import Decoder
from keras_transformer.layers.attention_memory import KVCache, ScoreRecorder

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
    found, expected_scores = ScoreRecorder(), ScoreRecorder()
    output = decoder(x, encoder_output, **MASKS, scores=found)
    np.testing.assert_array_equal(as_array(decoder(x, encoder_output, **MASKS)), as_array(output))
    assert len(decoder.layers) == 3
    for layer in decoder.layers:
        x = layer(x, encoder_output, **MASKS, scores=expected_scores)
    for kind in ("self_attention", "cross_attention"):
        pairs = zip(getattr(found, kind), getattr(expected_scores, kind), strict=True)
        for a, b in pairs:
            np.testing.assert_array_equal(as_array(a), as_array(b))
    assert (decoder.final_norm is not None) == norm_first  # post-norm ends with one already
    expected = decoder.final_norm(x) if norm_first else x
    np.testing.assert_allclose(as_array(output), as_array(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_cached_steps_equal_one_full_pass(decoder, random, norm_first):
    decoder, x, encoder_output = decoder(norm_first=norm_first), random(2, 4, 8), random(2, 5, 8)
    mask = MASKS["source_padding_mask"]
    expected = as_array(decoder(x, encoder_output, source_padding_mask=mask))
    caches = [KVCache(ops.zeros((2, 2, 4, 4)), ops.zeros((2, 2, 4, 4)), 0) for _ in range(3)]
    memories = decoder.project_memory(encoder_output)
    for t in range(4):
        for cache in caches:
            cache.index = t
        output = decoder(x[:, t : t + 1], memories, source_padding_mask=mask, cache=caches)
        np.testing.assert_allclose(as_array(output)[:, 0], expected[:, t], rtol=1e-5, atol=1e-5)


def test_wrong_number_of_layers_is_named():
    with pytest.raises(ValueError, match="num_layers must be an integer of at least 1, but is 2.0"):
        Decoder(num_layers=2.0, d_model=8, num_heads=2, d_ff=16)
