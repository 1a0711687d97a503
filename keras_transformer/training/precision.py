"""The precision to train in, chosen by timing matrix products."""

import functools
from timeit import timeit

import numpy as np
from keras import ops

from keras_transformer.checks import TRAINING_PRECISIONS, check_choice

# bfloat16 loses digits, so it is chosen only if it is this many times as fast.
LEAST_SPEEDUP = 1.1
# Rows double until the products take this many seconds; shorter ones measure the launch.
SHORTEST_PRODUCT, FEWEST_ROWS, MOST_ROWS = 1e-3, 256, 65_536
REPEATS = 5


def policy(precision: str = "auto", d_model: int = 512, d_ff: int = 2048) -> str:
    """Returns the Keras dtype policy for a precision.

    Weights, their updates, the softmax of attention, normalization and the sum of the loss are
    float32 in every precision. Matrix products and the tensors between layers have the lower
    precision, and with bfloat16 the probabilities over the vocabulary have it, too.

    Args:
        precision: "float32", "bfloat16", "float16", or "auto" for `fastest_precision`.
        d_model, d_ff: the widths of the model and of its feed-forward networks, for "auto".

    Returns:
        "float32", "mixed_bfloat16" or "mixed_float16", for `Transformer(dtype=...)`.

    Raises:
        ValueError: for another precision.

    Example:
        >>> policy("bfloat16")
        'mixed_bfloat16'
    """
    check_choice("precision", precision, TRAINING_PRECISIONS)
    if precision == "auto":
        precision = fastest_precision(d_model, d_ff)
    return precision if precision == "float32" else f"mixed_{precision}"


def fastest_precision(d_model: int, d_ff: int) -> str:
    """Returns "bfloat16" if it has at least 1.1 times the rate of float32, else "float32"."""
    rates = product_rates(d_model, d_ff)
    is_faster = rates["bfloat16"] >= LEAST_SPEEDUP * rates["float32"]
    return "bfloat16" if is_faster else "float32"


@functools.cache
def product_rates(d_model: int, d_ff: int) -> dict[str, float]:
    """Measures the FLOP/s of a feed-forward network's products in float32 and bfloat16.

    This takes a fraction of a second, once per process. It may run TensorFlow's first operation,
    which fixes the number of threads: call `share_cores_between_shards` before it.

    Args:
        d_model: the model's width.
        d_ff: the width inside its feed-forward networks.

    Returns:
        Operations per second for each dtype.
    """
    rows = FEWEST_ROWS
    while rows < MOST_ROWS and timeit(_products(rows, d_model, d_ff), number=1) < SHORTEST_PRODUCT:
        rows *= 2
    runs = {dtype: _products(rows, d_model, d_ff, dtype) for dtype in ("float32", "bfloat16")}
    # In turns, so that other work on the machine slows both.
    times = [{dtype: timeit(run, number=1) for dtype, run in runs.items()} for _ in range(REPEATS)]
    return {dtype: 4 * rows * d_model * d_ff / min(t[dtype] for t in times) for dtype in runs}


def _products(rows, d_model, d_ff, dtype="float32"):
    """Returns a function that multiplies (rows, D) by (D, d_ff) and (d_ff, D), and runs it once."""
    shapes = (rows, d_model), (d_model, d_ff), (d_ff, d_model)
    x, inner, outer = (ops.cast(np.full(shape, 1e-2, "float32"), dtype) for shape in shapes)

    def run():
        y = ops.matmul(ops.matmul(x, inner), outer)
        ops.convert_to_numpy(y[:1, :1])  # a GPU returns before it has computed

    run()
    return run
