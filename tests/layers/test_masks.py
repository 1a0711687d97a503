import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Forecaster,
    MultiHeadAttention,
    attention_scores,
    masked_mean,
    normalize_windows,
)
from keras_transformer.layers.masks import (
    causal_mask,
    combine_masks,
    padding_mask,
    segment_mask,
)


def as_array(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_padding_mask_is_true_at_real_tokens(dtype):
    mask = as_array(padding_mask(np.array([[5, 6, 0], [7, 0, 0]], dtype), pad_id=0))
    assert mask.dtype == bool
    assert mask.tolist() == [[True, True, False], [True, False, False]]


def test_padding_mask_follows_the_pad_id():
    assert as_array(padding_mask(np.array([[0, 9]]), pad_id=9)).tolist() == [[True, False]]


@pytest.mark.parametrize("length", [1, 2, 7])
def test_causal_mask_is_the_lower_triangle(length):
    mask = as_array(causal_mask(length))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, np.tril(np.ones((1, length, length), bool)))


@pytest.mark.parametrize("first", [0, 2, 4])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_causal_mask_of_later_queries_is_the_rows_of_the_whole_one(first, as_tensor):
    start = ops.convert_to_tensor(first) if as_tensor else first
    part = as_array(causal_mask(2, 6, first=start))
    np.testing.assert_array_equal(part, as_array(causal_mask(6))[:, first : first + 2])


def test_segments_do_not_see_each_other():
    segments = np.array([[0, 0, 1, 2, 2], [1, 1, 1, 1, 2]])
    mask = as_array(segment_mask(segments))
    assert mask.dtype == bool and mask.shape == (2, 5, 5)
    for b, t, s in np.ndindex(2, 5, 5):
        assert mask[b, t, s] == (segments[b, t] == segments[b, s])


def test_combined_mask_is_true_where_every_mask_is():
    keys = np.array([[True, True, False], [True, False, True]])  # (B, S)
    attention = np.array([[[True, True, True], [False, True, True]]])  # (1, T, S)
    combined = as_array(combine_masks(keys, None, attention))
    assert combined.shape == (2, 2, 3)
    for b, t, s in np.ndindex(2, 2, 3):
        assert combined[b, t, s] == (keys[b, s] and attention[0, t, s])


def test_a_mask_of_keys_alone_is_spread_over_the_queries():
    assert as_array(combine_masks(np.array([[1, 0, 1]]))).tolist() == [[[True, False, True]]]


FLOATS = np.array([[0.0, 0.0, -np.inf]]), np.array([[1.0, 1.0, 0.0]])
SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8}
X = np.ones((1, 3, 8), "float32")
SERIES = {"history_length": 3, "horizon": 1, "num_layers": 1}
# The name of the argument, and a call with a mask.
TAKERS = [
    ("A mask", combine_masks),
    ("mask", lambda mask: attention_scores(X[:, None], X[:, None], mask[:, None, None])),
    ("padding_mask", lambda mask: masked_mean(X, mask)),
    ("padding_mask", lambda mask: normalize_windows(X, mask).values),
    ("attention_mask", lambda mask: MultiHeadAttention(8, 2)(X, attention_mask=mask)),
    ("padding_mask", lambda mask: EncoderLayer(**SIZES)(X, padding_mask=mask)),
    ("padding_mask", lambda mask: Encoder(num_layers=1, **SIZES)(X, padding_mask=mask)),
    ("padding_mask", lambda mask: DecoderLayer(**SIZES)(X, X, padding_mask=mask)),
    ("attention_mask", lambda mask: DecoderLayer(**SIZES)(X, X, attention_mask=mask[None])),
    ("source_padding_mask", lambda mask: Decoder(1, **SIZES)(X, X, source_padding_mask=mask)),
    (
        "padding_mask",
        lambda mask: Forecaster(**SERIES, **SIZES)({"history": X[..., :1], "padding_mask": mask}),
    ),
]


@pytest.mark.parametrize("mask", FLOATS)
@pytest.mark.parametrize(("name", "take"), TAKERS)
def test_a_mask_of_floats_is_refused_wherever_there_is_one(name, take, mask):
    with pytest.raises(ValueError, match=f"{name} must be boolean, True = may attend, but is fl"):
        take(mask)


@pytest.mark.parametrize(("name", "take"), TAKERS)
def test_a_mask_of_integers_is_read_as_a_boolean_one(name, take):
    keras.utils.set_random_seed(0)
    expected = as_array(take(np.array([[True, True, False]])))
    keras.utils.set_random_seed(0)
    np.testing.assert_array_equal(as_array(take(np.array([[1, 1, 0]]))), expected)


def test_no_mask_stays_none():
    assert combine_masks() is None
    assert combine_masks(None, None) is None


def test_a_length_that_is_not_known_yet_is_refused():
    with pytest.raises(ValueError, match="query_length is None, since it is not known before"):
        causal_mask(keras.KerasTensor((None, None)).shape[1])
