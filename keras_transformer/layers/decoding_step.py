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


def owned(cache):
    """The cache, marked as one that nobody else holds: `write_cache` may change it in place."""
    return (*cache[:2], ())


def write_cache(cache, key, value, position):
    """A cache with keys and values at `position`.

    The old one is unchanged, unless it is `owned`, in a TensorFlow graph: then its own memory is
    written, which at a search's sizes is many times faster than a copy, and it must not be used
    again. `position` and L must then be multiples of T.

    Args:
        cache: a pair of tensors (B, H, L, D/H), or the same from `owned`.
        key: tensor (B, H, T, D/H).
        value: tensor (B, H, T, D/H).
        position: integer scalar, at most L - T.

    Returns:
        A cache like the old one.
    """
    is_owned = len(cache) == 3
    in_place = is_owned and keras.backend.backend() == "tensorflow"
    write = _write_in_place if in_place else _write
    new = tuple(write(*pair, position) for pair in zip(cache[:2], (key, value), strict=True))
    return owned(new) if is_owned else new


def _write(old, new, position):
    # Not by ops.slice_update: on TensorFlow that is an XLA op, which TensorFlow Serving refuses.
    length = ops.shape(new)[2]
    offset = ops.arange(ops.shape(old)[2]) - position  # (L,)
    here = ops.expand_dims(ops.logical_and(offset >= 0, offset < length), 1)  # (L, 1)
    return ops.where(here, ops.take(new, ops.clip(offset, 0, length - 1), axis=2), old)


def _write_in_place(old, new, position):
    import tensorflow as tf

    heads, few, head_dim = new.shape[1:]
    length = tf.shape(old)[2]
    rows = tf.range(tf.shape(old)[0] * heads) * (length // few) + position // few  # (B * H,)
    shape = [-1, few * head_dim]
    old, new = tf.reshape(old, shape), tf.reshape(new, shape)  # (B * H * L / T, T * D/H)
    written = tf.raw_ops.InplaceUpdate(x=old, i=tf.cast(rows, "int32"), v=new)
    return tf.reshape(written, [-1, heads, length, head_dim])
