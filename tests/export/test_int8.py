"""Products of 8-bit integers: exact sums, small errors, rows of their own."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.export import int8
from keras_transformer.export.int8 import Int8Matrix, Int8Table, check_int8

SHAPES = [(1, 1), (7, 5), (64, 48), (300, 129), (8, 1024)]


def graph_of(function, depth):
    spec = tf.TensorSpec([None, depth], tf.float32)
    return tf.function(function, input_signature=[spec], autograph=False)


@pytest.fixture
def multiply(random):
    """multiply(depth, columns): a graph that multiplies by a matrix, and the matrix."""

    def make(depth, columns):
        kernel = random(depth, columns)
        matrix = Int8Matrix(kernel)
        return graph_of(matrix.multiply, depth), kernel

    return make


@pytest.mark.parametrize("depth, columns", SHAPES)
def test_a_product_is_that_of_its_integers(random, depth, columns):
    kernel, x = random(depth, columns), random(4, depth)
    values, scales = int8.quantize_columns(kernel)
    levels, largest = int8.quantize_rows(x)
    levels = tf.bitcast(levels, tf.uint8).numpy().astype("int64") - int8.ZERO_POINT
    assert np.abs(levels).max(axis=1).tolist() == [int8.LARGEST_ACTIVATION] * 4
    sums = levels @ values.astype("int64")  # exact
    expected = sums * largest.numpy() / int8.LARGEST_ACTIVATION * scales
    actual = graph_of(Int8Matrix(kernel).multiply, depth)(x)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("depth, columns", SHAPES)
def test_a_product_is_close_to_that_of_floats(multiply, random, depth, columns):
    graph, kernel = multiply(depth, columns)
    x = random(50, depth)
    assert np.std(graph(x) - x @ kernel) < 0.03 * np.std(x @ kernel) + 1e-6


def test_a_row_does_not_depend_on_the_others(multiply, random):
    graph, _ = multiply(64, 48)
    x = random(33, 64) * np.exp(3 * random(33, 1))
    together = graph(x).numpy()
    for i in range(33):
        np.testing.assert_array_equal(graph(x[i : i + 1])[0], together[i])
    np.testing.assert_array_equal(graph(x[::-1])[::-1], together)


@pytest.mark.parametrize("depth, columns", [*SHAPES, (512, 1024)])
def test_a_packed_matrix_serves_any_number_of_rows(random, depth, columns):
    """oneDNN packs a matrix for the first call, and may want it in another form for another."""
    graph, x = graph_of(Int8Matrix(random(depth, columns)).multiply, depth), random(200, depth)
    together = graph(x).numpy()
    for rows in (1, 64, 2, 16, 1, 200):
        np.testing.assert_array_equal(graph(x[:rows]), together[:rows])


def test_no_row_is_no_row_and_zeros_are_zeros(multiply):
    graph, _ = multiply(6, 4)
    assert graph(np.zeros((0, 6), "float32")).shape == (0, 4)
    assert not np.any(graph(np.zeros((2, 6), "float32")))
    matrix = Int8Matrix(np.zeros((6, 4)))
    assert not np.any(graph_of(matrix.multiply, 6)(np.ones((2, 6), "float32")))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_spoils_its_row_alone(multiply, value):
    graph, _ = multiply(6, 4)
    x = np.ones((3, 6), "float32")
    x[1, 2] = value
    finite = np.isfinite(graph(x)).all(axis=1)
    assert finite.tolist() == [True, False, True]


def test_the_sums_of_the_largest_numbers_are_exact():
    check_int8()
    low, high = -int8.LARGEST_ACTIVATION, int8.LARGEST_ACTIVATION
    for sign in (1, -1):
        kernel = np.full((512, 3), sign * int8.LARGEST_WEIGHT, "float32")
        graph = graph_of(Int8Matrix(kernel).multiply, 512)
        x = np.stack([np.full(512, high), np.full(512, low)]).astype("float32")
        np.testing.assert_allclose(graph(x), x @ kernel, rtol=1e-6)


def test_two_products_of_the_largest_numbers_fit_into_16_bits():
    largest = 2 * (int8.LARGEST_ACTIVATION + int8.ZERO_POINT) * int8.LARGEST_WEIGHT
    assert largest <= 2**15 - 1


def test_a_table_of_integers_has_the_rows_of_the_floats(random):
    floats = random(20, 8)
    table, ids = Int8Table(floats), np.array([[3, 3, 0], [19, 1, 2]])
    assert [v.dtype for v in table.variables] == [tf.int8, tf.float32]
    rows = table.lookup(ids)
    steps = np.abs(floats).max(axis=1) / int8.LARGEST_WEIGHT
    assert np.all(np.abs(rows - floats[ids]) <= 0.501 * steps[ids][..., None])


def test_wrong_sums_are_refused(monkeypatch):
    check_int8.cache_clear()
    monkeypatch.setattr(int8, "integer_sums", lambda levels, values, c: c + tf.zeros((5, 1)))
    with pytest.raises(RuntimeError, match='precision="int8" is not exact on this processor'):
        check_int8()
    check_int8.cache_clear()


def test_a_tensorflow_without_products_of_integers_is_refused(monkeypatch):
    def fail(*_):
        raise tf.errors.InternalError(None, None, "Missing 0-th output")

    check_int8.cache_clear()
    monkeypatch.setattr(int8, "integer_sums", fail)
    message = r"this TensorFlow has not on this processor \(Missing 0-th output\)"
    with pytest.raises(RuntimeError, match=message):
        check_int8()
    check_int8.cache_clear()
