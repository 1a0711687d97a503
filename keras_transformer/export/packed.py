"""The products of an exported model, in the form in which this machine multiplies fastest.

A step of a search multiplies few rows, so it takes as long as matrices can be read. Every product
is one of two matrices, which TensorFlow fuses with bias and activation. Two layouts of matrices are
tried, and timing decides. Spare columns: where a row of a matrix is a multiple of 1 KiB long, the
numbers of one column compete for the same few places of a processor's cache. And the matrix of the
logits transposed, where a processor is slow to read it the other way.
"""

import functools
import math
import time
from functools import partial

import tensorflow as tf

from keras_transformer.layers.dense import leading_shape

# What a layout has to win, how often products are timed, and with how many rows and matrices: a
# search comes back to a matrix only after all others, when it has left the nearest caches.
LEAST_SPEEDUP, REPEATS, ROWS, BYTES, MOST = 1.1, 7, 64, 2**24, 32
SPARE_COLUMNS, NARROWEST, MULTIPLE = 32, 512, 256
# The numbers of the smallest matrix of logits that is worth another: smaller ones stay in a cache.
SMALLEST = 2**18


def pack(model) -> list[tf.Variable]:
    """Replaces the products of a model, as methods of its layers, by faster ones.

    Args:
        model: a `Transformer` or a `LanguageModel` that nobody else uses; changed.

    Returns:
        All variables that it then reads, in the order of its weights.
    """
    packed = {}
    for dense in dense_layers(model):
        weights = packed_weights(dense)
        dense.call = partial(multiply_packed, dense, weights)
        packed.update(zip(map(id, dense.weights), weights, strict=True))
    variables = [packed.get(id(weight), weight.value) for weight in model.weights]
    lm_head = model.lm_head_kernel()  # (V, D)
    if transposed_wins(*lm_head.shape):
        variables.append(tf.Variable(tf.transpose(lm_head), trainable=False))  # (D, V)
        model.logits = partial(packed_logits, variables[-1])
    return variables


def dense_layers(model):
    """Yields the dense layers of attention and of feed-forward networks."""
    stacks = [model.decoder, *([model.encoder] if hasattr(model, "encoder") else [])]
    for layer in (layer for stack in stacks for layer in stack.layers):
        for attention in (layer.self_attention, getattr(layer, "cross_attention", None)):
            if attention is not None:
                yield from (attention.query_projection, attention.memory_projection)
                yield attention.output_projection
        yield from (layer.feed_forward.inner, layer.feed_forward.outer)


def packed_weights(dense) -> list[tf.Variable]:
    """Copies the kernel and the bias of a dense layer, with spare columns if they win."""
    weights = [weight.value for weight in dense.weights]
    if spare_columns_win(*dense.kernel.shape, dense.kernel.dtype):
        weights = [with_spare_columns(weight) for weight in weights]
    return [tf.Variable(weight, trainable=False) for weight in weights]


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


def multiply_packed(dense, weights, inputs, training=None):
    """Computes a dense layer by its `packed_weights`."""
    return product(inputs, dense.units, *weights, activation=dense.activation)


def packed_logits(kernel, hidden_states):
    """Computes `TokenModel.logits` by its matrix transposed, (D, V)."""
    return tf.cast(product(hidden_states, kernel.shape[1], kernel), tf.float32)


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


def many_products(multiply, depth, shape, dtype="float32"):
    """A graph that multiplies by many matrices of one shape, which do not all fit into a cache.

    Args:
        multiply: function of `x` (rows, D) and a matrix.
        depth: D.
        shape: of the matrices.
        dtype: of all.

    Returns:
        A function without arguments.
    """
    count = max(2, min(MOST, BYTES // (4 * math.prod(shape))))
    sizes = [(ROWS, depth), *[shape] * count]
    random = (tf.random.stateless_uniform(size, seed=[0, i]) for i, size in enumerate(sizes))
    x, *kernels = (tf.cast(matrix, dtype) for matrix in random)
    graph = tf.function(lambda: [multiply(x, kernel) for kernel in kernels], autograph=False)
    return graph.get_concrete_function()


def is_faster(function, other) -> bool:
    """Whether a function has at least `LEAST_SPEEDUP` times the speed of another; in turns."""
    times = [[], []]
    for _ in range(REPEATS):
        for candidate, seconds in zip((function, other), times, strict=True):
            start = time.perf_counter()
            candidate()
            seconds.append(time.perf_counter() - start)
    return min(times[0]) * LEAST_SPEEDUP < min(times[1])
