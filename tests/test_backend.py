"""Each function of `backend.py` against the formula in its docstring, eagerly and in a graph."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import backend
from keras_transformer.backend import (
    add_at,
    batched_gather,
    fused_attention,
    matmul_by_head,
    non_negative,
    random_bytes,
    sum_over_parts,
    take,
    value_and_gradients,
    write_slice,
    write_slice_in_place,
)
from keras_transformer.layers.attention import dot_product_attention

IN_GRAPH = pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "graph"])


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def results(function, *inputs, in_graph=False, **options):
    """`function` of arrays; in the graph no axis but the last is known."""
    inputs = [tf.constant(x) for x in inputs]
    if not in_graph:
        return np.array(function(*inputs, **options))
    specs = [tf.TensorSpec([None] * (x.shape.rank - 1) + x.shape[-1:], x.dtype) for x in inputs]
    specs = [spec if spec.shape.rank else tf.TensorSpec((), spec.dtype) for spec in specs]
    graph = tf.function(lambda *x: function(*x, **options), input_signature=specs)
    return graph(*inputs).numpy()


@IN_GRAPH
@pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 2, 3)])
@pytest.mark.parametrize("indices_shape", [(4,), (3, 2), (0,)])
def test_taken_rows_and_columns_are_those_of_numpy(rng, shape, indices_shape, in_graph):
    x, indices = rng.normal(size=shape), rng.integers(0, 6, indices_shape).astype("int32")
    np.testing.assert_array_equal(results(take, x, indices, in_graph=in_graph), x[indices])
    x = np.stack([x, -x])
    found = results(take, x, indices, in_graph=in_graph, axis=1)
    np.testing.assert_array_equal(found, x[:, indices])


@IN_GRAPH
@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("width", [(), (2,), (2, 4)])
def test_batched_gather_takes_other_indices_of_each_row(rng, rows, width, in_graph):
    x = rng.normal(size=(rows, 7, *width)).astype("float32")
    indices = rng.integers(0, 7, (rows, 3)).astype("int32")
    found = results(batched_gather, x, indices, in_graph=in_graph)
    np.testing.assert_array_equal(found, x[np.arange(rows)[:, None], indices])


@IN_GRAPH
@pytest.mark.parametrize("write", [write_slice, write_slice_in_place])
@pytest.mark.parametrize("length, index", [(1, 0), (1, 5), (2, 4), (3, 3), (6, 0)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_slice_is_written_and_the_rest_stays(rng, write, length, index, dtype, in_graph):
    x = tf.cast(rng.normal(size=(2, 3, 6, 4)), dtype)
    new = tf.cast(rng.normal(size=(2, 3, length, 4)), dtype)
    expected = np.array(x)
    expected[:, :, index : index + length] = np.array(new)
    if in_graph:
        write = tf.function(write)
    place = tf.constant(index) if in_graph else index
    np.testing.assert_array_equal(write(tf.identity(x), new, place), expected)


def test_only_the_write_in_place_changes_what_it_is_given(rng):
    x, new = tf.zeros((1, 2, 4, 3)), tf.ones((1, 2, 1, 3))
    write_slice(x, new, 2)
    assert not np.any(x)
    written = np.array(write_slice_in_place(x, new, 2))
    np.testing.assert_array_equal(x, written)


def test_without_tensorflow_each_is_its_formula(rng, monkeypatch):
    """The branch of other backends, whose operations TensorFlow has, too."""
    x, new = rng.normal(size=(2, 3, 6, 4)), rng.normal(size=(2, 3, 1, 4))
    indices = rng.integers(0, 6, (2, 5)).astype("int32")
    keys = tf.constant(rng.normal(size=(2, 3, 1, 4)), "float32")
    calls = [
        lambda: take(x, indices[0] % 2),
        lambda: take(x, indices[0] % 3, axis=1),
        lambda: batched_gather(tf.constant(x[:, 0]), indices),
        lambda: write_slice_in_place(tf.constant(x), tf.constant(new), 3),
        lambda: matmul_by_head(keys, keys, transpose_y=True),
    ]
    here = [np.array(call()) for call in calls]
    monkeypatch.setattr(backend, "on_tensorflow", lambda: False)
    for call, expected in zip(calls, here, strict=True):
        np.testing.assert_allclose(call(), expected, rtol=1e-6)
    bytes_ = np.array(random_bytes((1000,), keras.random.SeedGenerator(1)))
    assert bytes_.dtype == "uint8" and len(set(bytes_)) > 200


@IN_GRAPH
@pytest.mark.parametrize("queries", [0, 1, 2])
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 0.05)])
def test_products_of_heads_are_those_of_numpy(rng, queries, dtype, tolerance, in_graph):
    """TensorFlow has another kernel for one query."""
    x, y = rng.normal(size=(2, 3, queries, 5)), rng.normal(size=(2, 3, 5, 4))
    x, y = tf.cast(x, dtype), tf.cast(y, dtype)
    expected = np.array(tf.cast(x, "float32")) @ np.array(tf.cast(y, "float32"))
    product = tf.function(matmul_by_head) if in_graph else matmul_by_head
    transposed = tf.transpose(y, (0, 1, 3, 2))
    for result in (product(x, y), product(x, transposed, transpose_y=True)):
        assert result.dtype == dtype
        np.testing.assert_allclose(tf.cast(result, "float32"), expected, atol=tolerance)


@IN_GRAPH
@pytest.mark.parametrize("shape", [(3,), (2, 3), (5, 7, 3), (1, 1), (0, 4)])
def test_bytes_fill_any_shape(shape, in_graph):
    seed = keras.random.SeedGenerator(1)
    draw = tf.function(random_bytes) if in_graph else random_bytes
    bytes_ = np.array(draw(tf.constant(shape) if in_graph else shape, seed))
    assert bytes_.shape == shape and bytes_.dtype == "uint8"


@IN_GRAPH
def test_all_256_bytes_are_equally_likely_at_every_place(in_graph):
    draw = tf.function(random_bytes) if in_graph else random_bytes
    bytes_ = np.array(draw((256_000,), keras.random.SeedGenerator(1)))
    for part, most in ((bytes_, 1000), *((bytes_[i::4], 250) for i in range(4))):
        counts = np.bincount(part, minlength=256)
        assert abs(counts - most).max() < 6 * most**0.5
    for distance in (1, 2, 3, 4, 8):
        pairs = bytes_[:-distance], bytes_[distance:]
        assert abs(np.corrcoef(*pairs)[0, 1]) < 0.01


def test_equal_seeds_draw_equal_bytes_and_calls_differ():
    seeds = [keras.random.SeedGenerator(3) for _ in range(2)]
    (a, b), (c, d) = ([np.array(random_bytes((99,), s)) for _ in range(2)] for s in seeds)
    np.testing.assert_array_equal([a, b], [c, d])
    assert (a != b).any()


def test_numbers_are_added_in_their_columns():
    x, columns, numbers = np.zeros((3, 4), "float32"), np.array([1, 3, 1]), np.array([2.0, 3, 4])
    expected = x + numbers[:, None] * np.eye(4)[columns]
    np.testing.assert_array_equal(add_at(x, columns.astype("int32"), numbers), expected)


def test_what_is_not_negative_passes_and_the_rest_is_an_error():
    np.testing.assert_array_equal(non_negative(tf.constant([0, 3]), "no"), [0, 3])
    for function in (non_negative, tf.function(non_negative)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
            function(tf.constant([0, -3]), "too small")


def test_gradients_are_those_of_finite_differences():
    rng = np.random.default_rng(0)
    table, scale, unused = (
        keras.Variable(rng.normal(size=shape), dtype="float64") for shape in ((5, 2), (2,), (3,))
    )

    def function():
        rows = keras.ops.take(table, [1, 4, 1], axis=0)  # its gradient is sparse
        return keras.ops.sum(keras.ops.exp(rows) * scale), "more"

    (_, more), gradients = value_and_gradients(function, [table, scale, unused])
    assert more == "more"
    for variable, gradient in zip((table, scale, unused), gradients, strict=True):
        start, expected = np.array(variable), np.zeros(variable.shape)
        for place in np.ndindex(start.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = start.copy()
                moved[place] += step
                variable.assign(moved)
                ends.append(float(function()[0]))
            expected[place] = (ends[0] - ends[1]) / 2e-6
        variable.assign(start)
        np.testing.assert_allclose(gradient, expected, atol=1e-6)


@pytest.mark.parametrize("parts", [1, 2, 7, 9])
@pytest.mark.parametrize("wrap", [lambda x: x, tf.function])
def test_sums_and_rows_of_parts_are_those_of_the_whole(parts, wrap):
    x = tf.constant(np.random.default_rng(0).normal(size=(7, 3)), tf.float32)

    def function(part):
        return [tf.reduce_sum(part, 0), tf.reduce_sum(part**2)], 2 * part

    def run(x):
        zeros = [tf.zeros((3,)), tf.zeros(())]
        options = {"parts": parts, "at_once": 2, "rows_dtype": "float32"}
        return sum_over_parts(function, [x], zeros, **options)

    sums, rows = wrap(run)(x)
    for value, whole in zip(sums, function(x)[0], strict=True):
        np.testing.assert_allclose(value, whole, atol=1e-5)
    np.testing.assert_array_equal(rows, 2 * x)


@pytest.mark.parametrize("shape", [(2, 1, 1, 5), (1, 1, 3, 5), (1, 1, 1, 5), (2, 1, 3, 5)])
def test_the_fused_kernel_gives_the_formula_and_sees_a_mask_of_every_query(
    monkeypatch, random, shape
):
    query, key, value = random(2, 4, 3, 8), random(2, 4, 5, 8), random(2, 4, 5, 8)
    mask = (np.arange(5) < np.arange(3, 3 + shape[0])[:, None, None, None]) & np.ones(shape, bool)
    masks, of_keras = [], ops.dot_product_attention

    def fused_kernel(*args, mask):
        masks.append(mask)
        return of_keras(*args, mask=mask)

    monkeypatch.setattr(ops, "dot_product_attention", fused_kernel)
    expected, _ = dot_product_attention(query, key, value, mask)
    np.testing.assert_allclose(fused_attention(query, key, value, mask), expected, atol=1e-5)
    assert [mask.shape for mask in masks] == [(shape[0], 1, 3, 5)]
