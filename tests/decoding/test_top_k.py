"""The largest logits against a plain sort."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.result import IMPOSSIBLE
from keras_transformer.decoding.top_k import (
    GROUPING,
    allowed_top_k,
    columns_searched,
    group_width,
    log_sum_exp,
    top_k,
)

# Tiny, primes (which groups do not divide), powers of two, real vocabularies.
SIZES = [1, 2, 3, 5, 8, 30, 64, 97, 210, 256, 1000, 1009, 7919, 8000, 32000]


def assert_largest(values, columns, logits, k):
    values, columns = np.array(values), np.array(columns)
    assert values.shape == columns.shape == (len(logits), k)
    assert columns.dtype == "int32"
    np.testing.assert_array_equal(values, -np.sort(-logits, axis=1)[:, :k])
    np.testing.assert_array_equal(np.take_along_axis(logits, columns, axis=1), values)
    assert all(len(set(row)) == k for row in columns.tolist())


@pytest.mark.parametrize("size", SIZES)
def test_values_and_columns_are_those_of_a_sort(size, random):
    logits = random(5, size)
    for k in range(1, min(size, 8) + 1):
        assert_largest(*top_k(logits, k), logits, k)


@pytest.mark.parametrize("size", [8, 97, 100, 1000, 8000])
@pytest.mark.parametrize("count", [1, 2, 5], ids=lambda count: f"{count} values")
def test_of_equal_logits_no_column_comes_twice(size, count):
    logits = np.random.default_rng(0).integers(0, count, (6, size)).astype("float32")
    for k in range(1, 9):
        assert_largest(*top_k(logits, k), logits, k)


@pytest.mark.parametrize("size", [100, 1009, 8000, 9697])
def test_the_largest_are_found_wherever_they_lie(size):
    """All in one group, one in each group, at both ends."""
    width = group_width(size, 4)
    assert size // width >= 8, "a size that is searched by groups"
    for places in (range(width), range(0, size, width), [0, size - 1], [width - 1, width]):
        logits = np.random.default_rng(0).uniform(0, 1, (1, size)).astype("float32")
        places = list(places)[:4]
        logits[0, places] += 1 + np.arange(len(places))
        _, columns = top_k(logits, 4)
        assert set(np.array(columns)[0]) >= set(places)


@pytest.mark.parametrize("size", [9700, 32000])
def test_groups_are_searched_in_groups(size):
    """Less is searched than with one level of the best number of groups."""
    levels, left = 0, size
    while (width := group_width(left, 8)) != 1:
        left, levels = 8 * width + left % width, levels + 1
    assert levels == 2
    once = min(size // width + 8 * width for width in range(1, size + 1) if size % width == 0)
    assert columns_searched(size, 8, group_width(size, 8)) < once + GROUPING


@pytest.mark.parametrize("size", [1999, 9697, 9722, 31991])
def test_a_size_that_nothing_divides_is_searched_in_groups(size):
    """Not by looking at all columns, or at half as many maxima of two."""
    assert size % group_width(size, 5) > 0
    assert columns_searched(size, 5, group_width(size, 5)) < size / 2


@pytest.mark.parametrize("size", [100, 1009, 1999, 9697])
def test_the_columns_that_no_group_holds_are_searched(size):
    for place in range(size - 40, size):
        logits = np.zeros((1, size), "float32")
        logits[0, [3, place]] = 1.0, 2.0
        _, columns = top_k(logits, 2)
        assert np.array(columns).tolist() == [[place, 3]]


@pytest.mark.parametrize("size", [7, 64, 997, 8000])
@pytest.mark.parametrize("low", [-np.inf, IMPOSSIBLE])
def test_rows_with_fewer_possible_tokens_than_k(size, low):
    logits = np.full((3, size), low, "float32")
    logits[1, size // 2] = 2.0
    logits[2, [0, size - 1]] = 1.0, 3.0
    assert_largest(*top_k(logits, 4), logits, 4)


@pytest.mark.parametrize("size", [5, 64, 997, 8000])
def test_one_graph_serves_any_number_of_rows_and_none(size, random):
    graph = tf.function(
        lambda logits: top_k(logits, 4), input_signature=[tf.TensorSpec([None, size], tf.float32)]
    )
    for rows in (3, 1, 0):
        logits = random(rows, size)
        assert_largest(*graph(logits), logits, 4)


@pytest.mark.parametrize("size", [6, 97, 1000])
@pytest.mark.parametrize("k", [1, 4])
def test_the_largest_of_those_allowed(size, k, random):
    logits, rng = random(8, size), np.random.default_rng(1)
    best = np.argsort(-logits.mean(axis=0))[:3].tolist()  # worth forbidding
    of_rows, all_of_them = rng.random((8, size)) < 0.4, np.ones(size, "bool")
    for forbidden in (None, rng.random(size) < 0.4, of_rows, all_of_them):
        pairs = [(best[0], True), (best[1], False), (best[2], tf.constant(True))]
        for struck in ([], pairs[:1], pairs, [(token, True) for token in range(6)]):
            allowed = np.where(False if forbidden is None else forbidden, IMPOSSIBLE, logits)
            for token, active in struck:
                if active:
                    allowed[:, token] = IMPOSSIBLE
            values, columns, normalizer = allowed_top_k(logits, k, forbidden, struck)
            assert_largest(values, columns, allowed.astype("float32"), k)
            np.testing.assert_allclose(normalizer, log_sum_exp(logits), rtol=1e-5)


@pytest.mark.parametrize("size", [2, 97, 8000])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_log_sum_exp_is_that_of_numpy_by_both_ways(size, scale, random):
    logits = scale * random(7, size) + 100 * random(7, 1)
    double = logits.astype("float64")
    largest = double.max(axis=1, keepdims=True)
    expected = largest + np.log(np.exp(double - largest).sum(axis=1, keepdims=True))
    columns = logits.argmax(axis=1)[:, None].astype("int32")
    for result in (log_sum_exp(logits), log_sum_exp(logits, columns)):
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
