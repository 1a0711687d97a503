"""The precision to train in, chosen by timing products of matrices."""

import functools
from timeit import timeit

import numpy as np
from keras import ops

from keras_transformer.checks import check_choice

PRECISIONS = ("auto", "float32", "bfloat16", "float16")

# bfloat16 costs digits, so it has to be this much faster to be chosen.
LEAST_SPEEDUP = 1.1
# Products get more rows until one takes as many seconds: shorter ones measure the launch.
SHORTEST_PRODUCT, FEWEST_ROWS, MOST_ROWS = 1e-3, 256, 65_536
REPEATS = 5


def policy(precision: str = "auto", d_model: int = 512, d_ff: int = 2048) -> str:
    """The Keras dtype policy of a precision.

    Weights, their updates, the softmax of attention, normalization and the sum of the loss are
    float32 in every precision. Products of matrices and the tensors between layers have the lower
    one, and in bfloat16 the probabilities over the vocabulary as well.

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
    check_choice("precision", precision, PRECISIONS)
    if precision == "auto":
        precision = fastest_precision(d_model, d_ff)
    return precision if precision == "float32" else f"mixed_{precision}"


def fastest_precision(d_model: int, d_ff: int) -> str:
    """The name of the faster precision: bfloat16 has to have 1.1 times the rate of float32."""
    rates = product_rates(d_model, d_ff)
    is_faster = rates["bfloat16"] >= LEAST_SPEEDUP * rates["float32"]
    return "bfloat16" if is_faster else "float32"


@functools.cache
def product_rates(d_model: int, d_ff: int) -> dict[str, float]:
    """The FLOP/s of a feed-forward network's products in float32 and bfloat16.

    They are timed once per process, in a fraction of a second, with the threads of the backend.
    TensorFlow's first operation fixes these, and this may be the first one: call
    `share_cores_between_shards` before it.

    Args:
        d_model: the model's width.
        d_ff: the width inside its feed-forward networks.

    Returns:
        Operations per second by the name of the dtype.
    """
    rows = FEWEST_ROWS
    while rows < MOST_ROWS and timeit(_products(rows, d_model, d_ff), number=1) < SHORTEST_PRODUCT:
        rows *= 2
    runs = {dtype: _products(rows, d_model, d_ff, dtype) for dtype in ("float32", "bfloat16")}
    # In turns, so that other work on the machine slows both.
    times = [{dtype: timeit(run, number=1) for dtype, run in runs.items()} for _ in range(REPEATS)]
    return {dtype: 4 * rows * d_model * d_ff / min(t[dtype] for t in times) for dtype in runs}


def _products(rows, d_model, d_ff, dtype="float32"):
    """A function that multiplies (rows, D) by (D, d_ff) and (d_ff, D); it has run once."""
    shapes = (rows, d_model), (d_model, d_ff), (d_ff, d_model)
    x, inner, outer = (ops.cast(np.full(shape, 1e-2, "float32"), dtype) for shape in shapes)

    def run():
        y = ops.matmul(ops.matmul(x, inner), outer)
        ops.convert_to_numpy(y[:1, :1])  # a GPU returns before it has computed

    run()
    return run
