"""The largest of many logits."""

import functools

from keras import ops

from keras_transformer.backend import batched_gather
from keras_transformer.decoding.result import IMPOSSIBLE

# The cost of `top_k` is counted in columns searched: that of grouping, and how many columns can be
# copied for one.
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
        Values (R, k) in falling order, and int32 columns (R, k). Of equal values the one in
        the group with the larger maximum comes first; `ops.top_k` may choose another.
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
        tail = logits[:, size - rest :]
        candidates = ops.concatenate([candidates, tail], axis=1)  # (R, k * W + rest)
    values, places = top_k(candidates, k)  # (R, k)
    in_groups = ops.minimum(places, k * width - 1) if rest else places
    columns = batched_gather(best, in_groups // width) * width + in_groups % width
    if rest:
        columns = ops.where(places < k * width, columns, places + (size - rest - k * width))
    return values, columns


@functools.cache
def group_width(size: int, k: int) -> int:
    """The width of groups for which `top_k` searches the fewest columns; 1 for no groups.

    It is a divisor of `size` or a power of two.
    """
    widths = range(2, size // k + 1)
    widths = [w for w in widths if size % w == 0 or w & (w - 1) == 0]
    return min([1, *widths], key=lambda width: columns_searched(size, k, width))


def columns_searched(size: int, k: int, width: int) -> int:
    """The cost of `top_k` with groups of this width: the columns it searches, and the grouping."""
    if width == 1:
        return size
    groups, rest = divmod(size, width)
    candidates = k * width + rest
    if candidates >= size:
        return 2 * size
    copied = size // COPIED if rest else 0
    best = columns_searched(candidates, k, group_width(candidates, k))
    return groups + GROUPING + copied + best


def allowed_top_k(logits, k, forbidden, struck):
    """The `k` largest logits of each row among the tokens that may be chosen.

    Args:
        logits: tensor (R, V).
        k: at most V.
        forbidden: boolean (V,) or (R, V), or None.
        struck: pairs of a token and whether it is forbidden, too, a boolean or a boolean scalar.

    Returns:
        As `top_k`, where a place that no allowed token can fill has the value IMPOSSIBLE; and
        `log_sum_exp` of the logits.
    """
    allowed = logits if forbidden is None else ops.where(forbidden, IMPOSSIBLE, logits)
    # One more for each token that may be struck, so that k are left.
    values, tokens = top_k(allowed, min(k + len(struck), logits.shape[-1]))  # (R, k + struck)
    largest = tokens[:, :1] if forbidden is None else None
    if struck:
        values = ops.where(is_struck(tokens, struck), IMPOSSIBLE, values)
        values, places = ops.top_k(values, k)  # (R, k)
        tokens = batched_gather(tokens, ops.cast(places, "int32"))
    return values, tokens, log_sum_exp(logits, largest)


def log_sum_exp(logits, largest=None):
    """`log(sum(exp(logits)))` of each row, (R, 1).

    Args:
        logits: tensor (R, V).
        largest: int32 (R, 1), the column of the largest logit of each row, if it is known. A
            softmax is one kernel, and is faster than the sum of exponentials.
    """
    if largest is None:
        return ops.logsumexp(logits, axis=-1, keepdims=True)
    probabilities = ops.softmax(logits, axis=-1)  # (R, V)
    return batched_gather(logits, largest) - ops.log(batched_gather(probabilities, largest))


def is_struck(tokens, struck):
    """Whether each token is one of those that are forbidden now: bool, like `tokens`."""
    ids = [token for token, _ in struck]
    active = ops.stack([ops.convert_to_tensor(active, "bool") for _, active in struck])  # (n,)
    ids = ops.where(active, ops.convert_to_tensor(ids, tokens.dtype), -1)  # (n,)
    return ops.any(ops.expand_dims(tokens, -1) == ids, axis=-1)
