"""The matrices of an exported model, laid out as this machine multiplies by them fastest.

A step of a search has few rows, so its products are as fast as matrices can be read. Two layouts
can help, and timing decides. Spare columns: where the rows of a matrix are a multiple of a kilobyte
long, one column of all of them falls into a small part of a processor's cache. And the matrix of
the logits, transposed, where a processor is slow to read it across.
"""

import functools
import time
from functools import partial

import tensorflow as tf

from keras_transformer.layers.dense import leading_shape

# Rows of a step of a search; what a layout has to win; how often a product is timed.
ROWS, LEAST_SPEEDUP, REPEATS = 64, 1.1, 7
SPARE_COLUMNS, NARROWEST, MULTIPLE = 32, 512, 256


def pack(model) -> list[tf.Variable]:
    """Lets the layers of a model multiply by matrices in their fastest layout.

    Args:
        model: a `Transformer` or a `LanguageModel` that nobody else uses; changed.

    Returns:
        All variables that it then reads.
    """
    weights = {id(weight): weight.value for weight in model.weights}
    packed = []
    for dense in dense_layers(model):
        if spare_columns_win(*dense.kernel.shape, dense.kernel.dtype):
            old = [weights.pop(id(weight)) for weight in dense.weights]
            new = [tf.Variable(with_spare_columns(x), trainable=False) for x in old]
            dense.call = partial(multiply_packed, dense, new)
            packed += new
    lm_head = model.lm_head_kernel()  # (V, D)
    if transposed_wins(*lm_head.shape):
        packed.append(tf.Variable(tf.transpose(lm_head), trainable=False))  # (D, V)
        model.logits = partial(packed_logits, packed[-1])
    return [*weights.values(), *packed]


def dense_layers(model):
    """The dense layers of attention and of feed-forward networks."""
    stacks = [model.decoder, *([model.encoder] if hasattr(model, "encoder") else [])]
    for layer in (layer for stack in stacks for layer in stack.layers):
        for attention in (layer.self_attention, getattr(layer, "cross_attention", None)):
            if attention is not None:
                yield from (attention.query_projection, attention.memory_projection)
                yield attention.output_projection
        yield from (layer.feed_forward.inner, layer.feed_forward.outer)


def with_spare_columns(x):
    """A matrix (D, E), or a bias (E,), with columns of zeros after the last."""
    return tf.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[0, SPARE_COLUMNS]])


def multiply_packed(dense, weights, inputs, training=None):
    """What `dense` computes, by its kernel and bias `with_spare_columns`."""
    kernel, *bias = weights
    y = tf.matmul(tf.reshape(inputs, [-1, inputs.shape[-1]]), kernel)  # (rows, E + 32)
    y = tf.nn.bias_add(y, *bias) if bias else y  # which TensorFlow fuses with the product
    y = y if dense.activation is None else dense.activation(y)
    return tf.reshape(y[:, : dense.units], [*leading_shape(inputs), dense.units])  # (..., E)


def packed_logits(kernel, hidden_states):
    """What `TokenModel.logits` computes, by its matrix transposed, (D, V)."""
    depth, vocab_size = kernel.shape
    y = tf.matmul(tf.reshape(tf.cast(hidden_states, kernel.dtype), [-1, depth]), kernel)
    return tf.reshape(tf.cast(y, tf.float32), [*leading_shape(hidden_states), vocab_size])


@functools.cache
def spare_columns_win(depth: int, columns: int, dtype: str) -> bool:
    """Whether products by a matrix (D, E) are faster with spare columns."""
    if columns < NARROWEST or columns % MULTIPLE:
        return False
    x, kernel = random(ROWS, depth, dtype), random(depth, columns, dtype)
    spare = with_spare_columns(kernel)
    return is_faster(lambda: tf.matmul(x, spare)[:, :columns], lambda: tf.matmul(x, kernel))


@functools.cache
def transposed_wins(vocab_size: int, depth: int) -> bool:
    """Whether logits by a matrix (V, D) are faster if it is stored as (D, V)."""
    x, kernel = random(ROWS, depth), random(vocab_size, depth)
    transposed = tf.transpose(kernel)
    return is_faster(
        lambda: tf.matmul(x, transposed), lambda: tf.matmul(x, kernel, transpose_b=True)
    )


def random(rows, columns, dtype="float32"):
    """A matrix of random numbers."""
    return tf.cast(tf.random.stateless_normal([rows, columns], seed=[0, 0]), dtype)


def is_faster(function, other) -> bool:
    """Whether a function has at least `LEAST_SPEEDUP` times the speed of another; in turns."""
    times = [[], []]
    for _ in range(REPEATS):
        for candidate, seconds in zip((function, other), times, strict=True):
            start = time.perf_counter()
            candidate()
            seconds.append(time.perf_counter() - start)
    return min(times[0]) * LEAST_SPEEDUP < min(times[1])
