"""Products of matrices in 8-bit integers: a quarter of the memory, and less time for large ones.

A weight is a small integer times a scale of its column; a number of the other matrix is a small
integer times a scale of its row. So a row's result depends on no other row. The sums of products
of integers are exact. Softmax, normalization, residual sums and scores are not computed here.

The operation is oneDNN's, which TensorFlow calls only if `TF_ENABLE_ONEDNN_OPTS` allows it.
"""

import functools

import numpy as np
import tensorflow as tf

# Numbers become integers up to these, either way. Processors without VNNI add two products in 16
# bits, and `2 * (2 * 90) * 91` is below 2^15: so the sums are exact on all of them.
LARGEST_ACTIVATION, LARGEST_WEIGHT = 90, 91
# oneDNN takes unsigned activations. 0 becomes this; `corrections` undo it.
ZERO_POINT = LARGEST_ACTIVATION
# The largest number of a row of zeros is taken to be this.
TINY = 1e-30
# If the number of columns is a multiple of the first, oneDNN copies the matrix in every product. So
# such a matrix gets some columns of zeros more.
COPIED_MULTIPLE, SPARE_COLUMNS = 1024, 32


class Int8Matrix:
    """A matrix of weights as integers, to multiply by.

    Args:
        kernel: array (D, E) of floats.
        single_row: whether to be fast for one row, too. oneDNN copies the matrix for such a
            product, which takes longer than the product of two rows.
    """

    def __init__(self, kernel, single_row: bool = False):
        self.single_row = single_row
        values, scales = quantize_columns(np.asarray(kernel, "float32"))  # (D, E), (E,)
        if values.shape[1] % COPIED_MULTIPLE == 0:
            values = np.pad(values, [(0, 0), (0, SPARE_COLUMNS)])  # (D, E or more)
        corrections = -ZERO_POINT * values.sum(axis=0, dtype="int32")  # (E or more,)
        self.values = tf.Variable(tf.bitcast(values, tf.qint8), trainable=False)
        self.scales = tf.Variable(scales / LARGEST_ACTIVATION, trainable=False)
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
        if self.single_row:
            x = tf.pad(x, [[0, 1], [0, 0]])  # (rows or one more, D)
        levels, largest = quantize_rows(x)  # (rows or one more, D), (rows or one more, 1)
        sums = integer_sums(levels, self.values, self.corrections)  # (..., E or more)
        columns = self.scales.shape[0]
        sums = sums if sums.shape[1] == columns else sums[:, :columns]  # (..., E)
        y = sums * largest * self.scales  # (rows or one more, E)
        return y[:-1] if self.single_row else y


class Int8Table:
    """A matrix of embeddings as integers, to look rows up in.

    Args:
        table: array (V, D) of floats.
    """

    def __init__(self, table):
        values, scales = quantize_columns(np.asarray(table, "float32").T)  # (D, V), (V,)
        self.values = tf.Variable(np.ascontiguousarray(values.T), trainable=False)
        self.scales = tf.Variable(scales, trainable=False)

    @property
    def variables(self) -> list[tf.Variable]:
        """What a SavedModel has to hold."""
        return [self.values, self.scales]

    def lookup(self, ids):
        """Returns the rows of `ids` (B, T): float32 (B, T, D)."""
        rows = tf.cast(tf.gather(self.values, ids), tf.float32)  # (B, T, D)
        return rows * tf.gather(self.scales, ids)[..., None]


def quantize_columns(matrix):
    """Returns int8 (D, E) and float32 scales (E,); multiplied, they are close to `matrix`."""
    scales = np.abs(matrix).max(axis=0, initial=TINY) / LARGEST_WEIGHT  # (E,)
    return np.rint(matrix / scales).astype("int8"), scales


def quantize_rows(x):
    """Returns the rows of `x` (rows, D) as integers, and the largest number of each.

    Returns:
        quint8 (rows, D), `ZERO_POINT` for 0, and float32 (rows, 1), which is NaN for a row with a
        NaN.
    """
    largest = tf.maximum(tf.reduce_max(tf.abs(x), axis=1, keepdims=True), TINY)  # (rows, 1)
    # A cast cuts, so half of a step is added.
    levels = x * (LARGEST_ACTIVATION / largest) + (ZERO_POINT + 0.5)  # (rows, D)
    return tf.bitcast(tf.cast(levels, tf.uint8), tf.quint8), largest


def integer_sums(levels, values, corrections):
    """Computes `levels values + corrections`, exactly.

    Args:
        levels: quint8 (rows, D).
        values: qint8 (D, E).
        corrections: float32 (E,), integers.

    Returns:
        float32 (rows, E).
    """
    # With these ranges and this mode the operation scales nothing.
    return tf.raw_ops.QuantizedMatMulWithBiasAndDequantize(
        a=levels,
        b=values,
        bias=corrections,
        min_a=0.0,
        max_a=255.0,
        min_b=-127.0,
        max_b=127.0,
        min_freezed_output=0.0,
        max_freezed_output=0.0,
        Toutput=tf.float32,
        input_quant_mode="SCALED",
    )


@functools.cache
def check_int8() -> None:
    """Checks that this TensorFlow multiplies integers, and exactly, on this processor.

    Raises:
        RuntimeError: if it does not.
    """
    random = np.random.default_rng(0)
    levels = random.integers(0, 2 * LARGEST_ACTIVATION + 1, (5, 512))
    values = random.integers(-LARGEST_WEIGHT, LARGEST_WEIGHT + 1, (512, 48))
    levels[0], values[:, 0], values[:, 1] = 2 * LARGEST_ACTIVATION, LARGEST_WEIGHT, -LARGEST_WEIGHT
    corrections = -ZERO_POINT * values.sum(axis=0)  # (48,)

    @tf.function(autograph=False)
    def multiply(levels, values):
        levels = tf.bitcast(levels, tf.quint8)
        return integer_sums(levels, tf.bitcast(values, tf.qint8), corrections.astype("float32"))

    try:
        sums = multiply(levels.astype("uint8"), values.astype("int8"))
    except tf.errors.OpError as error:
        raise RuntimeError(
            'precision="int8" needs TensorFlow\'s products of oneDNN, which are off: set '
            "TF_ENABLE_ONEDNN_OPTS=1 in the environment before TensorFlow is imported, here and "
            "where the export is served."
        ) from error
    if not np.array_equal(sums, levels @ values + corrections):
        raise RuntimeError(
            'precision="int8" is not exact on this processor, so translations would be wrong; use '
            '"float32".'
        )
