"""Products of 8-bit integers: exact sums, small errors, rows of their own."""

import os
import subprocess
import sys

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


def integer_product(x, kernel):
    """`x W` by sums of integers in 64 bits."""
    scales = int8.column_scales(kernel)
    levels, largest = int8.quantize_rows(x)
    levels = tf.bitcast(levels, tf.uint8).numpy().astype("int64") - int8.ZERO_POINT
    assert np.all(np.abs(levels).max(axis=1) == int8.LARGEST)
    sums = levels @ np.rint(kernel / scales).astype("int64")
    return sums * largest.numpy() / int8.LARGEST * scales


@pytest.mark.parametrize("depth, columns", SHAPES)
def test_a_product_is_that_of_its_integers(random, depth, columns):
    kernel, x = random(depth, columns), random(4, depth)
    actual = graph_of(Int8Matrix(kernel).multiply, depth)(x)
    np.testing.assert_allclose(actual, integer_product(x, kernel), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("depth, columns", SHAPES)
def test_a_product_is_close_to_that_of_floats(multiply, random, depth, columns):
    graph, kernel = multiply(depth, columns)
    x = random(50, depth)
    assert np.std(graph(x) - x @ kernel) < 0.02 * np.std(x @ kernel) + 1e-6


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


def check_sums_of_the_largest_numbers():
    check_int8()
    for depth in (2, 7, 64, 301, 512):
        pairs = [[127, 1], [1, 127], [64, 64], [127, -127]]
        kernel = np.stack([np.resize(pair, depth) for pair in pairs], axis=1).astype("float32")
        kernel = np.concatenate([kernel, -kernel], axis=1)  # (depth, 8)
        graph = graph_of(Int8Matrix(kernel).multiply, depth)
        for rows in (1, 2, 80):
            x = np.resize([3.0, -3.0], (rows, 1)).repeat(depth, axis=1).astype("float32")
            np.testing.assert_allclose(graph(x), integer_product(x, kernel), rtol=1e-6)


def test_the_sums_of_the_largest_numbers_are_exact():
    check_sums_of_the_largest_numbers()


OTHERS = (pytest.param(name, marks=pytest.mark.slow) for name in ("SSE41", "AVX512_CORE"))


@pytest.mark.parametrize("instructions", ["AVX2", *OTHERS])
def test_they_are_exact_on_older_processors(instructions):
    """oneDNN goes without the instructions of newer ones if the environment says so."""
    code = "from tests.export.test_int8 import *; check_sums_of_the_largest_numbers()"
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": instructions}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize("depth, columns", SHAPES)
def test_neighbours_fit_into_16_bits_together(random, depth, columns):
    kernel = np.exp(3 * random(depth, columns)) * random(depth, columns)
    values = np.rint(kernel / int8.column_scales(kernel))
    pairs = np.pad(values, [(0, depth % 2), (0, 0)]).reshape(-1, 2, columns)
    assert np.abs(values).max() <= 127
    for signed in (np.maximum(pairs, 0), np.maximum(-pairs, 0)):
        assert (2 * 127 * signed.sum(axis=1)).max() <= 2**15 - 1


def test_a_table_of_integers_has_the_rows_of_the_floats(random):
    floats = random(20, 8)
    table, ids = Int8Table(floats), np.array([[3, 3, 0], [19, 1, 2]])
    assert [v.dtype for v in table.variables] == [tf.int8, tf.float32]
    rows = table.lookup(ids)
    steps = np.abs(floats).max(axis=1) / int8.LARGEST
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
    message = r"TensorFlow does not have on this processor \(Missing 0-th output\)"
    with pytest.raises(RuntimeError, match=message):
        check_int8()
    check_int8.cache_clear()
