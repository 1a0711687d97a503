"""Working through many rows a few at a time, in the graph."""

import tensorflow as tf


def in_batches(function, order, batch_size, results):
    """Calls `function` on `batch_size` rows at a time and puts the answers in their places.

    Args:
        function: from the numbers of some rows, int32 (b,), to tensors like `results`, of b rows;
            every other axis at most as long, and padded with 0 to it.
        order: int32 (B,), the numbers of all rows, in the order in which they are taken.
        batch_size: the most rows at a time; or a function of the first of them to that number.
        results: tuple of tensors (B, ...), which are filled.

    Returns:
        The filled tuple.
    """
    total = tf.shape(order)[0]

    def more(start, *_):
        return start < total

    def next_batch(start, *results):
        size = batch_size(order[start]) if callable(batch_size) else batch_size
        rows = order[start : start + size]  # (b,)
        filled = [
            tf.tensor_scatter_nd_update(old, rows[:, None], _padded(new, tf.shape(old)))
            for old, new in zip(results, function(rows), strict=True)
        ]
        return (start + size, *filled)

    invariants = (tf.TensorShape([]), *(tensor.shape for tensor in results))
    loop_vars = (tf.constant(0), *results)
    return tf.while_loop(more, next_batch, loop_vars, shape_invariants=invariants)[1:]


def in_streams(function, order, num_streams, batch_size, results):
    """`in_batches` of several shares of the rows at the same time.

    TensorFlow runs at once what does not depend on each other, each stream in a thread. A step of a
    search is too short to be worth sharing between threads: they would mostly wait for each other.

    Args:
        function, order, batch_size: as `in_batches`.
        num_streams: the number of streams; each takes every so-many-th row.
        results: as `in_batches`; zeros.

    Returns:
        The filled tuple.
    """

    # Not inlined, so that TensorFlow optimizes it once and not for each stream.
    @tf.function(autograph=False, experimental_attributes={"_noinline": True})
    def stream(order, *results):
        return in_batches(function, order, batch_size, results)

    filled = [stream(order[i::num_streams], *results) for i in range(num_streams)]
    return tuple(tf.add_n(parts) for parts in zip(*filled, strict=True))  # 0 but for own rows


def _padded(tensor, shape):
    """`tensor` padded with zeros on every axis but the first."""
    missing = (shape - tf.shape(tensor))[1:]
    widths = tf.concat([[[0, 0]], tf.stack([tf.zeros_like(missing), missing], 1)], 0)
    return tf.pad(tensor, widths)
