"""Attention's data movement for a few queries at a time, as in a search.

The arithmetic of a step is small, so what surrounds it counts: a transpose of a tiny tensor costs
TensorFlow more than its product, and a copy of the cache more than reading it. The first axis is
that of the heads, which a product with the columns of each head gives, and which are put together
without a copy of their own.
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
        A list of `parts` tensors (H, B, T, D/H).
    """
    heads = ops.split(x, parts * num_heads, axis=-1)  # parts * H of (B, T, D/H)
    return [ops.stack(heads[i * num_heads : (i + 1) * num_heads]) for i in range(parts)]


def heads_of_blocks(x, blocks, bias, num_heads):
    """`split_heads_of_step` of `x W + b`, for which no column has to be moved.

    Args:
        x: tensor (B, T, D).
        blocks: W, tensor (parts * H, D, D/H): the columns of each head.
        bias: b, tensor (parts * D,).
        num_heads: H.

    Returns:
        A list of `parts` tensors (H, B, T, D/H).
    """
    count, depth, width = blocks.shape
    y = ops.matmul(ops.reshape(x, (1, -1, depth)), blocks)  # (parts * H, B * T, D/H)
    y = y + ops.reshape(bias, (count, 1, width))
    parts = ops.split(y, count // num_heads)  # each (H, B * T, D/H)
    return [ops.reshape(part, (num_heads, -1, x.shape[1], width)) for part in parts]


def merge_heads_of_step(x):
    """(H, B, T, D/H) to (B, T, D), by concatenation instead of a transpose."""
    return ops.concatenate(ops.unstack(x), axis=-1)


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
    for old, new in pairs:
        flat, new = (tf.reshape(x, [-1, length * head_dim]) for x in (old, new))
        yield tf.reshape(tf.raw_ops.InplaceUpdate(x=flat, i=rows, v=new), shape)
