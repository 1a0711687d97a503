import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.layers.linear import (
    BLOCK_WIDTH,
    FEW_ROWS,
    SPARE_COLUMNS,
    Linear,
    column_blocks,
    linear,
    product,
    with_spare_columns,
    without_spare_columns,
)


def random(*shape):
    return np.random.default_rng(1).normal(size=shape).astype("float32")


@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (2, 3, 5, 6), (0, 6), (2, 0, 6)])
def test_linear_is_a_product_and_a_sum_on_the_last_axis(shape):
    x, kernel, bias = random(*shape), random(6, 4), random(4)
    np.testing.assert_allclose(linear(x, kernel, bias), x @ kernel + bias, rtol=0, atol=1e-5)
    np.testing.assert_allclose(linear(x, kernel), x @ kernel, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (0, 6), (1, 6)])
def test_linear_is_the_same_by_blocks_of_any_width(shape):
    x, kernel, bias = random(*shape), random(6, 12), random(12)
    for width in (1, 4, 12):
        blocks = column_blocks(kernel, width)
        assert blocks.shape == (12 // width, 6, width)
        np.testing.assert_allclose(linear(x, blocks, bias), x @ kernel + bias, rtol=0, atol=1e-5)
        np.testing.assert_allclose(linear(x, blocks), x @ kernel, rtol=0, atol=1e-5)


def test_step_weights_stand_in_for_the_weights_of_a_layer():
    x = random(2, 6)
    for use_bias in (True, False):
        layer = Linear(8, activation="relu", use_bias=use_bias, bias_initializer="normal")
        expected = layer(x)
        weights = layer.step_weights()
        assert len(weights) == 1 + use_bias
        np.testing.assert_array_equal(layer(x, step_weights=weights), expected)
        laid_out = (column_blocks(weights[0], 2), *weights[1:])
        np.testing.assert_allclose(layer(x, step_weights=laid_out), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("columns", [256, 511, 512, 640, 768, 1024])
def test_rows_of_whole_kilobytes_get_spare_columns(columns):
    spare = SPARE_COLUMNS if columns in (512, 768, 1024) else 0
    kernel, bias = random(6, columns), random(columns)
    for x in (kernel, bias):
        wide = np.array(with_spare_columns(x))
        assert wide.shape[-1] == columns + spare
        np.testing.assert_array_equal(without_spare_columns(wide, columns), x)
        np.testing.assert_array_equal(wide[..., columns:], 0)


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize("use_bias", [False, True])
def test_spare_columns_do_not_leave_a_layer(activation, use_bias):
    x = random(2, 3, 6)
    layer = Linear(512, activation=activation, use_bias=use_bias, bias_initializer="normal")
    expected = layer(x)
    weights = tuple(map(with_spare_columns, layer.step_weights()))
    assert weights[0].shape == (6, 512 + SPARE_COLUMNS)
    np.testing.assert_allclose(layer(x, step_weights=weights), expected, rtol=0, atol=1e-6)


def test_layer_is_keras_dense():
    x = random(2, 3, 6)
    layer, dense = Linear(4, activation="relu"), keras.layers.Dense(4, activation="relu")
    layer(x), dense(x)
    dense.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(x), dense(x), rtol=0, atol=1e-6)


def test_a_block_holds_columns_side_by_side():
    kernel = random(6, 3 * BLOCK_WIDTH)
    blocks = ops.convert_to_numpy(column_blocks(kernel))
    for i in range(3):
        columns = slice(i * BLOCK_WIDTH, (i + 1) * BLOCK_WIDTH)
        np.testing.assert_array_equal(blocks[i], kernel[:, columns])


def test_the_last_block_is_filled_up_with_zeros():
    kernel = random(6, 3 * BLOCK_WIDTH + 1)
    blocks = ops.convert_to_numpy(column_blocks(kernel))
    assert blocks.shape == (4, 6, BLOCK_WIDTH)
    np.testing.assert_array_equal(blocks[3, :, 0], kernel[:, -1])
    np.testing.assert_array_equal(blocks[3, :, 1:], 0)


@pytest.mark.parametrize("rows", [0, 1, 2, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("columns", [2 * BLOCK_WIDTH, 2 * BLOCK_WIDTH + 1, BLOCK_WIDTH - 1])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_product_is_the_same_with_blocks_and_without(rows, columns, jit_compile):
    x, kernel = random(rows, 6), random(6, columns)
    blocks = column_blocks(kernel)
    spec = tf.TensorSpec([rows if jit_compile else None, 6])

    @tf.function(input_signature=[spec], jit_compile=jit_compile)
    def graph(x):
        return product(x, kernel, blocks)

    for result in (product(x, kernel), product(x, kernel, blocks), graph(x)):
        np.testing.assert_allclose(result, x @ kernel, rtol=0, atol=1e-5)
