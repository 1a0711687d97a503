"""What both searches take, from Python, NumPy and tensors, and what they refuse."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import beam_search, greedy_search
from keras_transformer.decoding.search_result import IMPOSSIBLE

VOCAB_SIZE, END = 4, 3
SEARCHES = [greedy_search, beam_search]


def spell(token_ids, cache, position):
    """1, then 2, then the end token."""
    return tf.one_hot(token_ids + 1, VOCAB_SIZE) * 9.0, cache


def search(function, size=1, **arguments):
    arguments = {"end_id": END, "max_length": 5, **arguments}
    return function(spell, tf.zeros([size], tf.int32), (), **arguments)


@pytest.mark.parametrize("function", SEARCHES)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_length": True}, "max_length must be an integer of at least 1, but is True"),
        ({"max_length": np.int64(0)}, "max_length must be an integer of at least 1, but is "),
        ({"max_length": 2.5}, "max_length must be an integer of at least 1, but is 2.5"),
        ({"max_length": "5"}, "max_length must be an integer of at least 1, but is '5'"),
        ({"max_length": None}, "max_length must be an integer of at least 1, but is None"),
        ({"min_length": -1}, "min_length must be an integer of at least 0, but is -1"),
        ({"end_id": None}, "end_id must be an integer of at least 0, but is None"),
        ({"end_id": 4}, "end_id must be among the 4 tokens that the logits have, but is 4"),
        ({"suppress_ids": None}, r"suppress_ids must be a list, but is None; \(\) for none"),
        ({"suppress_ids": [-1]}, "suppress_ids must be an integer of at least 0, but is -1"),
        ({"suppress_ids": [0, 99]}, "suppress_ids must be among the 4 tokens .*, but is 99"),
        ({"max_lengths": [2, 3]}, r"max_lengths must have one value for each of 1 .* \(2,\)"),
        ({"max_lengths": [0]}, "max_lengths must be an integer of at least 1, but is 0"),
        ({"max_lengths": 3}, r"max_lengths must have one value .* its shape is \(\)"),
        ({"length_penalty": [0.5, 0.6]}, "length_penalty must have one value for each of 1"),
        ({"length_penalty": np.array([np.nan])}, "length_penalty must be a number in .*nan"),
        ({"length_penalty": "0.6"}, "length_penalty must be a number in .*, but is '0.6'"),
    ],
)
def test_an_argument_out_of_range_is_refused_by_name(function, wrong, message):
    with pytest.raises(ValueError, match=message):
        search(function, **wrong)


@pytest.mark.parametrize("function", SEARCHES)
def test_numbers_of_numpy_and_tensors_are_those_of_python(function):
    expected = search(function, 2, max_lengths=[2, 5], length_penalty=[0.5, 1], min_length=1)
    assert expected.ids[:, 0].numpy().tolist() == [[1, 2, 0, 0, 0], [1, 2, 3, 0, 0]]
    alpha = np.array([0.5, 1])
    for limits in (np.array([2, 5]), tf.constant([2, 5]), tf.constant([2, 5], tf.int64)):
        for penalties in (alpha, tf.constant(alpha)):
            result = search(
                function,
                2,
                max_length=np.int64(5),
                end_id=np.int32(END),
                min_length=np.int64(1),
                max_lengths=limits,
                length_penalty=penalties,
            )
            for field, same in zip(result, expected, strict=True):
                np.testing.assert_allclose(field, same, rtol=1e-6)


@pytest.mark.parametrize("function", SEARCHES)
@pytest.mark.parametrize("token", [VOCAB_SIZE, 99])
def test_nothing_begins_with_a_token_that_does_not_exist(function, token):
    result = search(function, 2, prefix_ids=[[1, token], [1, 0]])
    assert result.ids[:, 0].numpy().tolist() == [[0] * 5, [1, 2, 3, 0, 0]]
    assert result.scores[0, 0] == IMPOSSIBLE and result.scores[1, 0] > -1


def test_a_beam_may_be_counted_by_numpy():
    result = search(beam_search, beam_size=np.int64(3), num_hypotheses=np.int64(2))
    assert result.ids.shape == (1, 2, 5)
    with pytest.raises(ValueError, match="beam_size must be an integer of at least 1, but is True"):
        search(beam_search, beam_size=True)
