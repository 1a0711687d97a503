"""Products of matrices in 8-bit integers: a quarter of the memory, and less time for large ones.

A weight is a small integer times a scale of its column; a number of the other matrix is a small
integer times a scale of its row. So a row's result depends on no other row. The sums of products
of integers are exact. Softmax, normalization, residual sums and scores are not computed here.

The operation is oneDNN's, and packs a matrix when it first multiplies by it.
"""

import functools

import numpy as np
import tensorflow as tf

AttrValue = tf.compat.v1.AttrValue

# Numbers become integers up to this, either way.
LARGEST = 127
# oneDNN takes unsigned activations. 0 becomes this; `corrections` undo it.
ZERO_POINT = LARGEST
# Processors without VNNI add the products of two neighbours of a column in 16 bits. The neighbours
# are 129 together at most, and `2 * 127 * 129` is below 2^15: so sums are exact on all of them.
LARGEST_PAIR = 129
# The largest number of a row of zeros is taken to be this.
TINY = 1e-30
# oneDNN packs a matrix before it multiplies, which takes longer than a product of few rows. The
# operation with a function in Python, `QuantizedMatMulWithBiasAndDequantize`, packs it in every
# call, unless it is a constant of the graph. This one, which TensorFlow makes of others when it
# optimizes a graph, keeps what it has packed.
OPERATION = "_QuantizedMatMul"


class Int8Matrix:
    """A matrix of weights as integers, to multiply by.

    Args:
        kernel: array (D, E) of floats.
    """

    def __init__(self, kernel):
        kernel = np.asarray(kernel, "float32")
        scales = column_scales(kernel)  # (E,)
        values = np.rint(kernel / scales).astype("int8")  # (D, E)
        corrections = -ZERO_POINT * values.sum(axis=0, dtype="int32")  # (E,)
        self.values = tf.Variable(tf.bitcast(values, tf.qint8), trainable=False)
        self.scales = tf.Variable(scales / LARGEST, trainable=False)
        self.corrections = tf.Variable(corrections.astype("float32"), trainable=False)

    @property
    def variables(self) -> list[tf.Variable]:
        """What a SavedModel has to hold."""
        return [self.values, self.scales, self.corrections]

    def multiply(self, x):
        """Computes `x W`.

        Args:
            x: float32 tensor (rows, D).

        Returns:
            float32 tensor (rows, E).
        """
        levels, largest = quantize_rows(x)  # (rows, D), (rows, 1)
        sums = integer_sums(levels, self.values, self.corrections)  # (rows, E)
        return sums * largest * self.scales


class Int8Table:
    """A matrix of embeddings as integers, to look rows up in.

    Args:
        table: array (V, D) of floats.
    """

    def __init__(self, table):
        table = np.asarray(table, "float32")
        scales = largest_of(table, axis=1) / LARGEST  # (V,)
        values = np.rint(table / scales[:, None]).astype("int8")  # (V, D)
        self.values = tf.Variable(values, trainable=False)
        self.scales = tf.Variable(scales, trainable=False)

    @property
    def variables(self) -> list[tf.Variable]:
        """What a SavedModel has to hold."""
        return [self.values, self.scales]

    def lookup(self, ids):
        """Returns the rows of `ids` (B, T): float32 (B, T, D)."""
        rows = tf.cast(tf.gather(self.values, ids), tf.float32)  # (B, T, D)
        return rows * tf.gather(self.scales, ids)[..., None]


def column_scales(matrix):
    """Returns the smallest scale (E,) of each column of `matrix` (D, E) with which sums are exact.

    No integer is then larger than `LARGEST`, and no two neighbours of one sign are larger than
    `LARGEST_PAIR` together.
    """
    even = np.pad(matrix, [(0, len(matrix) % 2), (0, 0)])  # (D or D + 1, E)
    pairs = np.where(even[::2] * even[1::2] > 0, even[::2] + even[1::2], 0)  # (pairs, E)
    # Each of two neighbours may be rounded up by a half.
    return np.maximum(largest_of(matrix) / LARGEST, largest_of(pairs) / (LARGEST_PAIR - 1))


