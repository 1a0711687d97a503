"""Which of the keys that lie side by side belong to a hypothesis."""

from keras import ops


def extend_ancestors(ancestors, position):
    """Enters each beam as the writer of its own `position`; which cached keys it then sees.

    The keys of all beams of a sentence share one cache, position by position, and a beam finds its
    own among them by the beam that wrote each position. A search that reorders its beams moves
    this small table and no keys.

    Args:
        ancestors: int32 (B, K, L).
        position: integer scalar.

    Returns:
        The new table (B, K, L) and the attention mask (B, K, L * K), True where beam k descends
        from the beam that wrote the key.
    """
    beam_size, max_length = ancestors.shape[1], ops.shape(ancestors)[2]
    beams = ops.arange(beam_size, dtype="int32")  # (K,)
    positions = ops.arange(max_length)  # (L,)
    own = ops.reshape(beams, (1, beam_size, 1))
    ancestors = ops.where(positions == position, own, ancestors)  # (B, K, L)
    mask = ops.logical_and(
        ops.expand_dims(ancestors, 3) == beams, ops.expand_dims(positions <= position, 1)
    )  # (B, K, L, K)
    return ancestors, ops.reshape(mask, (-1, beam_size, max_length * beam_size))
