"""The products of an exported model, in the form in which this machine multiplies fastest.

Timing decides on the form of each product: see `products.py`. Biases and activations go where
TensorFlow fuses them with a product. With integers the embeddings are integers, too.
"""

from functools import partial

import tensorflow as tf

from keras_transformer.export.int8 import Int8Matrix, Int8Table, check_int8
from keras_transformer.export.products import (
    int8_wins,
    product,
    spare_columns_win,
    transposed_wins,
    with_spare_columns,
)
from keras_transformer.layers.dense import leading_shape

# The loads for which a matrix has to be good: one sentence, and some; each of so many tokens.
SENTENCES, SOURCE_TOKENS = (1, 16), 20


def pack(model, precision: str = "float32", beam_size: int = 1) -> list[tf.Variable]:
    """Replaces the products of a model, as methods of its layers, by faster ones.

    Args:
        model: a `Transformer` or a `LanguageModel` that nobody else uses; changed.
        precision: "int8" to try integers, else that of the model.
        beam_size: the hypotheses of a sentence, each a row of a step's products.

    Returns:
        All variables that it then reads, in the order of its weights.

    Raises:
        RuntimeError: for "int8", if this TensorFlow has no products of integers.
    """
    try_int8 = precision == "int8"
    if try_int8:
        check_int8()
    packed = {}
    for dense, tokens in dense_layers(model):
        rows = [count * (tokens or beam_size) for count in SENTENCES]
        matrix = int8_matrix(dense.kernel, rows) if try_int8 else None
        packed |= pack_dense(dense, matrix)
    lm_head = model.lm_head_kernel()  # (V, D)
    rows = [count * beam_size for count in SENTENCES]
    more = pack_logits(model, int8_matrix(tf.transpose(lm_head), rows) if try_int8 else None)
    projection = getattr(model, "output_projection", None)
    if more and projection is not None:
        packed[id(projection.kernel)] = []  # `more` stands for it
    if try_int8:
        for_logits = None if more or projection is not None else model.target_embedding
        packed |= pack_embeddings(model, for_logits)
    variables = [packed.get(id(weight), [weight.value]) for weight in model.weights]
    return [*sum(variables, []), *more]


def dense_layers(model):
    """Yields the dense layers of attention and of feed-forward networks.

    Yields:
        A layer, and `SOURCE_TOKENS` if it reads sources, None if it reads the hypotheses of a step.
    """
    stacks = [(model.decoder, None)]
    if hasattr(model, "encoder"):
        stacks.append((model.encoder, SOURCE_TOKENS))
    for layer, tokens in ((layer, tokens) for stack, tokens in stacks for layer in stack.layers):
        for name in ("self_attention", "cross_attention"):
            if (attention := getattr(layer, name, None)) is not None:
                yield attention.query_projection, tokens
                of_source = name == "cross_attention"
                yield attention.memory_projection, SOURCE_TOKENS if of_source else tokens
                yield attention.output_projection, tokens
        yield layer.feed_forward.inner, tokens
        yield layer.feed_forward.outer, tokens


def int8_matrix(kernel, rows) -> Int8Matrix | None:
    """Makes a kernel (D, E) integers, if it is faster so, for so many rows each."""
    if int8_wins(*kernel.shape, *rows):
        return Int8Matrix(kernel)
    return None


def pack_dense(dense, matrix) -> dict[int, list[tf.Variable]]:
    """Replaces the product of a dense layer, by that of an `Int8Matrix` if there is one.

    Returns:
        For the `id` of each weight that is replaced, the variables that are read for it.
    """
    if matrix is not None:
        dense.call = partial(multiply_int8, dense, matrix)
        return {id(dense.kernel): matrix.variables}
    variables = packed_weights(dense)
    dense.call = partial(multiply_packed, dense, variables)
    return {id(old): [new] for old, new in zip(dense.weights, variables, strict=True)}


def pack_logits(model, matrix) -> list[tf.Variable]:
    """Replaces the product that makes logits, if another is faster; returns its variables.

    `matrix` is the `Int8Matrix` to take, or None.
    """
    lm_head = model.lm_head_kernel()  # (V, D)
    if matrix is not None:
        model.logits = partial(int8_logits, matrix)
        return matrix.variables
    if transposed_wins(*lm_head.shape):
        kernel = tf.Variable(tf.transpose(lm_head), trainable=False)  # (D, V)
        model.logits = partial(packed_logits, kernel)
        return [kernel]
    return []


def pack_embeddings(model, for_logits) -> dict[int, list[tf.Variable]]:
    """Replaces the embeddings of a model by tables of integers.

    Args:
        model: as for `pack`.
        for_logits: the one whose floats the logits read, or None.

    Returns:
        As `pack_dense`.
    """
    names = ("source_embedding", "target_embedding")
    embeddings = {getattr(model, name) for name in names if hasattr(model, name)}
    packed = {}
    for embedding in embeddings:
        table = Int8Table(embedding.embeddings)
        embedding.lookup = table.lookup
        kept = [embedding.embeddings.value] if embedding is for_logits else []
        packed[id(embedding.embeddings)] = [*table.variables, *kept]
    return packed


def packed_weights(dense) -> list[tf.Variable]:
    """Copies the kernel and the bias of a dense layer, with spare columns if they win."""
    weights = [weight.value for weight in dense.weights]
    if spare_columns_win(*dense.kernel.shape, dense.kernel.dtype):
        weights = [with_spare_columns(weight) for weight in weights]
    return [tf.Variable(weight, trainable=False) for weight in weights]


def multiply_packed(dense, weights, inputs, training=None):
    """Computes a dense layer by its `packed_weights`."""
    return product(inputs, dense.units, *weights, activation=dense.activation)


def packed_logits(kernel, hidden_states):
    """Computes `TokenModel.logits` by its matrix transposed, (D, V)."""
    return tf.cast(product(hidden_states, kernel.shape[1], kernel), tf.float32)


def int8_product(x, matrix):
    """Computes `x W`, (..., E) float32, by an `Int8Matrix` (D, E)."""
    y = matrix.multiply(tf.reshape(tf.cast(x, tf.float32), [-1, x.shape[-1]]))  # (rows, E)
    return tf.reshape(y, [*leading_shape(x), y.shape[1]])


def multiply_int8(dense, matrix, inputs, training=None):
    """Computes a dense layer by integers."""
    y = int8_product(inputs, matrix)
    return dense.activation(y + dense.bias.value if dense.use_bias else y)


def int8_logits(matrix, hidden_states):
    """Computes `TokenModel.logits` by integers."""
    return int8_product(hidden_states, matrix)
