"""Caches of keys and values, which grow by those of a few queries at a time."""

import keras
from keras import ops


def write_places(cache, step):
    """Where the first write into a cache goes; with it the cache is `owned`, see `write_cache`.

    Worked out here, once, the places need not be in every step and every layer.

    Args:
        cache: a pair of tensors (H, B, L, D/H), L a multiple of `step`.
        step: integer, T, the number of positions of every write; each begins at a multiple of it.

    Returns:
        int32 (H * B,), in steps.
    """
    heads = cache[0].shape[0] * ops.shape(cache[0])[1]  # H * B
    return ops.arange(heads, dtype="int32") * (ops.shape(cache[0])[2] // step)


def write_cache(cache, key, value, position):
    """A cache with keys and values at `position`.

    The old one is unchanged, unless it is owned, on TensorFlow: then its own memory is written,
    which at a search's sizes is many times faster than a copy, and it must not be used again.

    Args:
        cache: a pair of tensors (H, B, L, D/H); owned, if `write_places` of them is the third.
        key: tensor (H, B, T, D/H).
        value: tensor (H, B, T, D/H).
        position: integer scalar, at most L - T.

    Returns:
        A cache like the old one.
    """
    pairs = list(zip(cache[:2], (key, value), strict=True))
    if len(cache) == 3 and keras.backend.backend() == "tensorflow":
        rows = cache[2] + position // key.shape[2]  # (H * B,)
        return (*_write_in_place(pairs, rows), cache[2])
    return (*(_write(old, new, position) for old, new in pairs), *cache[2:])


def _write(old, new, position):
    # Not by ops.slice_update: on TensorFlow that is an XLA op, which TensorFlow Serving refuses.
    length = ops.shape(new)[2]
    offset = ops.arange(ops.shape(old)[2]) - position  # (L,)
    here = ops.expand_dims(ops.logical_and(offset >= 0, offset < length), 1)  # (L, 1)
    return ops.where(here, ops.take(new, ops.clip(offset, 0, length - 1), axis=2), old)


def _write_in_place(pairs, rows):
    import tensorflow as tf

    shape, (_, _, length, head_dim) = tf.shape(pairs[0][0]), pairs[0][1].shape
    written = []
    # The keys, which are read first, are written last: TensorFlow hands a product to another thread
    # if operations wait beside it when it can start, and a thread takes long to wake.
    for old, new in reversed(pairs):
        flat, new = (tf.reshape(x, [-1, length * head_dim]) for x in (old, new))
        flat = tf.raw_ops.InplaceUpdate(x=flat, i=rows, v=new)
        with tf.control_dependencies(written):
            written.append(tf.reshape(flat, shape))
    return reversed(written)
