"""Where a history ends in each row of a batch, and the steps around that place."""

import numpy as np
from keras import ops

from keras_transformer.forecasting.inputs import real_lengths, steps_around

MASK = np.array([[0, 1, 1, 0], [1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]], bool)


def test_real_lengths_count_to_the_last_real_step():
    assert ops.convert_to_numpy(real_lengths(MASK)).tolist() == [3, 4, 2, 0]
    assert ops.convert_to_numpy(real_lengths(np.zeros((2, 0), bool))).tolist() == [0, 0]


def test_steps_around_an_origin_have_the_same_index_in_all_rows():
    values = np.arange(1, 13).reshape(2, 6)
    taken = ops.convert_to_numpy(steps_around(values, np.array([4, 1], "int32"), 3, 2))
    assert taken.tolist() == [[2, 3, 4, 5, 6], [0, 0, 7, 8, 9]]
    vectors = np.stack([values, -values], -1)
    taken = ops.convert_to_numpy(steps_around(vectors, np.array([4, 0], "int32"), 2))
    assert taken.tolist() == [[[3, -3], [4, -4]], [[0, 0], [0, 0]]]
