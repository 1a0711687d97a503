import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.gather import at_columns, rows_of


@pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 2, 3)])
@pytest.mark.parametrize("rows_shape", [(4,), (3, 2), (0,)])
def test_rows_are_those_of_numpy(shape, rows_shape):
    rng = np.random.default_rng(0)
    x, rows = rng.normal(size=shape), rng.integers(0, 6, rows_shape).astype("int32")
    np.testing.assert_array_equal(rows_of(x, rows), x[rows])


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("width", [(), (2,), (2, 4)])
def test_columns_are_those_of_numpy_also_where_the_number_of_rows_is_unknown(rows, width):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 7, *width)).astype("float32")
    columns = rng.integers(0, 7, (rows, 3)).astype("int32")
    specs = tf.TensorSpec([None, 7, *width]), tf.TensorSpec([None, 3], tf.int32)
    for function in (at_columns, tf.function(at_columns, input_signature=specs)):
        expected = x[np.arange(rows)[:, None], columns]
        np.testing.assert_array_equal(function(x, columns), expected)
