"""The largest of many logits."""

import functools

from keras import ops

from keras_transformer.decoding.gather import at_columns, rows_of
from keras_transformer.decoding.search_result import IMPOSSIBLE

# The operations that groups need, in columns that could be searched instead.
GROUPING = 150


def top_k(logits, k: int):
    """The `k` largest of each row and their places, as `ops.top_k`, but faster for many columns.

    The largest k lie in the k groups of columns with the largest maxima: a maximum of each group
    is quick to find, and only those k groups are searched, in groups of their own.

    Args:
        logits: tensor (R, V), V known.
        k: at most V.

    Returns:
        Values (R, k) in falling order, and int32 columns (R, k). Of equal values those in the
        first groups win.
    """
    size = logits.shape[-1]
    groups = group_count(size, k)
    if groups == size:
        values, columns = ops.top_k(logits, k)
        return values, ops.cast(columns, "int32")
    width = size // groups
    grouped = ops.reshape(logits, (-1, groups, width))  # (R, G, W)
    _, best = ops.top_k(ops.max(grouped, axis=-1), k)  # (R, k)
    best = ops.cast(best, "int32")
    rows = ops.expand_dims(ops.arange(ops.shape(best)[0], dtype="int32"), 1)  # (R, 1)
    flat = ops.reshape(best + rows * groups, (-1,))  # (R * k,)
    candidates = rows_of(ops.reshape(grouped, (-1, width)), flat)  # (R * k, W)
    values, places = top_k(ops.reshape(candidates, (-1, k * width)), k)  # (R, k)
    group = rows_of(ops.reshape(best, (-1,)), places // width + rows * k)  # (R, k)
    return values, group * width + places % width


@functools.cache
def group_count(size: int, k: int) -> int:
    """The divisor of `size` with which the fewest columns are searched; `size` for no groups."""
    divisors = (d for d in range(k, size // 2 + 1) if size % d == 0)
    return min([size, *divisors], key=lambda groups: columns_searched(size, k, groups))


def columns_searched(size: int, k: int, groups: int) -> int:
    """How many maxima and candidates `top_k` searches, and what groups cost beside."""
    if groups == size:
        return size
    candidates = k * (size // groups)
    if candidates >= size:
        return 2 * size
    return groups + GROUPING + columns_searched(candidates, k, group_count(candidates, k))


def allowed_top_k(logits, k, mask, forbidden):
    """The `k` largest logits of each row among the tokens that may be chosen.

    Args:
        logits: tensor (R, V).
        k: at most V.
        mask: boolean (V,) or (R, V), True = not allowed; None for no mask.
        forbidden: pairs of a token and whether it is forbidden, a boolean or a boolean scalar.

    Returns:
        As `top_k`, where a place that no allowed token can fill has the value IMPOSSIBLE; and the
        log of the sum of exponentials of each row as it was, (R, 1).
    """
    allowed = logits if mask is None else ops.where(mask, IMPOSSIBLE, logits)
    values, tokens = top_k(allowed, min(k + len(forbidden), logits.shape[-1]))
    largest, first = values[:, :1], tokens[:, :1]  # (R, 1)
    if mask is not None:
        first = ops.expand_dims(ops.cast(ops.argmax(logits, axis=-1), "int32"), 1)
        largest = at_columns(logits, first)
    log_sum = log_sum_exp(logits, largest, first)
    if not forbidden:
        return values, tokens, log_sum
    for token, active in forbidden:
        hit = ops.logical_and(tokens == token, active)
        values = ops.where(hit, IMPOSSIBLE, values)
    values, places = ops.top_k(values, k)
    return values, at_columns(tokens, ops.cast(places, "int32")), log_sum


def log_sum_exp(logits, largest, first):
    """`log(sum(exp(logits)))` of each row, (R, 1), given its largest logit and whose it is.

    The largest logit minus the log of its probability: a softmax is one kernel, and the sum of
    exponentials several.
    """
    return largest - ops.log(at_columns(ops.softmax(logits, axis=-1), first))