def largest_of(matrix, axis=0):
    """Returns the largest absolute value in each column, or along another axis; above 0."""
    return np.abs(matrix).max(axis=axis, initial=TINY)


def quantize_rows(x):
    """Returns the rows of `x` (rows, D) as integers, and the largest number of each.

    Returns:
        quint8 (rows, D), `ZERO_POINT` for 0, and float32 (rows, 1), which is NaN for a row with a
        NaN.
    """
    largest = tf.maximum(tf.reduce_max(tf.abs(x), axis=1, keepdims=True), TINY)  # (rows, 1)
    # A cast cuts, so half of a step is added.
    levels = x * (LARGEST / largest) + (ZERO_POINT + 0.5)  # (rows, D)
    return tf.bitcast(tf.cast(levels, tf.uint8), tf.quint8), largest


def integer_sums(levels, values, corrections):
    """Computes `levels values + corrections`, exactly, in a graph.

    Args:
        levels: quint8 (rows, D).
        values: qint8 (D, E), the same in all calls.
        corrections: float32 (E,), integers, the same in all calls.

    Returns:
        float32 (rows, E).
    """
    operands = [tf.convert_to_tensor(x) for x in (levels, values, corrections)]
    ranges = [tf.constant(x) for x in (0.0, 255.0, -127.0, 127.0)]  # with these nothing is scaled
    types = {
        "T1": tf.quint8,
        "T2": tf.qint8,
        "Tdevice_inputs": [tf.quint8, tf.qint8, tf.float32],
        "Thost_inputs": [tf.float32] * len(ranges),
        "Tdevice_outputs": [tf.float32],
    }
    attributes = {name: _attribute(value) for name, value in types.items()}
    attributes["fused_ops"] = AttrValue(list=AttrValue.ListValue(s=[b"BiasAdd", b"Dequantize"]))
    graph, name = tf.compat.v1.get_default_graph(), "integer_sums"
    operation = graph.create_op(
        OPERATION, [*operands, *ranges], [tf.float32], name=name, attrs=attributes
    )
    return operation.outputs[0]


def _attribute(types):
    """Returns a type, or a list of them, as an attribute of an operation."""
    if isinstance(types, list):
        return AttrValue(list=AttrValue.ListValue(type=[x.as_datatype_enum for x in types]))
    return AttrValue(type=types.as_datatype_enum)


@functools.cache
def check_int8() -> None:
    """Checks that this TensorFlow multiplies integers, and exactly, on this processor.

    Raises:
        RuntimeError: if it does not.
    """
    random = np.random.default_rng(0)
    levels = random.integers(0, 2 * LARGEST + 1, (5, 512))
    values = random.integers(-LARGEST_PAIR // 2 + 1, LARGEST_PAIR // 2 + 1, (512, 48))
    # The largest that a column may have, of either sign, and the largest number to multiply it by.
    values[:, 0] = np.resize([LARGEST, LARGEST_PAIR - LARGEST], 512)
    values[:, 1], levels[0] = -values[::-1, 0], 2 * LARGEST
    corrections = -ZERO_POINT * values.sum(axis=0)  # (48,)

    @tf.function(autograph=False)
    def multiply(levels, values):
        levels = tf.bitcast(levels, tf.quint8)
        return integer_sums(levels, tf.bitcast(values, tf.qint8), corrections.astype("float32"))

    try:
        sums = multiply(levels.astype("uint8"), values.astype("int8"))
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        raise RuntimeError(
            'precision="int8" needs products of integers, which TensorFlow does not have on this '
            f'processor ({str(error).splitlines()[0]}); use "float32".'
        ) from error
    if not np.array_equal(sums, levels @ values + corrections):
        raise RuntimeError(
            'precision="int8" is not exact on this processor, so translations would be wrong; use '
            '"float32".'
        )
