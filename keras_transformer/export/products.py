"""Forms of a product of two matrices, and which of them is the fastest on this machine.

A step of a search multiplies few rows, so it takes as long as matrices can be read. Spare columns:
where a row of a matrix is a multiple of 1 KiB long, the numbers of one column compete for the same
few places of a processor's cache. Transposed: some processors are slow to read a matrix the other
way. 8-bit integers: they take a quarter of the memory, but rows have to be made integers first, so
those of small matrices, or of few rows, may be slower.
"""

import functools
import math
import time

import tensorflow as tf

from keras_transformer.export.int8 import Int8Matrix
from keras_transformer.layers.dense import leading_shape

# What a layout has to win.
LEAST_SPEEDUP = 1.1
# How often products are timed, and with how many rows.
REPEATS, ROWS = 7, 64
# The bytes of the matrices that a timing goes through, and the most matrices. A search comes back
# to a matrix only after all others, when it has left the nearest caches.
BYTES, MOST = 2**24, 32
# Spare columns are tried for at least `NARROWEST` columns, if these are a multiple of `MULTIPLE`.
SPARE_COLUMNS, NARROWEST, MULTIPLE = 32, 512, 256
# The numbers of the smallest matrix of logits that is worth another: smaller ones stay in a cache.
SMALLEST = 2**18


def with_spare_columns(x):
    """Adds columns of zeros to a matrix (D, E), or to a bias (E,)."""
    return tf.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[0, SPARE_COLUMNS]])


def product(x, columns, kernel, bias=None, activation=None):
    """Computes `activation(x W + b)` by a kernel that may have spare columns.

    Args:
        x: tensor (..., D).
        columns: E, of the result.
        kernel: tensor (D, E), or with more columns.
        bias: tensor with as many, or None.
        activation: function of a tensor, or None.

    Returns:
        Tensor (..., E).
    """
    x, leading = tf.cast(x, kernel.dtype), leading_shape(x)
    y = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), kernel)  # (rows, E or more)
    y = y if bias is None else tf.nn.bias_add(y, bias)  # which TensorFlow fuses with the product
    y = y if activation is None else activation(y)
    y = y if y.shape[1] == columns else y[:, :columns]  # (rows, E)
    return tf.reshape(y, [*leading, columns])


@functools.cache
def spare_columns_win(depth: int, columns: int, dtype: str) -> bool:
    """Whether products by a matrix (D, E) are faster with spare columns."""
    if columns < NARROWEST or columns % MULTIPLE:
        return False

    def multiply(x, kernel):
        return product(x, columns, kernel)

    spare = many_products(multiply, depth, (depth, columns + SPARE_COLUMNS), dtype)
    return is_faster(spare, many_products(multiply, depth, (depth, columns), dtype))


@functools.cache
def transposed_wins(vocab_size: int, depth: int) -> bool:
    """Whether logits by a matrix (V, D) are faster if it is stored as (D, V)."""
    if vocab_size * depth < SMALLEST:
        return False

    def multiply(x, kernel):
        return tf.matmul(x, kernel, transpose_b=True)

    transposed = many_products(tf.matmul, depth, (depth, vocab_size))
    return is_faster(transposed, many_products(multiply, depth, (vocab_size, depth)))


@functools.cache
def int8_wins(depth: int, columns: int, *rows: int) -> bool:
    """Whether products by a matrix (D, E) are faster in 8-bit integers, for so many rows each."""

    def multiply(x, kernel):
        return product(x, columns, kernel)

    integers = many_products(
        lambda x, matrix: matrix.multiply(x), depth, (depth, columns), prepare=Int8Matrix
    )
    floats = many_products(multiply, depth, (depth, columns))
    return math.prod(speedup(integers, floats, count) for count in rows) > 1


def many_products(multiply, depth, shape, dtype="float32", prepare=tf.identity):
    """A graph that multiplies by many matrices of one shape, which do not all fit into a cache.

    Args:
        multiply: function of `x` (rows, D) and a matrix.
        depth: D.
        shape: of the matrices.
        dtype: of all.
        prepare: function of a matrix, to what `multiply` takes.

    Returns:
        A function of the number of rows.
    """
    count = max(2, min(MOST, BYTES // (4 * math.prod(shape))))
    random = (tf.random.stateless_uniform(shape, seed=[0, i]) for i in range(count))
    kernels = [prepare(tf.cast(matrix, dtype)) for matrix in random]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, depth], dtype)])
    def multiply_all(x):
        return [multiply(x, kernel) for kernel in kernels]

    return lambda rows: multiply_all(tf.ones([rows, depth], dtype))


def is_faster(function, other) -> bool:
    """Whether a function of the number of rows has `LEAST_SPEEDUP` times the speed of another."""
    return speedup(function, other, ROWS) > LEAST_SPEEDUP


def speedup(function, other, *arguments) -> float:
    """How many times as fast as `other` a function is, timed in turns after one call of each."""
    times = [[], []]
    for _ in range(1 + REPEATS):
        for candidate, seconds in zip((function, other), times, strict=True):
            start = time.perf_counter()
            candidate(*arguments)
            seconds.append(time.perf_counter() - start)
    return min(times[1][1:]) / min(times[0][1:])
