"""Attention's data movement for a few queries at a time, as in a search.

The arithmetic of a step is small, so what surrounds it counts: a transpose of a tiny tensor costs
TensorFlow more than its product, and a copy of the cache more than reading it.
"""

import keras
from keras import ops


def split_heads_of_step(x, parts, num_heads):
    """Splits projections of a few positions into heads, by cuts instead of a transpose.

    Args:
        x: tensor (B, T, parts * D), T small.
        parts: how many projections lie side by side.
        num_heads: H.

    Returns:
        A list of `parts` tensors (B, H, T, D/H).
    """
    heads = ops.split(x, parts * num_heads, axis=-1)  # parts * H of (B, T, D/H)
    return [ops.stack(heads[i * num_heads : (i + 1) * num_heads], axis=1) for i in range(parts)]


def merge_heads_of_step(x):
    """(B, H, T, D/H) to (B, T, D), by concatenation instead of a transpose."""
    return ops.concatenate(ops.unstack(x, axis=1), axis=-1)


def write_cache(cache, key, value, position):
    """A cache with keys and values at `position`; the old one is unchanged.

    Args:
        cache: a pair of tensors (B, H, L, D/H).
        key: tensor (B, H, T, D/H).
        value: tensor (B, H, T, D/H).
        position: integer scalar, at most L - T.

    Returns:
        A pair of tensors (B, H, L, D/H).
    """
    write = _write_tensorflow if keras.backend.backend() == "tensorflow" else _write
    return tuple(write(old, new, position) for old, new in zip(cache, (key, value), strict=True))


def _write(old, new, position):
    return ops.slice_update(old, (0, 0, position, 0), new)


def _write_tensorflow(old, new, position):
    # ops.slice_update is an XLA op here, which TensorFlow Serving refuses. This one writes in
    # place where nothing else holds the tensor, as in a loop; every other one copies it all.
    import tensorflow as tf

    position = tf.cast(position, "int32")
    other_axes = 0b1011  # taken whole
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=old,
        begin=tf.stack([0, 0, position, 0]),
        end=tf.stack([0, 0, position + tf.shape(new)[2], 0]),
        strides=[1, 1, 1, 1],
        value=new,
        begin_mask=other_axes,
        end_mask=other_axes,
    )
