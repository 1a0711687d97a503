"""Every mask of the library: boolean, True = may attend, passed explicitly."""

from keras import ops


def padding_mask(ids, pad_id: int):
    """The positions of `ids` that hold a real token.

    Args:
        ids: integer tensor (B, T).
        pad_id: the id of padding.

    Returns:
        Boolean tensor (B, T), True at real tokens.
    """
    return ops.not_equal(ids, pad_id)


def causal_mask(query_length, key_length=None, position=0):
    """Lets each position attend to itself and to those before it (paper, section 3.2.3).

    Args:
        query_length: T, the number of queries.
        key_length: S, the number of keys; `query_length` by default.
        position: the place of the first query among the keys, for queries that extend a cache.

    Returns:
        Boolean tensor (1, T, S), True where key `s <= position + t`.
    """
    key_length = query_length if key_length is None else key_length
    query_positions = ops.expand_dims(ops.arange(query_length), 1) + position  # (T, 1)
    key_positions = ops.expand_dims(ops.arange(key_length), 0)  # (1, S)
    return ops.expand_dims(key_positions <= query_positions, 0)  # (1, T, S)


def segment_mask(segments):
    """Keeps attention inside a segment, where a row holds several.

    Args:
        segments: integer tensor (B, T), the number of the segment that each position belongs to.

    Returns:
        Boolean tensor (B, T, T), True where query t and key s are of the same segment.
    """
    return ops.equal(ops.expand_dims(segments, 2), ops.expand_dims(segments, 1))


def combine_masks(*masks):
    """Joins masks with "and"; None stands for no mask.

    Args:
        *masks: each None, a padding mask of the keys (B, S), or an attention mask that
            broadcasts to (B, T, S).

    Returns:
        Boolean tensor that broadcasts to (B, T, S), or None if every mask is None.
    """
    combined = None
    for mask in masks:
        if mask is None:
            continue
        mask = ops.cast(mask, "bool")
        if len(mask.shape) == 2:
            mask = ops.expand_dims(mask, 1)  # (B, 1, S)
        combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def check_mask(mask, batch_size, key_length) -> None:
    """Refuses a mask that does not broadcast to (B, T, S), as far as the sizes are known.

    Args:
        mask: boolean tensor of `combine_masks`, or None.
        batch_size: B; None where it is not known.
        key_length: S; None where it is not known.
    """
    if mask is None:
        return
    shape = tuple(mask.shape)
    sizes = ((shape[0], batch_size), (shape[-1], key_length))
    if len(shape) != 3 or any(a not in (1, b) and None not in (a, b) for a, b in sizes):
        raise ValueError(
            f"attention_mask must be (B, S) or broadcast to (B, T, S), with B={batch_size} and "
            f"S={key_length}, but as (B, T, S) it is {shape}; a mask of queries and keys alone "
            "needs an axis more, mask[None]."
        )
