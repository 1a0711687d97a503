"""The largest of many logits."""

import functools

from keras import ops

from keras_transformer.backend import batched_gather
from keras_transformer.decoding.result import IMPOSSIBLE

# The operations that groups need, in columns that could be searched instead; and how many columns
# are copied in the time that one is searched in.
GROUPING, COPIED = 150, 8


def top_k(logits, k: int):
    """The `k` largest of each row and their places, as `ops.top_k`, but faster for many columns.

    The largest k lie in the k groups of columns with the largest maxima, or in the rest that no
    group holds: a maximum of each group is quick to find, and only those k groups and the rest are
    searched, in groups of their own.

    Args:
        logits: tensor (R, V), V known.
        k: at most V.

    Returns:
        Values (R, k) in falling order, and int32 columns (R, k). Of equal values those in the
        first groups win.
    """
    size = logits.shape[-1]
    width = group_width(size, k)
    if width == 1:
        values, columns = ops.top_k(logits, k)
        return values, ops.cast(columns, "int32")
    groups = size // width
    rest = size % width
    grouped = logits[:, : size - rest] if rest else logits
    grouped = ops.reshape(grouped, (-1, groups, width))  # (R, G, W)
    _, best = ops.top_k(ops.max(grouped, axis=-1), k)  # (R, k)
    best = ops.cast(best, "int32")
    candidates = ops.reshape(batched_gather(grouped, best), (-1, k * width))  # (R, k * W)
    if rest:
        candidates = ops.concatenate([candidates, logits[:, size - rest :]], axis=1)
    values, places = top_k(candidates, k)  # (R, k)
    in_groups = ops.minimum(places, k * width - 1) if rest else places
    columns = batched_gather(best, in_groups // width) * width + in_groups % width
    if rest:
        columns = ops.where(places < k * width, columns, places + (size - rest - k * width))
    return values, columns


@functools.cache
def group_width(size: int, k: int) -> int:
    """With groups of how many columns the fewest are searched; 1 for no groups.

    Of those that divide `size`, and the powers of two.
    """
    widths = range(2, size // k + 1)
    widths = [w for w in widths if size % w == 0 or w & (w - 1) == 0]
    return min([1, *widths], key=lambda width: columns_searched(size, k, width))


def columns_searched(size: int, k: int, width: int) -> int:
    """How many maxima and candidates `top_k` searches, and what groups cost beside."""
    if width == 1:
        return size
    groups, rest = divmod(size, width)
    candidates = k * width + rest
    if candidates >= size:
        return 2 * size
    copied = size // COPIED if rest else 0
    best = columns_searched(candidates, k, group_width(candidates, k))
    return groups + GROUPING + copied + best


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
        largest = batched_gather(logits, first)
    log_sum = log_sum_exp(logits, largest, first)
    if not forbidden:
        return values, tokens, log_sum
    values = ops.where(is_forbidden(tokens, forbidden), IMPOSSIBLE, values)
    values, places = ops.top_k(values, k)
    return values, batched_gather(tokens, ops.cast(places, "int32")), log_sum


def is_forbidden(tokens, forbidden):
    """Whether each token is one of those that are forbidden now: bool, like `tokens`."""
    hits = (
        tokens == token if active is True else ops.logical_and(tokens == token, active)
        for token, active in forbidden
    )
    return functools.reduce(ops.logical_or, hits)


def log_sum_exp(logits, largest, first):
    """`log(sum(exp(logits)))` of each row, (R, 1), from its largest logit and that one's column.

    The largest logit minus the log of its probability: a softmax is one kernel, and the sum of
    exponentials several.
    """
    return largest - ops.log(batched_gather(ops.softmax(logits, axis=-1), first))
