"""The cache of a search: the keys of every hypothesis, and whose they are.

The keys and values of all beams of a sentence lie side by side, position by position, and a beam
finds its own among them by its ancestors: the beam that wrote each position. A search that
reorders its beams moves that small table and no keys.
"""

from keras import ops

from keras_transformer.layers.decoding_step import owned


def extend_ancestors(ancestors, position):
    """Enters each beam as the writer of its own `position`; which cached keys it then sees.

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


def reorder(cache, rows):
    """The cache after each hypothesis has been replaced by a continuation of another.

    Args:
        cache: from `Transformer.decode_step`.
        rows: integers (B * K,): hypothesis i now continues what was in row `rows[i]`.

    Returns:
        The new cache.
    """

    def gather(x):
        beam_size, size = x.shape[1], ops.shape(x)[2]
        x = ops.take(ops.reshape(x, (-1, size)), rows, axis=0)  # (B * K, L)
        return ops.reshape(x, (-1, beam_size, size))

    moved = {name: gather(cache[name]) for name in ("ancestors", "coverage")}
    return {**cache, **moved}


def resize(cache, sentences, max_length):
    """The cache of some sentences, with room for more tokens.

    In a TensorFlow graph `decode_step` writes such a cache in place: use each only once.

    Args:
        cache: from `Transformer.init_cache` or `decode_step`.
        sentences: integers (b,), those that are kept.
        max_length: at least the room there is.

    Returns:
        The new cache.
    """
    beam_size, room = cache["ancestors"].shape[1], ops.shape(cache["ancestors"])[2]
    more = max_length - room

    def keep(x):
        return ops.take(x, sentences, axis=0)

    def resize_layer(layer):
        widths = ((0, 0), (0, 0), (0, more * beam_size), (0, 0))
        return {
            "self": owned([ops.pad(keep(x), widths) for x in layer["self"][:2]]),
            "cross": tuple(keep(x) for x in layer["cross"]),
        }

    return {
        **cache,
        "layers": [resize_layer(layer) for layer in cache["layers"]],
        "source_padding_mask": keep(cache["source_padding_mask"]),
        "ancestors": ops.pad(keep(cache["ancestors"]), ((0, 0), (0, 0), (0, more))),
        "coverage": keep(cache["coverage"]),
    }
