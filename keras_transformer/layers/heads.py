"""How projections become heads, and heads one vector again (paper, section 3.2.2).

The functions of a step are for a few queries at a time, as in a search. Its arithmetic is small, so
what surrounds it counts: a transpose of a tiny tensor costs TensorFlow more than its product. The
first axis is that of the heads, which a product with the columns of each head gives, and which are
put together without a copy of their own.
"""

from keras import ops


def split_heads(x, parts, num_heads):
    """(B, T, parts * D) to a list of `parts` tensors (B, H, T, D/H)."""
    head_dim = x.shape[-1] // (parts * num_heads)
    x = ops.reshape(x, (*ops.shape(x)[:2], parts, num_heads, head_dim))
    return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), parts)


def merge_heads(x):
    """(B, H, T, D/H) to (B, T, D): the "Concat" of the paper's section 3.2.2."""
    batch_size, num_heads, length, head_dim = ops.shape(x)
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch_size, length, num_heads * head_dim))


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
