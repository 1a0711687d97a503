"""The cache of a search: the keys of every hypothesis, and which of them each one sees.

The keys and values of all beams of a sentence lie side by side, and a boolean table says which of
them belong to a hypothesis: those it wrote itself or took over from the one it continues. A search
that reorders its beams moves rows of that table and no keys.
"""

from keras import ops

from keras_transformer.gather import at_columns, rows_of
from keras_transformer.layers.attention_cache import write_places


def extend_visible(visible, used):
    """Lets each beam see the key that it writes next.

    Args:
        visible: boolean (B, K, M), which keys each of K beams sees.
        used: integer scalar, the number of keys there are; beam k writes number `used + k`.

    Returns:
        The new table.
    """
    beam_size, size = visible.shape[1], ops.shape(visible)[2]
    writers = ops.arange(size) - used  # (M,)
    return ops.logical_or(visible, writers == ops.expand_dims(ops.arange(beam_size), 1))


def advance(cache, layers, visible):
    """The cache after one more token of every hypothesis.

    Args:
        cache: the one before.
        layers: the decoder's cache with the new keys.
        visible: from `extend_visible`.

    Returns:
        The new cache.
    """
    return {
        **cache,
        "layers": layers,
        "length": cache["length"] + 1,
        "used": cache["used"] + visible.shape[1],
        "visible": visible,
    }


def reorder(cache, rows):
    """The cache after each hypothesis has been replaced by a continuation of another.

    Args:
        cache: from `decode_step` of a model.
        rows: integers (B * K,): hypothesis i now continues what was in row `rows[i]`.

    Returns:
        The new cache.
    """

    beam_size = cache["visible"].shape[1]
    origins = ops.reshape(rows % beam_size, (-1, beam_size))  # (B, K), in the same sentence
    tables = [name for name in ("visible", "coverage") if name in cache]  # (B, K, ...)
    return {**cache, **{name: at_columns(cache[name], origins) for name in tables}}


def widened(cache, beam_size):
    """The cache of one hypothesis a sentence as that of several which continue it.

    Args:
        cache: from `decode_step` of a model, with K = 1.
        beam_size: K of the result.

    Returns:
        The new cache, without room for another token.
    """
    missing = -ops.shape(cache["visible"])[2] % beam_size  # keys, K at a time
    visible = ops.pad(cache["visible"], ((0, 0), (0, 0), (0, missing)))  # (B, 1, M)

    def pad_keys(x):
        return ops.pad(x, ((0, 0), (0, 0), (0, missing), (0, 0)))  # (H, B, M, D/H)

    def repeat(x):
        return ops.tile(x, (1, beam_size, 1))

    layers = [{**layer, "self": tuple(map(pad_keys, layer["self"]))} for layer in cache["layers"]]
    coverage = {"coverage": repeat(cache["coverage"])} if "coverage" in cache else {}
    used = ops.shape(visible)[2]
    return {**cache, **coverage, "layers": layers, "visible": repeat(visible), "used": used}


def owned(cache):
    """The cache as one that nobody else holds: on TensorFlow, `decode_step` writes it in place.

    That is many times faster than a copy, but use each only once.

    Args:
        cache: from `init_cache` or `resize_cache` of a model, or `widened`.

    Returns:
        The cache, of another structure.
    """
    places = write_places(cache["layers"][0]["self"], cache["visible"].shape[1])
    layers = [{**layer, "self": (*layer["self"][:2], places)} for layer in cache["layers"]]
    return {**cache, "layers": layers}


def resize(cache, sentences, max_length):
    """The cache of some sentences, with room for more tokens.

    Keys that no hypothesis sees any more are left out: after a few steps all beams of a sentence
    descend from one or two, so most are.

    Args:
        cache: from `init_cache` or `decode_step` of a model; one that is `owned` stays so.
        sentences: integers (b,), those that are kept.
        max_length: how many tokens there shall be room for, those so far included.

    Returns:
        The new cache.
    """
    visible = rows_of(cache["visible"], sentences)  # (b, K, M)
    kept = kept_keys(visible)  # (b, m)
    more = (max_length - cache["length"]) * visible.shape[1]
    visible = ops.take_along_axis(visible, ops.expand_dims(kept, 1), axis=2)  # (b, K, m)
    rows = key_rows(cache["layers"][0]["self"][0], sentences, kept)  # (H, b, m)

    def keep_sentences(x):
        return rows_of(x, sentences, axis=1)  # (H, b, ...)

    def keep_keys(x):
        x = rows_of(ops.reshape(x, (-1, x.shape[3])), rows)  # (H, b, m, D/H)
        return ops.pad(x, ((0, 0), (0, 0), (0, more), (0, 0)))

    layers = [
        {
            "self": tuple(keep_keys(x) for x in layer["self"][:2]),
            **{name: tuple(map(keep_sentences, layer[name])) for name in layer if name == "cross"},
        }
        for layer in cache["layers"]
    ]
    kept_rows = ("source_padding_mask", "coverage", "start")
    is_owned = len(cache["layers"][0]["self"]) == 3
    cache = {
        **cache,
        **{name: rows_of(cache[name], sentences) for name in kept_rows if name in cache},
        "layers": layers,
        "visible": ops.pad(visible, ((0, 0), (0, 0), (0, more))),
        "used": ops.shape(kept)[1],
    }
    return owned(cache) if is_owned else cache


def key_rows(keys, sentences, kept):
    """Where the kept keys of these sentences are in `keys` (H, B, M, D/H) as (H * B * M, D/H).

    Args:
        keys: tensor (H, B, M, D/H).
        sentences: integers (b,).
        kept: int32 (b, m), from `kept_keys`.

    Returns:
        int32 (H, b, m).
    """
    heads, batch_size, size = ops.shape(keys)[:3]
    first = ops.expand_dims(ops.arange(heads) * batch_size, 1) + sentences  # (H, b)
    return ops.expand_dims(first * size, 2) + kept  # (H, b, m)


def kept_keys(visible):
    """The numbers of the keys that some hypothesis sees.

    Args:
        visible: boolean (b, K, M), M a multiple of K.

    Returns:
        int32 (b, m), in rising order; m the same for all, a multiple of K. Rows with fewer end in
        some that nobody sees.
    """
    beam_size, size = visible.shape[1], ops.shape(visible)[2]
    seen = ops.any(visible, axis=1)  # (b, M)
    numbers = ops.arange(size, dtype="int32")  # (M,)
    order = ops.argsort(ops.where(seen, numbers, numbers + size), axis=1)  # (b, M)
    most = ops.max(ops.sum(ops.cast(seen, "int32"), axis=1), initial=0)
    return ops.cast(order, "int32")[:, : (most + beam_size - 1) // beam_size * beam_size]
